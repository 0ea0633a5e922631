"""`diagmem completion`: the script that makes a shell complete commands, options and model names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Script for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  diagmem completion bash > ~/.local/share/bash-completion/completions/diagmem
    zsh:   diagmem completion zsh > "${fpath[1]}/_diagmem"
    fish:  diagmem completion fish > ~/.config/fish/completions/diagmem.fish
    """
    cls = get_completion_class(shell)
    if cls is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(cls(ctx.find_root().command, {}, "diagmem", "_DIAGMEM_COMPLETE").source())

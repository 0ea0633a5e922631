"""`diagmem emit`: hands a plan on, as C or inside a .tflite file. One module per form, loaded when it is needed."""

from __future__ import annotations

import importlib
import pkgutil

import click

from diagmem import cli
from diagmem.cli._progress import with_quiet

PREFIX = "_emit_"


class _Forms(click.Group):
    """Every module of this package that is named `_emit_FORM` is a form."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = (module.name for module in pkgutil.iter_modules(cli.__path__))
        return sorted(name[len(PREFIX) :] for name in names if name.startswith(PREFIX))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        form: click.Command = importlib.import_module(f"{cli.__name__}.{PREFIX}{cmd_name}").command
        return with_quiet(form)


@click.group(short_help="Write a plan as C code, or into a .tflite file.", cls=_Forms, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context, /) -> None:
    """Hand a plan on: as C code, or inside a .tflite file."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())

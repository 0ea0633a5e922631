"""`diagmem schema`: the format of plans."""

from __future__ import annotations

import click


@click.command(short_help="The JSON Schema of plans.")
def command() -> None:
    """Print the JSON Schema of what `diagmem plan --json` writes and `diagmem check` reads.

    \b
    Example:
      diagmem schema > plan.schema.json
    """
    from diagmem.planning.json import schema_text

    click.echo(schema_text(), nl=False)

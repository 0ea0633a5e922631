"""`diagmem ui`: a page that plans what is dropped on it, served to this machine alone.

The pipeline is that of the API, pages and pictures are those of the report: here is only what lies between them and a
browser.
"""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagmem.cli._commands import command_of
from diagmem.cli._models import naming_model
from diagmem.model.errors import DiagmemError

if TYPE_CHECKING:
    from diagmem.cli.ui.server import Shelf

ANY_PORT = 0


@command_of("ui")
def command(model: str | None, port: int, no_browser: bool) -> None:
    from diagmem.cli.ui.jobs import Workers
    from diagmem.cli.ui.server import Server, Shelf, page

    workers, shelf = Workers(), Shelf()
    first = None if model is None else _shelved(shelf, model)
    try:
        server = Server(port, page(first), workers, shelf)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DiagmemError(f"port {port} of 127.0.0.1: {reason.lower()}; leave out --port to get a free one") from error
    try:
        threading.Thread(target=workers.start, daemon=True).start()
        click.echo(f"{server.address}\nOnly this machine can open it. Ctrl-C ends it; nothing is kept.")
        if not no_browser and _has_windows():
            threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
        server.serve_forever()
    finally:
        server.server_close()
        workers.close()


def _has_windows() -> bool:
    """Whether a browser would open one: in a terminal it would take that away from the command."""
    return not sys.platform.startswith("linux") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def _shelved(shelf: Shelf, model: str) -> str:
    """What the page calls the model that was named."""
    from diagmem.cli.ui.jobs import Given
    from diagmem.frontends.source import Source

    with naming_model(model):
        source = Source(model)
        if not source.is_from_zoo:
            return shelf.add_model(Given(Path(model).name, source.content))
        # One that is not there is refused here.
        return f"zoo:{source.graph.name}"

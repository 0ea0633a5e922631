"""Files that are never half-written, and never put in the place of what is no file."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from diagmem.reports.drawing import Drawing

GIVEN = "diagmem.given"
"""Under this name a command's context keeps the paths of the models that it was given."""

MOST_LINKS = 40
"""Symbolic links that are followed, as by Linux."""


def check_is_no_input(path: Path) -> None:
    """Refuses to write over a model that the command was given."""
    context = click.get_current_context(silent=True)
    for given in context.meta.get(GIVEN, ()) if context else ():
        with suppress(OSError):
            if os.path.samefile(path, given):
                raise click.UsageError(f"{path} is the model that was given: write to another file.", context)


def write_drawing(path: Path, drawing: Drawing, with_png: bool = True) -> None:
    """Writes PATH.svg, and PATH.png and PATH-dark.png where the extra that makes pixels is installed."""
    write_files({path.with_name(name): content for name, content in drawing.files(path.name, with_png).items()})


def write_file(path: Path, content: bytes) -> None:
    """Writes the whole file or nothing: a failure leaves what was there. A symbolic link stays one, and what it points
    to is replaced. Pipes, devices and the like are written to."""
    write_files({path: content})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Writes all of these files or none of them, as far as disks allow."""
    for path in contents:
        check_is_no_input(path)
    with ExitStack() as prepared:
        placed = [
            (prepared.enter_context(_beside(Path(os.path.realpath(path)), content)), os.path.realpath(path))
            for path, content in contents.items()
            if not _is_stream(path)
        ]
        for path, content in contents.items():
            if _is_stream(path):
                _write_to(path, content)
        for temporary, real in placed:
            os.replace(temporary, real)


@contextmanager
def _beside(path: Path, content: bytes) -> Iterator[str]:
    """The path of a new file with this content in the same directory; it is gone behind the block if it still has that
    name."""
    import tempfile  # Brings random numbers and hashes with it: only where files are written.

    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, _mode(path))
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _mode(path: Path) -> int:
    """The permissions that a file has, or that a new one gets."""
    with suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _is_stream(path: Path) -> bool:
    """Whether something is there that is no regular file, or that this process has open already."""
    try:
        return _descriptor(path) is not None or not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _write_to(path: Path, content: bytes) -> None:
    """Writes to what is there. A file that this process has open goes on where it stands: to open it anew would start
    from its beginning."""
    opened = _descriptor(path)
    sys.stdout.flush()
    with path.open("wb") if opened is None else os.fdopen(os.dup(opened), "wb") as file:
        file.write(content)


def _descriptor(path: Path) -> int | None:
    """The number of the open file that a path such as /dev/stdout or /dev/fd/63 stands for."""
    for _ in range(MOST_LINKS):
        folder = os.path.realpath(path.parent)
        if folder in ("/dev/fd", f"/proc/{os.getpid()}/fd") and path.name.isdigit():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = Path(folder, os.readlink(path))
    return None

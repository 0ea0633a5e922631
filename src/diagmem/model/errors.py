"""The exceptions that a user may meet. Each message says where, what, and what to do next, in one line."""

import errno
import os
import shlex
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any


class DiagmemError(Exception):
    """Bad input or usage: the command line shows the message and exits with status 2."""


class ModelError(DiagmemError):
    """A model file that is damaged, or holds something that diagmem does not support."""


def damaged(what: str) -> ModelError:
    """For a file that contradicts itself, or the format."""
    return ModelError(f"{what}; the file is damaged")


class PlanError(DiagmemError):
    """Options that contradict each other or the model."""


class UnreadableFileError(DiagmemError, OSError):
    """A file that is not there, or cannot be read. It is an OSError as well, with its number and the file's name."""

    def __str__(self) -> str:
        return f"{one_line(str(self.filename), 400)}: {self.strerror}"


class TraceError(DiagmemError):
    """A kernel that cannot be traced as asked, or a tool that tracing needs and that is not there."""


class UnsafePlanError(DiagmemError):
    """A plan that destroys a value before its last read: the answer is no, and the command line exits with status 1."""


@contextmanager
def reading() -> Iterator[None]:
    """Around a file that is read: what the operating system has against it is one of our errors."""
    try:
        yield
    except OSError as error:
        raise UnreadableFileError(error.errno, error.strerror, error.filename) from error


LARGEST_FILE_BYTES = 2**31 - 1
"""No flatbuffer or protobuf message is larger."""


def content_of(path: Path | str, most_bytes: int = LARGEST_FILE_BYTES) -> bytes:
    """All bytes of a regular file. What may have no end, or make a reader wait, is not even opened, and what is too
    large is not read."""

    def check(found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            number, why = errno.EINVAL, "it is no regular file"
            if stat.S_ISDIR(found.st_mode):
                number, why = errno.EISDIR, os.strerror(errno.EISDIR)
            raise OSError(number, why, str(path))
        if found.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))

    with reading():
        check(os.stat(path))
        with os.fdopen(os.open(path, os.O_RDONLY | _AT_ONCE), "rb") as file:
            # What is there now may be something else.
            check(os.fstat(file.fileno()))
            return file.read(most_bytes)


_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def install_command(extra: str) -> str:
    """How to add an extra, for the way in which diagmem was installed. It is on no package index, so its bare name is
    never what to install."""
    import json  # All of these only where something is missing: they are slow to load.
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("diagmem").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    place = urlsplit(origin.get("url", ""))
    path = Path(url2pathname(place.path))
    if place.scheme != "file" or not path.exists():
        return f"pip install '.[{extra}]' in a clone of diagmem"
    if path.is_dir():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{path}[{extra}]')}"
    return f"pip install {shlex.quote(f'diagmem[{extra}] @ {place.geturl()}')}"


LONGEST_WORD = 4096
"""Of a command: as long as a path may be."""


def shell_word(text: str) -> str:
    """A text from a file as one word of a command that a user is told to run: quoted, so that a shell takes it as it
    is."""
    return shlex.quote(one_line(text, LONGEST_WORD))


def one_line(text: str, limit: int = 80) -> str:
    """A name from a model file made fit to print: control characters escaped, length bounded."""
    shown = text
    if not text.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


TYPES = {"bool": (bool, "true or false"), "int": (Integral, "a whole number"), "float": (Real, "a number")}
"""Type of an option -> what its value must be, and how messages call that."""


def check_type(name: str, value: Any, annotation: str, where: str = "") -> None:
    """Refuses the value of an option that is not of its type: one of those above, a text, or a list of texts, which
    `tuple[Pool, ...]` takes for pools. `where`: what the message begins with."""
    kind, _, may_be_none = annotation.partition(" | ")
    sort, what = TYPES.get(kind, (str, "a text" if kind == "str" else "a list of texts"))
    if kind in (*TYPES, "str"):
        is_right = isinstance(value, sort) and (kind == "bool" or not isinstance(value, bool))
    else:
        items = items_of(value.values() if name == "buffers" and isinstance(value, Mapping) else value)
        is_right = items is not None and all(type(item).__name__ in ("str", kind[6:].split(",")[0]) for item in items)
    if not is_right and not (may_be_none and value is None):
        raise PlanError(f"{where}{name}: {one_line(repr(value), 40)} is not {what}")


def items_of(given: Any) -> Any:
    """Of a list; a text is one of a single item, and what is no list has none."""
    if isinstance(given, str):
        return (given,)
    return given if isinstance(given, Collection) and not isinstance(given, Mapping) else None

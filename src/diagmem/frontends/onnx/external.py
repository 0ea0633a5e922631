"""Weights in a file beside the model's. PyTorch writes them so; a hostile model may name any file of the machine, so
only a plain file in the model's own folder is opened, without following links."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from diagmem.model.errors import ModelError, one_line

KEYS = ("location", "offset", "length", "checksum")


class External:
    """Files beside a model in `directory`; None where the model itself is no file."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def read(self, places: dict[str, str], size_bytes: int, where: str) -> bytes:
        """The bytes of a tensor that takes `size_bytes`."""
        location = places.get("location", "")
        if not set(places) <= set(KEYS) or not location:
            raise ModelError(f"{where}: its external data is described by other than {', '.join(KEYS)}")
        if self._directory is None:
            raise ModelError(
                f"{where}: its values lie in '{one_line(location)}' beside the model; give the model as a file"
            )
        if Path(location).name != location or location in (".", "..") or "\\" in location or "\0" in location:
            raise ModelError(f"{where}: external data in '{one_line(location)}' is not in the model's own folder")
        offset, length = (_number(places.get(key), where) for key in ("offset", "length"))
        if length is not None and length != size_bytes:
            raise ModelError(f"{where}: {length} bytes of external data for a shape that takes {size_bytes}")
        return _bytes(self._directory / location, offset or 0, size_bytes, where)


def _number(text: str | None, where: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ModelError(f"{where}: offset or length of its external data is not a number; the file is damaged")
    return int(text)


def _bytes(path: Path, offset: int, size_bytes: int, where: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a file name"
        raise ModelError(f"{where}: external data '{one_line(path.name)}' cannot be opened: {why}") from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise ModelError(f"{where}: external data '{one_line(path.name)}' is not a plain file of its own")
        if offset + size_bytes > found.st_size:
            raise ModelError(f"{where}: external data '{one_line(path.name)}' ends before it")
        file.seek(offset)
        return file.read(size_bytes)

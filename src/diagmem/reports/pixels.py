"""A grid of colours as a PNG file: few colours, each cell the number of one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Colour = tuple[int, int, int, int]
"""Red, green, blue, opacity; 0 to 255."""


def indexed_png(cells: npt.NDArray[np.uint8], palette: Sequence[Colour]) -> bytes:
    """The picture of `cells` (rows from the top, columns), each the index of its colour."""
    rows, columns = cells.shape
    # Each row starts with the number of its filter; 0 is none.
    lines = np.concatenate((np.zeros((rows, 1), dtype=np.uint8), cells), axis=1)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", bytes(part for colour in palette for part in colour[:3])),
            _chunk(b"tRNS", bytes(colour[3] for colour in palette)),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

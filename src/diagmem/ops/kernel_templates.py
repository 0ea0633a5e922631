"""Kernels that differ in what they compute with, and in little else: `NAME.c.in` holds the text of all of them.

`$element` and so on stand for the words of `Numbers`. A line that begins with names in brackets is in those kernels
only. The C that comes out reads as if it were written by hand: comments are filled and aligned, long lines are broken.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from string import Template
from typing import NamedTuple

SUFFIX = ".c.in"


class Numbers(NamedTuple):
    """What a kernel computes with, in its comment; the C types of data and weights, the struct that finishes sums, and
    what data is padded with."""

    numbers: str
    element: str
    weight: str
    channels: str
    padding: str = "zeros"


_ZERO_POINT = "the input's zero point"

_NUMBERS = {
    "f32": Numbers("single precision", "float", "float", "f32"),
    "s16": Numbers("16-bit integers with 8-bit weights", "int16_t", "int8_t", "s16"),
    "s4": Numbers("8-bit integers with 4-bit weights", "int8_t", "uint8_t", "s8", _ZERO_POINT),
    "s4_once": Numbers(
        "8-bit integers with 4-bit weights of several scales, rounded once", "int8_t", "uint8_t", "s8", _ZERO_POINT
    ),
    "s8": Numbers("8-bit integers", "int8_t", "int8_t", "s8", _ZERO_POINT),
    "u8": Numbers("unsigned 8-bit integers", "uint8_t", "int8_t", "s8", _ZERO_POINT),
    "vfp_f32": Numbers(
        "single precision for floating-point units that multiply and add in one instruction", "float", "float", "f32"
    ),
    "w16_f32": Numbers("single precision with weights of half precision", "float", "uint16_t", "f32"),
    "w8_f32": Numbers("single precision with 8-bit weights", "float", "int8_t", "f32"),
}
"""By what the names of kernels end in."""

_KERNELS = {
    "conv_2d": ("f32", "s16", "s4", "s8", "u8", "w16_f32", "w8_f32"),
    "depthwise_conv_2d": ("f32", "s16", "w16_f32", "w8_f32"),
    "depthwise_row_sums": ("f32", "s16", "s8", "u8"),
    "fully_connected": tuple(_NUMBERS),
    "row_sums": ("f32", "s16", "s8", "u8", "vfp_f32"),
}
"""A template -> the kernels that are made of it."""

_SUMS = {"f32": "float", "s16": "int64_t", "s8": "int32_t"}
"""By the struct that finishes them."""

_WIDTH = 120
_CONDITION = re.compile(r"^\[([\w ]+)\](.*\n)", re.MULTILINE)
_COMMENT = re.compile(r"^/\*(.*?)\*/$", re.MULTILINE | re.DOTALL)
_COMMENTED_FIELDS = re.compile(r"(?:^.*; +/\*.*\*/\n)+", re.MULTILINE)


def kernels_of(file: str, text: str) -> Iterator[tuple[str, str]]:
    """Names and texts of the C files that a template stands for."""
    stem = file.removesuffix(SUFFIX)
    return ((f"{stem}_{name}.c", _kernel(text, name)) for name in _KERNELS[stem])


def _kernel(text: str, name: str) -> str:
    kept = _CONDITION.sub(lambda line: line[2] if name in line[1].split() else "", text)
    numbers = _NUMBERS[name]
    filled = Template(kept).substitute(numbers._asdict(), name=name, sum=_SUMS[numbers.channels])
    aligned = _COMMENTED_FIELDS.sub(_aligned, _COMMENT.sub(_refilled, filled))
    return "".join(map(_broken, aligned.splitlines(keepends=True)))


def _refilled(comment: re.Match[str]) -> str:
    words = " ".join(comment[1].replace("\n *", " ").split())
    return textwrap.fill(f"/* {words} */", _WIDTH, subsequent_indent=" * ", break_on_hyphens=False)


def _aligned(fields: re.Match[str]) -> str:
    """Comments begin in one column."""
    pairs = [re.split(" +(?=/)", line, maxsplit=1) for line in fields[0].splitlines()]
    width = max(len(field) for field, _ in pairs)
    return "".join(f"{field:{width}} {comment}\n" for field, comment in pairs)


def _broken(line: str) -> str:
    """At the last argument that fits; the rest begins below the first one."""
    if len(line) <= _WIDTH + 1:
        return line
    end = line.rindex(", ", 0, _WIDTH + 1) + 1
    return f"{line[:end]}\n{' ' * (line.index('(') + 1)}{line[end + 1 :]}"

"""Text that is safe in C: numbers, tables and structs, and names, strings and comments from a model's file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import Tensor
from diagmem.model.tables import table
from diagmem.ops.c_call import CName, CStruct, CTable

LINE_WIDTH = 116

_LEAST = {"-2147483648": "INT32_MIN", "-9223372036854775808": "INT64_MIN"}
"""Numbers that C has no literal for."""


def number(value: Any) -> str:
    """A literal that reads back as exactly the same number. Every field of a struct has 32 bits, whole or real."""
    if isinstance(value, float | np.floating):
        return _real(value)
    if not -(2**31) <= int(value) < 2**31:
        raise ModelError(f"the number {value} does not fit into 32 bits, and cannot be written as C")
    return _LEAST.get(str(int(value)), str(int(value)))


def _real(value: Any) -> str:
    """In single precision. C has no literal for what is infinite, or no number."""
    if not np.isfinite(np.float32(value)):
        return "(0.0f / 0.0f)" if np.isnan(value) else "(1.0f / 0.0f)" if value > 0 else "(-1.0f / 0.0f)"
    text = str(np.float32(value))
    return f"{text}f" if set(text) & set(".e") else f"{text}.0f"


def numbers(data: npt.NDArray[Any]) -> Iterator[str]:
    """The elements of a table, a comma behind each, in lines of even width."""
    flat = data.reshape(-1)
    if flat.dtype.kind == "f":
        return wrapped((f"{_real(value)}," for value in flat), "    ")
    texts = (str(int(value)) for value in flat.tolist())
    return wrapped((f"{_LEAST.get(text, text)}," for text in texts), "    ")


def wrapped(words: Iterable[str], indent: str) -> Iterator[str]:
    """The words in lines of even width."""
    line: list[str] = []
    width = len(indent)
    for word in words:
        if line and width + len(word) > LINE_WIDTH:
            yield indent + " ".join(line)
            line, width = [], len(indent)
        line.append(word)
        width += len(word) + 1
    if line:
        yield indent + " ".join(line)


def initialiser(struct: CStruct, names: Mapping[CTable, str], indent: str = "") -> str:
    """A braced initialiser. Numbers stand side by side, structs in lines of their own. `names`: of the tables."""
    inner = f"{indent}    "
    lines: list[str] = []
    plain: list[str] = []
    for field, value in struct.fields.items():
        if isinstance(value, CStruct):
            lines += [*wrapped(plain, inner), f"{inner}.{field} = {initialiser(value, names, inner)},"]
            plain = []
        else:
            plain.append(f".{field} = {_value(value, names)},")
    return "\n".join(["{", *lines, *wrapped(plain, inner), f"{indent}}}"])


def _value(value: Any, names: Mapping[CTable, str]) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, CTable):
        return names[value]
    if isinstance(value, CName):
        return value.name
    return f"{{{', '.join(map(number, value))}}}" if isinstance(value, tuple) else number(value)


LONGEST_NAME = 48

_RESERVED = frozenset(name for names in table(__package__, "reserved").values() for name in names)
"""What build systems call parts of their own, and headers of the standard library: no library may be called so."""

_BACKSLASH = chr(92)


def identifier(text: str) -> str:
    """A C identifier that resembles the text. It is also the name of a file and of a library: it hides no header of the
    standard library, and no target of a build system."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_")[:LONGEST_NAME].rstrip("_")
    is_free = name[:1].isalpha() and name.lower() not in _RESERVED
    return name if is_free else f"model_{name}".rstrip("_")


def string(text: str) -> str:
    """A C string literal of any text, in ASCII: what is not printable, or has a meaning in C, as octal escapes."""
    is_plain = {*range(0x20, 0x7F)} - {*b'"\\?'}
    return f'"{"".join(chr(byte) if byte in is_plain else f"{_BACKSLASH}{byte:03o}" for byte in text.encode())}"'


def comment(text: str) -> str:
    """Text that may stand in a C comment, whatever it holds: one line of ASCII that neither opens nor closes one."""
    shown = "".join(c if c.isprintable() else "?" for c in text.replace("…", "..."))
    line = shown.encode("ascii", "backslashreplace").decode("ascii")
    return line.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")


def shape_of(tensor: Tensor) -> str:
    """`1x24x24x32`."""
    return "x".join(map(str, tensor.shape)) or "1"

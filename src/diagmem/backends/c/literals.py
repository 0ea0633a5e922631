"""Values as C text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.ops import CName, CStruct, CTable

LINE_WIDTH = 116

_LEAST = {"-2147483648": "INT32_MIN", "-9223372036854775808": "INT64_MIN"}
"""Numbers that C has no literal for."""


def number(value: Any) -> str:
    """A literal that reads back as exactly the same number."""
    text = f"{_decimal(value)}f" if isinstance(value, float | np.floating) else str(int(value))
    return _LEAST.get(text, text)


def _decimal(value: Any) -> str:
    text = str(np.float32(value))
    return text if set(text) & set(".e") else f"{text}.0"


def numbers(data: npt.NDArray[Any]) -> Iterator[str]:
    """The elements of a table, a comma behind each, in lines of even width."""
    flat = data.reshape(-1)
    if flat.dtype.kind == "f":
        return wrapped((f"{_decimal(value)}f," for value in flat), "    ")
    return wrapped((f"{_LEAST.get(text, text)}," for text in map(str, flat.tolist())), "    ")


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

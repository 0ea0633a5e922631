"""Values as C text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.errors import ModelError
from diagmem.ops import CStruct, CTable

LINE_WIDTH = 116


def number(value: Any) -> str:
    """A literal that reads back as exactly the same number. Every field of a struct has 32 bits, whole or real."""
    is_real = isinstance(value, float | np.floating)
    if not (np.isfinite(np.float32(value)) if is_real else -(2**31) <= int(value) < 2**31):
        raise ModelError(f"the number {value} does not fit into 32 bits, and cannot be written as C")
    return f"{_decimal(value)}f" if is_real else _whole(int(value))


def _whole(value: int) -> str:
    """C has no negative literals: the least number of a type cannot be written as the opposite of another."""
    return {-(2**31): "INT32_MIN", -(2**63): "INT64_MIN"}.get(value, str(value))


def _decimal(value: Any) -> str:
    text = str(np.float32(value))
    return text if set(text) & set(".e") else f"{text}.0"


def numbers(data: npt.NDArray[Any]) -> Iterator[str]:
    """The elements of a table, a comma behind each, in lines of even width."""
    flat = data.reshape(-1)
    if flat.dtype.kind == "f":
        return wrapped((f"{_decimal(value)}f," for value in flat), "    ")
    return wrapped((f"{_whole(value)}," for value in flat.tolist()), "    ")


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
    return f"{{{', '.join(map(number, value))}}}" if isinstance(value, tuple) else number(value)

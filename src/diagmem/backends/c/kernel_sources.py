"""The C sources of kernels, put together: what is used and nothing else, each file once, after all that it includes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)


@cache
def source(name: str) -> str:
    """The text of a file that stands beside the op kinds."""
    return (files("diagmem.ops") / name).read_text(encoding="utf-8")


def needed(names: Iterable[str]) -> list[str]:
    """The files and all that they include, what is included first."""
    found: list[str] = []
    for name in names:
        for file in (*needed(_INCLUDE.findall(source(name))), name):
            if file not in found:
                found.append(file)
    return found


def joined(names: Iterable[str]) -> Iterator[str]:
    """The texts of these files and of all that they include, as parts of one file."""
    return (_INCLUDE.sub("", source(name)).replace("\n\n\n", "\n\n") for name in needed(names))

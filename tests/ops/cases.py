"""Random nodes of every kind, as strategies: each kind says itself how to draw a case of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops import OpKind, kinds
from tests.ops import sampling
from tests.ops.sampling import Draw, Sliding, activation, constant, ints, samples_of

__all__ = [
    "SIZES",
    "SMALL",
    "activation",
    "case_modules",
    "constant",
    "ints",
    "kinds_by_file",
    "node_of",
    "nodes_of",
    "windows",
]

SIZES = st.integers(1, 7)
"""A height, width or other axis that the loops walk over."""

SMALL = st.integers(1, 3)
"""A batch, depth, kernel, stride or other number whose first few values show all there is."""


class ShrinkingDraw(Draw):
    """Choices that hypothesis makes, and makes smaller where a test fails."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, end: int) -> int:
        return self._draw(st.integers(low, end - 1))


@st.composite
def nodes_of(draw: st.DrawFn, kind: OpKind, name: str | None = None) -> Node:
    """A node of a kind, of any of its names unless one is given."""
    source = ShrinkingDraw(draw)
    return samples_of(kind).sample(name or source.choice(kind.names), source)


@st.composite
def windows(draw: st.DrawFn) -> Sliding:
    return ShrinkingDraw(draw).window()


def kinds_by_file() -> dict[str, OpKind]:
    """The name of a file of a family -> the kind in it; of one that holds several, that of the class."""
    every = {id(kind): kind for kind in kinds().values()}.values()
    in_file = Counter(type(kind).__module__ for kind in every)
    found = {_class_name(kind) if in_file[type(kind).__module__] > 1 else _file_name(kind): kind for kind in every}
    assert len(found) == len(every), "two kinds have one name"
    return found


def _file_name(kind: OpKind) -> str:
    return type(kind).__module__.rpartition(".")[2]


def _class_name(kind: OpKind) -> str:
    """GatherNdKind: gather_nd."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(kind).__name__.removesuffix("Kind")).lower()


def case_modules() -> dict[str, st.SearchStrategy[Node]]:
    """The name of a file of a family -> nodes of the kind in it."""
    return {name: nodes_of(kind) for name, kind in kinds_by_file().items()}


def node_of(
    name: str,
    attributes: Any,
    inputs: Sequence[Tensor | None],
    out_dtypes: Sequence[DType] = (DType.INT8,),
    out_shapes: Sequence[Shape] | None = None,
) -> Node:
    """A node on its own, by its name; see `sampling.node_of`."""
    return sampling.node_of(kinds()[name], name, attributes, inputs, out_dtypes, out_shapes)

"""Random nodes for the contract test: one module for each file of `ops/`, of the same name, with a strategy `nodes()`.

The modules are discovered, like the kinds themselves. Keep tensors small: the simulation walks every byte.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from diagmem.model.graph import DType, Node, Op, Padding, Shape, Tensor
from diagmem.ops import kinds

SIZES = st.integers(1, 7)
"""A height, width or other axis that the loops walk over."""

SMALL = st.integers(1, 3)
"""A batch, depth, kernel, stride or other number whose first few values show all there is."""

SHAPES = st.lists(st.integers(1, 4), max_size=6).map(tuple).filter(lambda shape: math.prod(shape) <= 200)
"""A tensor of any rank, also a scalar."""

DTYPES = st.sampled_from((DType.INT8, DType.INT16, DType.FLOAT32))


def activation(shape: Sequence[int], dtype: DType = DType.INT8) -> Tensor:
    """An input that lies in RAM."""
    return Tensor(0, "activation", tuple(shape), dtype)


def constant(shape: Sequence[int], dtype: DType = DType.INT8) -> Tensor:
    """Weights: only their shape matters here."""
    return Tensor(0, "constant", tuple(shape), dtype, is_constant=True)


def operand(shape: Sequence[int]) -> st.SearchStrategy[Tensor]:
    """A filter, bias or matrix: a constant as a rule, now and then an input in RAM."""
    return st.sampled_from((constant(shape), constant(shape), activation(shape)))


def ints(values: npt.ArrayLike) -> Tensor:
    """A small integer constant: axes, paddings, a new shape."""
    data = np.asarray(values, dtype=np.int32)
    return Tensor(0, "ints", data.shape, DType.INT32, is_constant=True, data=data)


def node_of(
    name: str,
    attributes: Any,
    inputs: Sequence[Tensor | None],
    out_dtypes: Sequence[DType] = (DType.INT8,),
    out_shapes: Sequence[Shape] | None = None,
) -> Node:
    """A node on its own. Output shapes are inferred where they are not given; tensors are numbered as they come."""
    shapes = out_shapes if out_shapes is not None else kinds()[name].output_shapes(name, attributes, inputs)
    assert shapes is not None, f"{name}: give out_shapes"
    ins = tuple(None if t is None else replace(t, index=i) for i, t in enumerate(inputs))
    dtypes = [*out_dtypes, *[out_dtypes[-1]] * (len(shapes) - len(out_dtypes))]
    outs = tuple(
        Tensor(len(ins) + i, f"out{i}", tuple(shape), dtype)
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    )
    op = Op(0, name, tuple(-1 if t is None else t.index for t in ins), tuple(t.index for t in outs), attributes)
    return Node(op, ins, outs)


class Sliding(NamedTuple):
    """A window's parameters, and the height and width of an image that it fits into."""

    padding: Padding
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    image: tuple[int, int]


@st.composite
def windows(draw: st.DrawFn, dilated: bool = True) -> Sliding:
    """Any padding, kernel, stride and dilation. Dilation with SAME gives windows that read nothing now and then."""
    pairs = st.tuples(SMALL, SMALL)
    padding, kernel, stride = draw(st.sampled_from(Padding)), draw(pairs), draw(pairs)
    dilation = draw(pairs) if dilated else (1, 1)
    least = [(k - 1) * d if padding is Padding.VALID else 0 for k, d in zip(kernel, dilation, strict=True)]
    return Sliding(padding, kernel, stride, dilation, (least[0] + draw(SIZES), least[1] + draw(SIZES)))


def case_modules() -> dict[str, st.SearchStrategy[Node]]:
    """File of `ops/` -> its strategy."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").nodes() for name in names}

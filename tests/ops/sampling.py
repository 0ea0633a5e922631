"""How a case of a kind is drawn: a small random node, for the tests that hold for every kind.

`samples/` says it for each kind, which asks a `Draw` for what it leaves open. Tensors are small, for a simulation walks
through every byte of them.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import ABSENT, DType, Node, Op, Padding, Shape, Tensor
from diagmem.ops import OpKind, kinds
from diagmem.ops.c_call import QUANTISED_OR_FLOAT, TYPES
from diagmem.ops.kind import Array
from diagmem.ops.options import Activation

T = TypeVar("T")

_ACTIVATIONS = (Activation.NONE, Activation.NONE, Activation.RELU, Activation.RELU_N1_TO_1, Activation.RELU6)
_MOST_ELEMS = 200
_MOST_AXES = 6


class Sliding(NamedTuple):
    """A window's parameters, and the height and width of an image that it fits into."""

    padding: Padding
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    image: tuple[int, int]


class Draw(ABC):
    """A source of random choices. All of them come from `integer`."""

    @abstractmethod
    def integer(self, low: int, end: int) -> int:
        """A number in [low, end)."""

    def boolean(self) -> bool:
        return bool(self.integer(0, 2))

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, each as likely as the others."""
        return options[self.integer(0, len(options))]

    def many(self, least: int, end: int, one: Callable[[], T]) -> list[T]:
        """At least `least` and fewer than `end` of what `one` gives."""
        return [one() for _ in range(self.integer(least, end))]

    def permutation(self, items: Sequence[T]) -> list[T]:
        """The items in any order."""
        left = list(items)
        return [left.pop(self.integer(0, len(left))) for _ in items]

    def size(self) -> int:
        """A height, width or other axis that loops walk over."""
        return self.integer(1, 8)

    def small(self) -> int:
        """A batch, depth, kernel, stride or other number whose first few values show all there is."""
        return self.integer(1, 4)

    def shape(self, least_axes: int = 0) -> Shape:
        """The shape of a tensor of any rank, also of a scalar; now and then that of an image."""
        if least_axes <= 4 and self.integer(0, 4) == 0:
            return self.image()
        shape: list[int] = []
        elems = 1
        for _ in range(self.integer(least_axes, _MOST_AXES + 1)):
            shape.append(self.integer(1, min(5, _MOST_ELEMS // elems + 1)))
            elems *= shape[-1]
        return tuple(shape)

    def image(self) -> Shape:
        """Batch, height, width and channels."""
        return self.choice((1, 1, 2)), self.integer(1, 7), self.integer(1, 5), self.integer(1, 7)

    def shrunk(self, shape: Shape) -> Shape:
        """A shape that can be repeated to make `shape`: some axes are 1, some in front are left out."""
        kept = tuple(size if self.boolean() else 1 for size in shape)
        return kept[self.integer(0, len(kept) + 1) if self.boolean() else 0 :]

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.integer(-rank, rank)

    def dtype(self) -> DType:
        return self.choice(TYPES)

    def fused(self) -> Activation:
        """An activation that kernels can fuse."""
        return self.choice(_ACTIVATIONS)

    def numbers(self, dtype: npt.DTypeLike, shape: Sequence[int]) -> npt.NDArray[Any]:
        """Whole numbers over all of a type's range."""
        info = np.iinfo(np.dtype(dtype))
        rng = np.random.default_rng(self.integer(0, 1 << 32))
        return rng.integers(info.min, info.max, tuple(shape), dtype=np.dtype(dtype), endpoint=True)

    def operand(self, shape: Sequence[int]) -> Tensor:
        """A filter, bias or matrix: a constant as a rule, now and then an input in RAM."""
        return self.choice((constant(shape), constant(shape), activation(shape)))

    def pair(self, dtype: DType | None = None) -> list[Tensor]:
        """Two inputs that may be repeated, each along its own axes; one may be constant."""
        shape = self.shape()
        places = self.choice(((activation, activation), (activation, constant), (constant, activation)))
        return [place(self.shrunk(shape), dtype or self.dtype()) for place in places]

    def known(self, values: Sequence[int]) -> Tensor:
        """Axes, sizes or indices: a constant, now and then an input that only a run knows."""
        return ints(values) if self.integer(0, 5) > 0 else activation((len(values),), DType.INT32)

    def window(self, dilated: bool = True) -> Sliding:
        """Any padding, kernel, stride and dilation. Dilation with SAME gives windows that read nothing now and then."""
        kernel, stride = (self.small(), self.small()), (self.small(), self.small())
        dilation = (self.small(), self.small()) if dilated else (1, 1)
        reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
        fits = self.boolean()
        height, width = (self.size() + (beyond if fits else 0) for beyond in reach)
        # A window that is larger than the image needs padding.
        padding = self.choice(tuple(Padding) if fits else (Padding.SAME,))
        return Sliding(padding, kernel, stride, dilation, (height, width))


@dataclass(frozen=True, slots=True)
class Fitting:
    """What a drawn node needs so that a kernel can run it; the tests' `fitted` gives it that.

    `types`: the types of data that kernels take; None: the node is drawn with the right one.
    `data`: the position of the data among the inputs.
    `weights_axis`: the axis of the output channels, where input 1 holds weights and the next one a bias.
    `has_narrow_weights`: these may have 4 bits beside data of 8, and 16, 8 or 4 beside float32.
    `gain`: about how large outputs are for data of size 1; None: they have no scale of their own, but that of the data.
    `fixed`: the output's scale and zero point for data of a type, where TFLite insists on them.
    `scaled`: the types that have a scale.
    `other_types`: a type of data -> that of the other operand, where it differs.
    `draws_output_types`: outputs are drawn with the right type, which may be another than that of the data.
    `is_drawn_whole`: the node is drawn with all that it needs."""

    types: tuple[DType, ...] | None = TYPES
    data: int = 0
    weights_axis: int | None = None
    has_narrow_weights: bool = False
    gain: float | None = None
    fixed: dict[DType, tuple[float, int]] = field(default_factory=dict)
    scaled: tuple[DType, ...] = (DType.INT8, DType.INT16, DType.UINT8)
    other_types: dict[DType, DType] = field(default_factory=dict)
    draws_output_types: bool = False
    is_drawn_whole: bool = False


OPERAND_SIZE = 3.2
"""How large the numbers of a second operand are, about, as `fitted` fills it in."""

WEIGHT_SIZE = 1.28
"""How large weights are, about."""


class Samples:
    """How nodes of a kind are drawn: what its subclass for the kind, or for a kind that this one is based on, says."""

    needs: ClassVar[Fitting] = Fitting()
    """What a drawn node needs so that a kernel can run it."""

    _by_kind: ClassVar[dict[type, type[Samples]]] = {}

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __init_subclass__(cls, of: type | None = None) -> None:
        if of is not None:
            Samples._by_kind[of] = cls

    def sample(self, name: str, draw: Draw) -> Node:
        """A small random node of that name, with all that the operation allows. The tests of all kinds draw from it."""
        raise NotImplementedError

    def fitting(self, node: Node) -> Fitting:
        """What this drawn node needs, where nodes differ in it."""
        return self.needs

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Values for an input of a node that is to run; None where any will do."""
        return None

    @staticmethod
    def of_kind(kind: OpKind) -> Samples:
        import_module("tests.ops.samples")
        known = next((base for base in type(kind).__mro__ if base in Samples._by_kind), None)
        assert known is not None, f"nothing in tests/ops/samples/ says how to draw {type(kind).__name__}"
        return Samples._by_kind[known](kind)


def samples_of(kind: OpKind | str) -> Samples:
    """How nodes of a kind are drawn; it may be given by one of its names."""
    return Samples.of_kind(kinds()[kind] if isinstance(kind, str) else kind)


def weighted_fitting(kind: OpKind, node: Node, axis: int) -> Fitting:
    """What kernels need whose weights have their output channels along `axis`."""
    terms = kind.macs(node) / max(1, node.output.elems)
    has_narrow = node.op.kind != "TRANSPOSE_CONV"
    return Fitting(
        QUANTISED_OR_FLOAT,
        weights_axis=axis,
        has_narrow_weights=has_narrow,
        gain=WEIGHT_SIZE * math.sqrt(max(1, terms)),
    )


def activation(shape: Sequence[int], dtype: DType = DType.INT8) -> Tensor:
    """An input that lies in RAM."""
    return Tensor(0, "activation", tuple(shape), dtype)


def constant(shape: Sequence[int], dtype: DType = DType.INT8) -> Tensor:
    """Weights, of which only the shape is known."""
    return Tensor(0, "constant", tuple(shape), dtype, is_constant=True)


def constant_of(values: npt.NDArray[Any]) -> Tensor:
    """A constant with these values."""
    dtype = DType(values.dtype.name)
    return Tensor(0, "constant", values.shape, dtype, is_constant=True, data=values)


def ints(values: npt.ArrayLike) -> Tensor:
    """A small integer constant: axes, paddings, a new shape."""
    data = np.asarray(values, dtype=np.int32)
    return Tensor(0, "ints", data.shape, DType.INT32, is_constant=True, data=data)


def node_of(
    kind: OpKind,
    name: str,
    attributes: Any,
    inputs: Sequence[Tensor | None],
    out_dtypes: Sequence[DType] = (DType.INT8,),
    out_shapes: Sequence[Shape] | None = None,
) -> Node:
    """A node on its own. Output shapes are inferred where they are not given; tensors are numbered as they come."""
    shapes = out_shapes if out_shapes is not None else kind.output_shapes(name, attributes, inputs)
    if shapes is None:
        raise ValueError(f"{name}: its output shapes depend on values that are not constant; give out_shapes")
    number = itertools.count()
    ins = tuple(None if t is None else replace(t, index=next(number)) for t in inputs)
    dtypes = [*out_dtypes, *[out_dtypes[-1]] * (len(shapes) - len(out_dtypes))]
    outs = tuple(
        Tensor(next(number), f"out{i}", tuple(shape), dtype)
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    )
    op = Op(0, name, tuple(ABSENT if t is None else t.index for t in ins), tuple(t.index for t in outs), attributes)
    return Node(op, ins, outs)


def remembering(kind: OpKind, node: Node) -> Node:
    """A node on its own with what it remembers, as if a file had been read."""
    first = 1 + max(t.index for t in (*node.outputs, node.input(0)))
    added = tuple(replace(t, index=first + n) for n, t in enumerate(kind.own_states(node)))
    op = replace(node.op, inputs=(*node.op.inputs, *(t.index for t in added)))
    return replace(node, op=op, inputs=(*node.inputs, *added))

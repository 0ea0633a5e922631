"""Builds our graph: tensors, operations, and tensors in the layout that a kernel needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.checks import LARGEST_TENSOR_BYTES
from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, DType, Graph, Node, Op, Quantisation, Rounding, Shape, Tensor
from diagmem.ops import kind_of
from diagmem.ops.folding import Allowance, folded
from diagmem.ops.moving.reshape import Reshape

Dims = tuple[int | None, ...]
"""For each axis of a stored tensor, the axis of the file's tensor that it is; None: it has size one."""

MOST_OPS = 50_000
"""Recurrent layers of many steps, unrolled, would be more."""

CHANNELS_LAST: Dims = (0, 2, 3, 1)


@dataclass(frozen=True, slots=True)
class Scale:
    """float32 = scale * (stored - zero_point), for all elements or for each index along `axis`. uint8 values are stored
    128 lower, as int8."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0
    is_unsigned: bool = False

    @property
    def quantisation(self) -> Quantisation:
        rounding = Rounding.ONNX_UNSIGNED if self.is_unsigned else Rounding.ONNX
        return Quantisation(self.scales, self.zero_points, self.axis, rounding)


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor whose values are known, in the file's layout. `stored`: the quantised values and their scale, where the
    file has them."""

    array: npt.NDArray[Any]
    stored: tuple[npt.NDArray[Any], Scale] | None = None

    @property
    def shape(self) -> Shape:
        return self.array.shape


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of `shape` in the file; ours holds its elements with axes as in `dims`. `is_dequantised`: it is float32
    in the file, while ours holds the quantised values."""

    tensor: Tensor
    dims: Dims
    shape: Shape
    is_dequantised: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of more than one element, as they are stored."""
        return tuple(axis for axis in self.dims if axis is not None and self.shape[axis] > 1)

    @property
    def dtype(self) -> DType:
        """As the file sees it."""
        return DType.FLOAT32 if self.is_dequantised else self.tensor.dtype

    def became(self, tensor: Tensor, shape: Shape) -> Stored:
        """The result of an operation that leaves the axes in their places."""
        return Stored(tensor, stored_as(shape, self.dims), shape, self.is_dequantised)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """A tensor of `shape` in the file that is `source` reshaped, which joins axes that are not adjacent in memory.
    Weights can follow that order; for all else the elements are brought into the file's."""

    source: Stored
    shape: Shape

    @property
    def is_dequantised(self) -> bool:
        return self.source.is_dequantised

    @property
    def dtype(self) -> DType:
        return self.source.dtype

    def columns(self) -> npt.NDArray[np.int64] | None:
        """For each element of a stored row, its column in the file's matrix; None if rows differ."""
        rows, columns = self.shape[0], math.prod(self.shape[1:])
        source = self.source
        places = np.arange(math.prod(source.shape)).reshape([n for n in source.shape if n > 1] or [1])
        ranks = {axis: place for place, axis in enumerate(a for a, n in enumerate(source.shape) if n > 1)}
        stored = places.transpose([ranks[axis] for axis in source.order]).reshape(rows, columns) if ranks else places
        first = stored[:1] % columns
        same = (stored == first + columns * np.arange(rows)[:, None]).all()
        return first[0] if same else None


Value = Constant | Stored | Shuffled


def number(value: float) -> Constant:
    return Constant(np.array(value, dtype=np.float32))


def dtype_of(value: Value) -> DType:
    """As the file sees it."""
    return DType(value.array.dtype.name) if isinstance(value, Constant) else value.dtype


def is_integer(value: Value) -> bool:
    return dtype_of(value) not in (DType.FLOAT32, DType.FLOAT16)


def like(value: Value, real: float) -> Constant:
    """A number of the value's type."""
    return Constant(np.array(real, dtype=dtype_of(value).numpy))


def stored_as(shape: Shape, dims: Sequence[int | None]) -> Dims:
    """The same layout without axes of size one."""
    return tuple(None if axis is None or shape[axis] == 1 else axis for axis in dims)


def sizes(shape: Shape, dims: Dims) -> Shape:
    return tuple(1 if axis is None else shape[axis] for axis in dims)


def in_file_order(shape: Shape) -> Dims:
    return stored_as(shape, range(len(shape)))


def transposed(value: Stored, axes: Sequence[int]) -> Stored:
    """The file's axes in another order. No data moves."""
    place = {axis: number for number, axis in enumerate(axes)}
    dims = tuple(None if axis is None else place[axis] for axis in value.dims)
    return replace(value, dims=dims, shape=tuple(value.shape[axis] for axis in axes))


def relabelled(value: Stored, shape: Shape) -> Stored | None:
    """The tensor under a shape that only adds or removes axes of size one; None if it does more."""
    old, new = ([a for a, n in enumerate(s) if n > 1] for s in (value.shape, shape))
    if [value.shape[a] for a in old] != [shape[a] for a in new]:
        return None
    names: dict[int | None, int] = dict(zip(old, new, strict=True))
    return replace(value, dims=tuple(names.get(axis) for axis in value.dims), shape=shape)


def reshaped_order(value: Stored, shape: Shape) -> tuple[int, ...] | None:
    """The axes of the new shape as they are stored; None if reshaping needs a copy."""
    made: dict[int, list[int]] = {}
    inside: set[int] = set()
    order = list(value.order)
    for old, new in _groups(value.shape, shape):
        places = [order.index(axis) for axis in old]
        if places != list(range(places[0], places[0] + len(places))):
            return None
        made[old[0]] = new
        inside |= set(old[1:])
    return tuple(axis for first in order if first not in inside for axis in made[first])


def _groups(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest groups of axes, without those of size one, with equally many elements in both shapes."""
    sides = [[(axis, size) for axis, size in enumerate(shape) if size > 1] for shape in (old, new)]
    places = [0, 0]
    while places[0] < len(sides[0]):
        groups: list[list[int]] = [[], []]
        counts = [1, 1]
        while counts[0] != counts[1] or not groups[0]:
            side = 0 if counts[0] <= counts[1] else 1
            axis, size = sides[side][places[side]]
            groups[side].append(axis)
            counts[side] *= size
            places[side] += 1
        yield groups[0], groups[1]


@dataclass
class Builder:
    """Operations are appended in the order in which they run. `about`: the node that is being read, for messages.
    `shares_constants`: alike ones are one tensor, as loops need it, which use them again and again."""

    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    about: str = ""
    allowance: Allowance = field(default_factory=Allowance)
    shares_constants: bool = False
    _constants: dict[Any, Tensor] = field(default_factory=dict)
    _forms: dict[tuple[int, Dims, Dims], Tensor] = field(default_factory=dict)
    _float32: dict[int, Tensor] = field(default_factory=dict)

    def tensor(self, name: str, shape: Shape, dtype: DType, quantisation: Quantisation | None = None) -> Tensor:
        made = Tensor(len(self.tensors), name, shape, dtype, quantisation)
        if made.size_bytes > LARGEST_TENSOR_BYTES:
            raise ModelError(
                f"{self.about}: shape {list(shape)} takes {made.size_bytes} bytes; the limit is "
                f"{LARGEST_TENSOR_BYTES >> 20} MiB"
            )
        self.tensors.append(made)
        return made

    def take(self, elems: int) -> None:
        """Before so many elements are made from what the file holds."""
        if not self.allowance.take(elems):
            raise ModelError(f"{self.about}: constants of {elems} elements are too large, made from so small a file")

    def constant(
        self, array: npt.NDArray[Any], role: str = "constant", quantisation: Quantisation | None = None
    ) -> Tensor:
        dtype = _DTYPES.get(array.dtype.name)
        if dtype is None:
            raise ModelError(f"{self.about}: constants of type {array.dtype.name} are not supported")
        name = f"op_{len(self.ops)}/{role}"
        data = np.ascontiguousarray(array)
        key = data.shape, dtype, quantisation, sha256(data.tobytes()).digest() if self.shares_constants else b""
        if self.shares_constants and key in self._constants:
            return self._constants[key]
        self.take(array.size)
        made = self._constants[key] = Tensor(
            len(self.tensors), name, data.shape, dtype, quantisation, is_constant=True, data=data
        )
        self.tensors.append(made)
        return made

    def ints(self, values: Any, role: str) -> Tensor:
        return self.constant(np.array(values, dtype=np.int32), role)

    def op(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        attributes: Any = None,
        name: str = "",
        dtype: DType | None = None,
        quantisation: Quantisation | None = None,
    ) -> tuple[Tensor, ...]:
        """Appends an operation; its outputs. Their type is that of the first input in RAM, unless given."""
        known = kind_of(kind)
        if known is None:
            raise ModelError(f"{self.about}: there is no operation {kind}")
        given = known.decode(kind, None) if attributes is None else attributes
        try:
            found = known.output_shapes(kind, given, inputs)
        except ModelError as error:
            raise ModelError(f"{self.about}: {error}") from None
        if found is None:
            raise ModelError(f"{self.about}: the shape of its output cannot be inferred")
        first = next((t for t in inputs if t is not None and not t.is_constant), None) or inputs[0]
        made = dtype or (first.dtype if first is not None else DType.FLOAT32)
        if made is DType.FLOAT32 and kind in known.clamps:
            given = replace(given, activation=given.activation.unlimited)
        names = [name or f"{kind.lower()}_{len(self.ops)}", *(f"{name}_{n}" for n in range(1, len(found)))]
        outputs = tuple(self.tensor(n, s, made, quantisation) for n, s in zip(names, found, strict=True))
        if len(self.ops) >= MOST_OPS:
            raise ModelError(f"{self.about}: with it the model is more than {MOST_OPS} operations")
        indices = tuple(ABSENT if t is None else t.index for t in inputs)
        self.ops.append(Op(len(self.ops), kind, indices, tuple(t.index for t in outputs), given))
        return outputs

    def make(self, kind: str, inputs: Sequence[Tensor | None], attributes: Any = None, **rest: Any) -> Tensor:
        """`op` for one output."""
        return self.op(kind, inputs, attributes, **rest)[0]

    def moved(self, kind: str, inputs: Sequence[Tensor], attributes: Any = None, name: str = "") -> Tensor:
        """`make` for an operation whose output is quantised like its first input."""
        return self.make(kind, inputs, attributes, name=name, quantisation=inputs[0].quantisation)

    def rename(self, tensor: Tensor, name: str) -> Tensor:
        self.tensors[tensor.index] = replace(self.tensors[tensor.index], name=name)
        return self.tensors[tensor.index]

    def float32(self, value: Stored) -> Stored:
        """The value in float32, dequantised if it is stored in integers."""
        if not value.is_dequantised:
            return value
        tensor = self._float32.get(value.tensor.index)
        if tensor is None:
            tensor = self.make("DEQUANTIZE", [value.tensor], dtype=DType.FLOAT32)
            self._float32[value.tensor.index] = tensor
        return replace(value, tensor=tensor, is_dequantised=False)

    def form(self, value: Value, dims: Sequence[int | None], as_stored: bool = False) -> Tensor:
        """The tensor with its axes as in `dims`. `as_stored`: quantised values stay so."""
        wanted = stored_as(value.shape, dims)
        if isinstance(value, Constant):
            return self.constant(self.array(value, wanted))
        if isinstance(value, Shuffled):
            value = self.unshuffled(value)
        value = value if as_stored else self.float32(value)
        value = replace(value, dims=stored_as(value.shape, value.dims))
        if value.dims == wanted:
            return value.tensor
        key = value.tensor.index, value.dims, wanted
        if key not in self._forms:
            self._forms[key] = self._formed(value, wanted)
        return self._forms[key]

    @staticmethod
    def array(value: Constant, wanted: Dims) -> npt.NDArray[Any]:
        """The constant's values with axes as wanted."""
        order = [axis for axis in wanted if axis is not None]
        rest = [axis for axis in range(len(value.shape)) if axis not in order]
        found: npt.NDArray[Any] = value.array.transpose([*rest, *order]).reshape(sizes(value.shape, wanted))
        return found

    def _formed(self, value: Stored, wanted: Dims) -> Tensor:
        shape = sizes(value.shape, wanted)
        order = tuple(axis for axis in wanted if axis is not None)
        tensor, dims = value.tensor, value.dims
        if value.order != order:
            if len(dims) != len(wanted):
                dims = value.order
                tensor = self.reshaped(tensor, sizes(value.shape, dims))
            target = wanted if len(dims) == len(wanted) else order
            units = [place for place, axis in enumerate(dims) if axis is None]
            permutation = [units.pop(0) if axis is None else dims.index(axis) for axis in target]
            tensor = self.make("TRANSPOSE", [tensor, self.ints(permutation, "permutation")])
            tensor = self.quantise(tensor, value.tensor.quantisation)
        return self.reshaped(tensor, shape)

    def quantise(self, tensor: Tensor, quantisation: Quantisation | None) -> Tensor:
        """The tensor with its quantisation, now that it is known."""
        self.tensors[tensor.index] = replace(tensor, quantisation=quantisation)
        return self.tensors[tensor.index]

    def without_sign(self, tensor: Tensor) -> Tensor:
        """Integers as the caller sees them: those that are uint8 in the file are 128 higher."""
        held = self.tensors[tensor.index].quantisation
        if held is None or held.rounding is not Rounding.ONNX_UNSIGNED:
            return tensor
        given = Quantisation(held.scales, tuple(zero + 128 for zero in held.zero_points))
        return self.make("QUANTIZE", [tensor], dtype=DType.UINT8, quantisation=given)

    def reshaped(self, tensor: Tensor, shape: Shape) -> Tensor:
        if tensor.shape == shape:
            return tensor
        made = self.make("RESHAPE", [tensor, self.ints(shape, "shape")], Reshape(new_shape=shape))
        return self.quantise(made, tensor.quantisation)

    def unshuffled(self, value: Shuffled) -> Stored:
        """The reshaped tensor, with its elements in the file's order."""
        source = value.source
        whole = self.form(source, in_file_order(source.shape), as_stored=True)
        dims = in_file_order(value.shape)
        return Stored(self.reshaped(whole, sizes(value.shape, dims)), dims, value.shape, source.is_dequantised)

    def in_ram(self, value: Value) -> Stored:
        """The value as a tensor of ours, even if it is constant. Quantised values stay so."""
        if isinstance(value, Constant):
            dims = in_file_order(value.shape)
            return Stored(self.constant(value.array.reshape(sizes(value.shape, dims))), dims, value.shape)
        return self.unshuffled(value) if isinstance(value, Shuffled) else value

    def by_elements(self, value: Value, change: Callable[[Stored], Stored]) -> Stored | Shuffled:
        """Changes each element by itself, in any layout."""
        if isinstance(value, Shuffled):
            return Shuffled(change(value.source), value.shape)
        return change(self.in_ram(value))

    def reshape(self, value: Value, shape: Shape) -> Value:
        """A value under another shape, without moving data if possible."""
        if isinstance(value, Constant):
            return Constant(value.array.reshape(shape))
        if isinstance(value, Shuffled):
            value = self.unshuffled(value)
        found = relabelled(value, shape)
        if found is not None:
            return found
        order = reshaped_order(value, shape)
        if order is None:
            return Shuffled(value, shape)
        dims: Dims = in_file_order(shape) if list(order) == sorted(order) else order
        return Stored(self.reshaped(value.tensor, sizes(shape, dims)), dims, shape, value.is_dequantised)

    def computed(self, first_op: int, made: Sequence[Value]) -> list[Constant] | None:
        """What is made by the operations from the first one on, which read constants alone and go; None: they are too
        large to be computed, or it is quantised, and they stay."""
        stored = [v for v in made if isinstance(v, Stored) and not (v.is_dequantised or v.tensor.quantisation)]
        known: dict[int, Tensor] = {}
        for op in self.ops[first_op:]:
            inputs = tuple(None if t == ABSENT else known.get(t, self.tensors[t]) for t in op.inputs)
            values = folded(Node(op, inputs, tuple(self.tensors[t] for t in op.outputs)), self.allowance)
            if values is None or len(stored) < len(made):
                return None
            for t, data in zip(op.outputs, values, strict=True):
                known[t] = replace(self.tensors[t], is_constant=True, data=data)
        for t, tensor in known.items():
            self.tensors[t] = tensor
        del self.ops[first_op:]
        found = [(v, np.asarray(self.tensors[v.tensor.index].data), v.order) for v in stored]
        arrays = (a.reshape([v.shape[n] for n in axes]).transpose(np.argsort(axes)) for v, a, axes in found)
        return [Constant(array.reshape(value.shape)) for value, array in zip(stored, arrays, strict=True)]

    def graph(self, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        return Graph(name, tuple(self.tensors), tuple(self.ops), tuple(inputs), tuple(outputs))


_DTYPES = {dtype.value: dtype for dtype in DType if dtype is not DType.INT4}

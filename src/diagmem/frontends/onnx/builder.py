"""Our graph while it is made: tensors, operations, and tensors brought into the form that a kernel wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.layout import (
    Constant,
    Dims,
    Shuffled,
    Stored,
    Value,
    in_file_order,
    relabelled,
    reshaped_order,
    sizes,
    stored_as,
)
from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, DType, Graph, Op, Quantisation, Rounding, Shape, Tensor
from diagmem.ops import kind_of
from diagmem.ops.moving.reshape import Reshape


@dataclass
class Builder:
    """Operations are appended in the order in which they run. `about`: which node of the file is being read, for
    messages."""

    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    about: str = ""
    _forms: dict[tuple[int, Dims, Dims], Tensor] = field(default_factory=dict)
    _reals: dict[int, Tensor] = field(default_factory=dict)

    def tensor(self, name: str, shape: Shape, dtype: DType, quantisation: Quantisation | None = None) -> Tensor:
        made = Tensor(len(self.tensors), name, shape, dtype, quantisation)
        self.tensors.append(made)
        return made

    def constant(
        self, array: npt.NDArray[Any], role: str = "constant", quantisation: Quantisation | None = None
    ) -> Tensor:
        dtype = _DTYPES.get(array.dtype.name)
        if dtype is None:
            raise ModelError(f"{self.about}: constants of type {array.dtype.name} are not supported")
        name = f"op_{len(self.ops)}/{role}"
        data = np.ascontiguousarray(array)
        made = Tensor(len(self.tensors), name, data.shape, dtype, quantisation, is_constant=True, data=data)
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
            raise ModelError(f"{self.about}: the shape of its output cannot be known")
        first = next((t for t in inputs if t is not None and not t.is_constant), None) or inputs[0]
        made = dtype or (first.dtype if first is not None else DType.FLOAT32)
        names = [name or f"{kind.lower()}_{len(self.ops)}", *(f"{name}_{n}" for n in range(1, len(found)))]
        outputs = tuple(self.tensor(n, s, made, quantisation) for n, s in zip(names, found, strict=True))
        indices = tuple(ABSENT if t is None else t.index for t in inputs)
        self.ops.append(Op(len(self.ops), kind, indices, tuple(t.index for t in outputs), given))
        return outputs

    def make(self, kind: str, inputs: Sequence[Tensor | None], attributes: Any = None, **rest: Any) -> Tensor:
        """`op` for one output."""
        return self.op(kind, inputs, attributes, **rest)[0]

    def replace_attributes(self, op: Op, attributes: Any) -> None:
        self.ops[op.index] = replace(op, attributes=attributes)

    def rename(self, tensor: Tensor, name: str) -> Tensor:
        self.tensors[tensor.index] = replace(self.tensors[tensor.index], name=name)
        return self.tensors[tensor.index]

    def real(self, value: Stored) -> Stored:
        """The value as real numbers, if it is one of quantised ones that stand for them."""
        if not value.is_real:
            return value
        tensor = self._reals.get(value.tensor.index)
        if tensor is None:
            tensor = self.make("DEQUANTIZE", [value.tensor], dtype=DType.FLOAT32)
            self._reals[value.tensor.index] = tensor
        return replace(value, tensor=tensor, is_real=False)

    def form(self, value: Value, dims: Sequence[int | None], as_stored: bool = False) -> Tensor:
        """The tensor with its axes as in `dims`. `as_stored`: quantised values stay as they are."""
        wanted = stored_as(value.shape, dims)
        if isinstance(value, Constant):
            return self.constant(self.array(value, wanted))
        if isinstance(value, Shuffled):
            value = self.unshuffled(value)
        value = value if as_stored else self.real(value)
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
            tensor = self.quantised_as(tensor, value.tensor)
        return self.reshaped(tensor, shape)

    def quantised_as(self, tensor: Tensor, source: Tensor) -> Tensor:
        """The tensor, its values quantised as those of another one."""
        return self.quantise(tensor, source.quantisation)

    def quantise(self, tensor: Tensor, quantisation: Quantisation | None) -> Tensor:
        """The tensor, of whose integers it is now known what they stand for."""
        self.tensors[tensor.index] = replace(tensor, quantisation=quantisation)
        return self.tensors[tensor.index]

    def without_sign(self, tensor: Tensor) -> Tensor:
        """Integers as the caller of the model knows them: those that the file has without a sign lie 128 higher."""
        held = self.tensors[tensor.index].quantisation
        if held is None or held.rounding is not Rounding.ONNX_UNSIGNED:
            return tensor
        given = Quantisation(held.scales, tuple(zero + 128 for zero in held.zero_points))
        return self.make("QUANTIZE", [tensor], dtype=DType.UINT8, quantisation=given)

    def reshaped(self, tensor: Tensor, shape: Shape) -> Tensor:
        if tensor.shape == shape:
            return tensor
        made = self.make("RESHAPE", [tensor, self.ints(shape, "shape")], Reshape(new_shape=shape))
        return self.quantised_as(made, tensor)

    def unshuffled(self, value: Shuffled) -> Stored:
        """The reshaped tensor with its elements in the file's order."""
        source = value.source
        whole = self.form(source, in_file_order(source.shape), as_stored=True)
        dims = in_file_order(value.shape)
        return Stored(self.reshaped(whole, sizes(value.shape, dims)), dims, value.shape, source.is_real)

    def reshape(self, value: Value, shape: Shape) -> Value:
        """A value under another shape: no data moves where that can be."""
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
        return Stored(self.reshaped(value.tensor, sizes(shape, dims)), dims, shape, value.is_real)

    def graph(self, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        return Graph(name, tuple(self.tensors), tuple(self.ops), tuple(inputs), tuple(outputs))


_DTYPES = {dtype.value: dtype for dtype in DType if dtype is not DType.INT4}

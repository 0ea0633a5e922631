"""Walks the nodes of an ONNX model in order and builds our graph.

A node whose inputs are all known is computed at once, as in chains that compute shapes or weights; any other is lowered
by the function for its kind in `lowering/`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.builder import CHANNELS_LAST, Builder, Constant, Dims, Stored, Value, sizes, stored_as
from diagmem.frontends.onnx.proto import DEFAULT_DOMAINS, MICROSOFT, TYPES, OnnxModel, OnnxNode, OnnxValue
from diagmem.frontends.onnx.reading import SINCE, modern
from diagmem.model.errors import DiagmemError, ModelError, damaged, one_line
from diagmem.model.graph import DType, Graph, Shape, Tensor
from diagmem.ops.folding import Allowance

OLDEST_OPSET, NEWEST_OPSET = 1, 24

Lowering = Callable[["Importer", OnnxNode], Value | None]
"""A node's first output; None where the lowering has bound the outputs itself."""

SKIPPING = ("LSTM", "GRU", "RNN", "If", "Loop", "Scan")
"""Nodes whose first output need not be used."""

_REQUIRED: Any = object()


@dataclass
class Importer:
    """The state of the walk. `values`: of each name in the file, so far. `looked_at`: the nodes of graphs inside nodes,
    each time that they run."""

    model: OnnxModel
    shapes: Mapping[str, Shape]
    channels_last: bool
    build: Builder = field(default_factory=Builder)
    values: dict[str, Value] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    lowerings: Mapping[str, Lowering] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uses = Counter(value.name for value in self.model.outputs)
        self.readers: dict[str, list[OnnxNode]] = {}
        self._read: dict[int, set[str]] = {}
        self._extra = self.looked_at = 0
        self.expect(self.model.nodes)

    def expect(self, nodes: Sequence[OnnxNode]) -> None:
        """Records what later nodes read."""
        for node in nodes:
            self.uses.update(name for name in node.reads() if name)
            for name in dict.fromkeys(node.inputs):
                self.readers.setdefault(name, []).append(node)

    def graph(self, name: str, lowerings: Mapping[str, Lowering]) -> Graph:
        """The whole model."""
        self.lowerings = lowerings
        for node in self.model.nodes:
            # Of recurrent nodes, the last states may be all that is used.
            if not any(node.outputs) or (not node.outputs[0] and node.kind not in SKIPPING):
                raise damaged(f"{node.label}: it has no output")
        for value in self.model.inputs:
            self._input(value)
        self.build.allowance = Allowance.of(self.model.size_bytes)
        self.values |= {name: Constant(array) for name, array in self.model.constants.items()}
        for node in self.model.nodes:
            self.lower(node)
        for value in self.model.outputs:
            self._output(value)
        if not self.outputs:
            raise ModelError("the graph has no output")
        return self.build.graph(name, [t.index for t in self.inputs], [t.index for t in self.outputs])

    def _input(self, value: OnnxValue) -> None:
        shape, dtype = self._input_shape(value), value.dtype
        if dtype not in INPUT_TYPES:
            raise ModelError(f"input '{one_line(value.name)}': type {dtype} is not supported; export it with another")
        if value.name in self.values:
            raise damaged(f"input '{one_line(value.name)}' is there twice")
        order = self._order(shape)
        tensor = self.build.tensor(value.name, sizes(shape, order), DType(dtype))
        self.inputs.append(tensor)
        self.values[value.name] = Stored(tensor, stored_as(shape, order), shape)

    def _order(self, shape: Shape) -> Dims:
        """In which order the caller has the axes of an input or output."""
        return CHANNELS_LAST if self.channels_last and len(shape) == 4 else tuple(range(len(shape)))

    def _input_shape(self, value: OnnxValue) -> Shape:
        label = f"input '{one_line(value.name)}'"
        if value.name in self.shapes:
            shape = self.shapes[value.name]
            known = value.shape or shape
            if not _fits(known, shape):
                raise ModelError(f"{label}: shape {list(shape)} does not fit {_words(known)}")
            return shape
        if value.shape is None:
            raise ModelError(f"{label}: it has no shape; give one with --shape '{one_line(value.name)}=1x3x96x96'")
        dims = [1 if not isinstance(dim, int) and place == 0 else dim for place, dim in enumerate(value.shape)]
        if any(not isinstance(dim, int) or dim < 0 for dim in dims):
            raise ModelError(
                f"{label}: shape {_words(value.shape)} is not fixed; give it with --shape "
                f"'{one_line(value.name)}=" + "x".join(str(d) if isinstance(d, int) else "N" for d in dims) + "'"
            )
        shape = tuple(int(dim) for dim in dims)
        if 0 in shape or math.prod(shape) > 1 << 31:
            raise ModelError(f"{label}: shape {list(shape)} holds no elements, or too many")
        return shape

    def lower(self, node: OnnxNode) -> None:
        """What a node computes, unless it was fused into another one."""
        if node.number in self.done:
            return
        self.build.about = node.label
        self._read[node.number] = set()
        for name in node.inputs:
            if name and name not in self.values:
                raise damaged(f"{node.label}: no node makes its input '{one_line(name)}'")
        if self.opset(node) < SINCE and node.domain in DEFAULT_DOMAINS:
            node = modern(self, node)
        known = [None if not name else self.values[name] for name in node.inputs]
        made = folded(self, node, known)
        if made is not None:
            for name, array in zip(node.outputs, made, strict=False):
                self.bind(name, Constant(array))
            return
        kind = node.kind if node.domain in DEFAULT_DOMAINS else f"{node.domain}.{node.kind}"
        lowering = self.lowerings.get(kind)
        if lowering is None:
            advice = "" if node.domain in (*DEFAULT_DOMAINS, MICROSOFT) else " (a custom operator)"
            raise ModelError(
                f"{node.label}: operator {one_line(kind)}{advice} of opset {self.opset(node)} is not supported; "
                "replace it by others, or export the model again"
            )
        first_op = len(self.build.ops)
        try:
            value = lowering(self, node)
        except DiagmemError:
            raise
        except DAMAGE as error:
            raise self.refuse(node, f"its inputs or attributes do not fit it ({type(error).__name__})") from error
        if value is not None:
            self.bind(node.outputs[0], value)
        unread = set(node.attributes) - self._read[node.number] - {"name", "doc_string"}
        if unread:
            words = ", ".join(one_line(name) for name in sorted(unread))
            raise ModelError(f"{node.label}: its attribute {words} is unknown")
        if len(self.build.ops) > first_op and all(v is None or isinstance(v, Constant) for v in known):
            # What a node makes of constants is constant.
            names = [name for name in node.outputs if name in self.values]
            constants = self.build.computed(first_op, [self.values[name] for name in names])
            self.values |= zip(names, constants or (), strict=constants is not None)

    def _output(self, value: OnnxValue) -> None:
        found = self.values.get(value.name)
        label = f"output '{one_line(value.name)}'"
        if found is None:
            raise damaged(f"{label} is not made by any node")
        if isinstance(found, Constant):
            raise ModelError(f"{label} is constant: the model computes nothing there")
        self.build.about = label
        declared = value.shape
        if declared is not None and not _fits(declared, found.shape):
            raise ModelError(f"{label}: the file says shape {_words(declared)}, its nodes make {list(found.shape)}")
        order = self._order(found.shape)
        tensor = self.build.reshaped(self.build.form(found, order), sizes(found.shape, order))
        tensor = self.build.without_sign(tensor)
        if tensor.index in {t.index for t in (*self.inputs, *self.outputs)}:
            # An output is a tensor of its own.
            tensor = self.build.make("RESHAPE", [tensor, self.build.ints(tensor.shape, "shape")])
        self.outputs.append(tensor)
        self.build.rename(tensor, value.name)

    # What lowerings use.

    def opset(self, node: OnnxNode) -> int:
        return node.opset or self.model.opset

    def new_number(self) -> int:
        """A number of its own for a node that the file does not have."""
        self._extra += 1
        return -self._extra

    def bind(self, name: str, value: Value) -> None:
        """Gives a name of the file its value."""
        if name in self.values:
            raise damaged(f"{self.build.about}: '{one_line(name)}' is computed twice")
        if name:
            self.values[name] = value

    def given(self, node: OnnxNode, place: int) -> Value | None:
        """An input; None if it is omitted."""
        name = node.inputs[place] if place < len(node.inputs) else ""
        return self.values[name] if name else None

    def input(self, node: OnnxNode, place: int = 0) -> Value:
        found = self.given(node, place)
        if found is None:
            raise damaged(f"{node.label}: input {place} is missing")
        return found

    def array(self, node: OnnxNode, place: int) -> npt.NDArray[Any]:
        """An input that must be known."""
        found = self.input(node, place)
        if not isinstance(found, Constant):
            raise ModelError(
                f"{node.label}: input {place} must be constant; simplify the model, or export it otherwise"
            )
        return found.array

    def optional_array(self, node: OnnxNode, place: int) -> npt.NDArray[Any] | None:
        return None if self.given(node, place) is None else self.array(node, place)

    def stored(self, node: OnnxNode, place: int = 0, as_stored: bool = False) -> Stored:
        """An input in RAM, its axes in any order. A constant becomes a tensor."""
        value = self.build.in_ram(self.input(node, place))
        return value if as_stored else self.build.float32(value)

    def attribute(self, node: OnnxNode, name: str, default: Any = _REQUIRED) -> Any:
        """An attribute, of the default's type."""
        self._read.setdefault(node.number, set()).add(name)
        if name not in node.attributes:
            if default is _REQUIRED:
                raise damaged(f"{node.label}: attribute '{name}' is missing")
            return default
        value = node.attributes[name]
        if isinstance(value, bytes):
            try:
                value = value.decode("utf-8")
            except UnicodeDecodeError:
                raise damaged(f"{node.label}: attribute '{name}' is not UTF-8") from None
        expected = type(default) if default is not _REQUIRED and default is not None else None
        if expected is not None and not isinstance(value, expected):
            raise damaged(f"{node.label}: attribute '{name}' is not of type {expected.__name__}")
        return value

    def axis(self, node: OnnxNode, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise ModelError(f"{node.label}: axis {axis} does not exist in a tensor of {rank} axes")
        return axis % rank

    def axes(self, node: OnnxNode, axes: Sequence[int], rank: int) -> list[int]:
        found = [self.axis(node, int(axis), rank) for axis in axes]
        if len(set(found)) != len(found):
            raise damaged(f"{node.label}: an axis is named twice")
        return found

    def next_only(self, name: str, kinds: Sequence[str]) -> OnnxNode | None:
        """The node that reads a value, if it is of such a kind and nothing else uses the value."""
        readers = self.readers.get(name, [])
        if self.uses[name] == 1 and len(readers) == 1 and readers[0].kind in kinds:
            return readers[0]
        return None

    def refuse(self, node: OnnxNode, why: str) -> ModelError:
        return ModelError(f"{node.label}: {why}")

    def damaged(self, node: OnnxNode, why: str) -> ModelError:
        return damaged(f"{node.label}: {why}")


class Parts:
    """Lowers one node of the file as several simpler ones."""

    def __init__(self, im: Importer, node: OnnxNode) -> None:
        self.im, self.node = im, node

    def attribute(self, name: str, default: Any = _REQUIRED) -> Any:
        return self.im.attribute(self.node, name, default)

    def __call__(self, kind: str, *inputs: str | npt.NDArray[Any] | float, **attributes: Any) -> str:
        """The name of an operator's output, from names, arrays and numbers."""
        name = self._name()
        self._lower(kind, inputs, (name,), attributes)
        return name

    def end(self, kind: str, *inputs: str | npt.NDArray[Any] | float, **attributes: Any) -> None:
        """The last operator: its output is the node's own."""
        self._lower(kind, inputs, self.node.outputs[:1], attributes)

    def _lower(self, kind: str, inputs: Any, outputs: tuple[str, ...], attributes: dict[str, Any]) -> None:
        names = tuple(given if isinstance(given, str) else self._constant(given) for given in inputs)
        given = {name: value.encode() if isinstance(value, str) else value for name, value in attributes.items()}
        number, label = self.im.new_number(), self.node.label
        self.im.lower(OnnxNode(number, kind, "", self.node.name, names, outputs, given, label))

    def name(self, value: Value) -> str:
        """A name for a value."""
        name = self._name()
        self.im.bind(name, value)
        return name

    def _constant(self, value: npt.NDArray[Any] | float) -> str:
        return self.name(Constant(np.asarray(value, np.float32) if isinstance(value, float) else np.asarray(value)))

    def _name(self) -> str:
        return f"{self.node.outputs[0]}/part {-self.im.new_number()}"


def composed(make: Callable[[Parts, str], None]) -> Lowering:
    """The lowering of an operator that others make up. `make` gets the name of its first input."""
    return lambda im, node: make(Parts(im, node), node.inputs[0])


INPUT_TYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")


def _words(shape: Sequence[int | str]) -> str:
    return "[" + ", ".join(str(dim) if isinstance(dim, int) else one_line(dim) or "?" for dim in shape) + "]"


def _fits(declared: Sequence[int | str], shape: Shape) -> bool:
    """Whether a shape agrees with the one that a file declares."""
    return len(declared) == len(shape) and all(
        not isinstance(dim, int) or dim in (size, -1, 0) for dim, size in zip(declared, shape, strict=True)
    )


def integers(values: npt.NDArray[Any]) -> list[int]:
    """A small constant as Python integers."""
    return [int(v) for v in np.asarray(values).reshape(-1)]


Array = npt.NDArray[Any]
Fold = Callable[[OnnxNode, list[Any]], Any]
"""Computes a node's output from the values of its inputs."""

DAMAGE = (ValueError, TypeError, IndexError, AttributeError, OverflowError, ZeroDivisionError)
"""What operands and attributes that do not fit each other raise."""


def folded(im: Importer, node: OnnxNode, inputs: Sequence[Value | None]) -> Sequence[Array] | None:
    """The outputs of a node that depends only on known values; else None."""
    if node.domain not in DEFAULT_DOMAINS:
        return None
    if node.kind in ("Shape", "Size") and inputs and inputs[0] is not None:
        shape, start, end = inputs[0].shape, im.attribute(node, "start", 0), im.attribute(node, "end", None)
        return [np.array(math.prod(shape) if node.kind == "Size" else shape[start:end], dtype=np.int64)]
    fold = FOLDS.get(node.kind)
    if fold is None or not all(value is None or isinstance(value, Constant) for value in inputs):
        return None
    arrays: list[Any] = [value.array if isinstance(value, Constant) else None for value in inputs]
    try:
        im.build.take(max(_elems_of(node, arrays), sum(np.size(a) for a in arrays)))
        with np.errstate(all="ignore"):
            made = np.asarray(fold(node, arrays))
    except ModelError:
        raise
    except DAMAGE as error:
        raise im.refuse(node, f"it cannot be computed ({type(error).__name__})") from None
    for name in node.attributes:
        im.attribute(node, name, None)
    return [made]


def _elems_of(node: OnnxNode, inputs: list[Any]) -> Any:
    """How many elements a node may make, where they can be more than those of its inputs."""
    if node.kind in ("ConstantOfShape", "Tile"):
        sizes = [int(n) for n in inputs[-1].reshape(-1)]
        return math.prod(sizes if node.kind == "ConstantOfShape" else [inputs[0].size, *sizes])
    if node.kind == "Range":
        start, limit, step = (array.reshape(-1)[0].item() for array in inputs)
        return max(0, math.ceil((limit - start) / step))
    if node.kind == "Gather":
        return inputs[1].size * (inputs[0].size // max(1, inputs[0].shape[node.attributes.get("axis", 0)]))
    shapes = [array.shape for array in inputs if array is not None]
    if node.kind == "Expand":
        shapes[1] = tuple(inputs[1].tolist())
    try:
        return math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return 0


def _constant(node: OnnxNode, inputs: list[Any]) -> Any:
    for name in ("value_float", "value_floats", "value_int", "value_ints"):
        if name in node.attributes:
            return np.array(node.attributes[name], dtype="float32" if "float" in name else "int64")
    value = node.attributes.get("value")
    if not isinstance(value, np.ndarray):
        raise ModelError(f"{node.label}: only constants that are dense tensors of numbers are supported")
    return value


def _constant_of_shape(node: OnnxNode, inputs: list[Any]) -> Any:
    value = node.attributes.get("value", np.zeros(1, dtype=np.float32))
    return np.full(inputs[0].tolist(), value.reshape(-1)[0], dtype=value.dtype)


def _range(node: OnnxNode, inputs: list[Any]) -> Any:
    start, limit, step = (array.reshape(-1)[0].item() for array in inputs)
    return np.arange(start, limit, step, dtype=inputs[0].dtype)


def _expand(node: OnnxNode, inputs: list[Any]) -> Any:
    return np.broadcast_to(inputs[0], np.broadcast_shapes(inputs[0].shape, tuple(inputs[1].tolist()))).copy()


def _reshape(node: OnnxNode, inputs: list[Any]) -> Any:
    zero_is_zero = bool(node.attributes.get("allowzero", 0))
    return inputs[0].reshape(new_shape(node, inputs[0].shape, inputs[1].tolist(), zero_is_zero))


def new_shape(node: OnnxNode, old: Sequence[int], wanted: Sequence[int], zero_is_zero: bool) -> tuple[int, ...]:
    """The output shape of a Reshape: 0 copies a size, one -1 is what remains."""
    shape = [int(old[i]) if n == 0 and not zero_is_zero and i < len(old) else int(n) for i, n in enumerate(wanted)]
    if shape.count(-1) > 1 or any(n < -1 for n in shape):
        raise damaged(f"{node.label}: {list(wanted)} is not a shape")
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = math.prod(old) // rest if rest else 0
    if math.prod(shape) != math.prod(old):
        raise damaged(f"{node.label}: {list(old)} cannot become {list(wanted)}")
    return tuple(shape)


def axes_of(node: OnnxNode, inputs: Sequence[Array | None]) -> list[int] | None:
    """Axes: an attribute up to opset 12, then an input."""
    if len(inputs) > 1 and inputs[1] is not None:
        return [int(axis) for axis in inputs[1].reshape(-1)]
    found = node.attributes.get("axes")
    return None if found is None else [int(axis) for axis in found]


def _slice(node: OnnxNode, inputs: list[Any]) -> Any:
    ranges = slices_of(node, inputs[0].shape, inputs)
    return inputs[0][tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) for r in ranges)]


def slices_of(node: OnnxNode, shape: Sequence[int], inputs: Sequence[Array | None]) -> list[range]:
    """The range of each axis that a Slice takes. Its bounds are attributes up to opset 9, then inputs."""
    if len(inputs) > 1:
        parts = [None if len(inputs) <= p or (a := inputs[p]) is None else a.reshape(-1).tolist() for p in (1, 2, 3, 4)]
    else:
        parts = [node.attributes.get(name) for name in ("starts", "ends", "axes")] + [None]
    starts, ends = parts[0] or [], parts[1] or []
    axes = parts[2] if parts[2] is not None else list(range(len(starts)))
    steps = parts[3] if parts[3] is not None else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise damaged(f"{node.label}: its starts, ends, axes and steps are not of one length")
    found = [range(size) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -len(shape) <= axis < len(shape) or step == 0:
            raise damaged(f"{node.label}: axis {axis} or step {step} is not possible")
        bounds = slice(start, end, step).indices(shape[axis])
        found[axis] = range(*bounds)
    return found


def _pointwise(function: Callable[..., Any], typed: bool = True) -> Fold:
    """`typed`: the result is cast to the first input's type."""

    def fold(node: OnnxNode, inputs: list[Any]) -> Any:
        made = np.asarray(function(*inputs))
        return made.astype(inputs[0].dtype) if typed else made

    return fold


_NAMED_AS_IN_NUMPY = ("Abs", "Sqrt", "Exp", "Log", "Floor", "Ceil", "Round", "Reciprocal", "Sin", "Cos")

FOLDS: dict[str, Fold] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "NonZero": lambda n, i: np.array(np.nonzero(i[0]), np.int64),
    "Cast": lambda n, i: i[0].astype(TYPES[n.attributes["to"]]),
    "Expand": _expand,
    "Tile": lambda n, i: np.tile(i[0], i[1].tolist()),
    "Reshape": _reshape,
    "Squeeze": lambda n, i: np.squeeze(i[0], None if (axes := axes_of(n, i)) is None else tuple(axes)),
    "Unsqueeze": lambda n, i: np.expand_dims(i[0], tuple(axes_of(n, i) or ())),
    "Slice": _slice,
    "Gather": lambda n, i: np.take(i[0], i[1], axis=n.attributes.get("axis", 0)),
    "Concat": lambda n, i: np.concatenate(i, axis=n.attributes.get("axis", 1)),
    "Transpose": lambda n, i: np.transpose(i[0], n.attributes.get("perm")),
    "Identity": lambda n, i: i[0],
    "Add": _pointwise(np.add),
    "Sub": _pointwise(np.subtract),
    "Mul": _pointwise(np.multiply),
    "Pow": _pointwise(np.power),
    **{kind: _pointwise(getattr(np, kind.lower())) for kind in _NAMED_AS_IN_NUMPY},
    **{kind: _pointwise(getattr(np, kind.lower()), typed=False) for kind in ("Equal", "Greater", "Less", "Where")},
}

"""Walks the nodes of an ONNX model in order and writes our graph down.

A node whose inputs are all known is computed on the spot (`folding`); any other one is lowered by the function that
its kind has in `lowering/`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.builder import CHANNELS_LAST, Builder, Constant, Dims, Stored, Value, sizes, stored_as
from diagmem.frontends.onnx.folding import DAMAGE, folded
from diagmem.frontends.onnx.proto import DEFAULT_DOMAINS, MICROSOFT, OnnxModel, OnnxNode, OnnxValue, Subgraph
from diagmem.model.errors import DiagmemError, ModelError, damaged, one_line
from diagmem.model.graph import DType, Graph, Shape, Tensor

OLDEST_OPSET, NEWEST_OPSET = 7, 24

Lowering = Callable[["Importer", OnnxNode], Value | None]
"""What a node makes; None where the lowering has bound its outputs itself."""

_REQUIRED: Any = object()


@dataclass
class Importer:
    """The state of the walk. `values`: what each name of the file stands for by now."""

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
        self._extra = 0
        self.expect(self.model.nodes)

    def expect(self, nodes: Sequence[OnnxNode]) -> None:
        """Notes what nodes that come later read."""
        for node in nodes:
            self.uses.update(name for name in node.inputs if name)
            for name in dict.fromkeys(node.inputs):
                self.readers.setdefault(name, []).append(node)
            for value in node.attributes.values():
                if isinstance(value, Subgraph):
                    self.uses.update(value.names())

    def graph(self, name: str, lowerings: Mapping[str, Lowering]) -> Graph:
        """The whole model."""
        self.lowerings = lowerings
        for node in self.model.nodes:
            if not any(node.outputs) or (not node.outputs[0] and node.kind not in RECURRENT):
                raise damaged(f"{node.label}: it has no output")
        for value in self.model.inputs:
            self._input(value)
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
        """What a node computes, unless another one has taken it in."""
        if node.number in self.done:
            return
        self.build.about = node.label
        self._read[node.number] = set()
        for name in node.inputs:
            if name and name not in self.values:
                raise damaged(f"{node.label}: input '{one_line(name)}' is not made before it")
        if any(isinstance(value, Subgraph) for value in node.attributes.values()):
            inline_branch(self, node)
            return
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
                f"{node.label}: operator {one_line(kind)}{advice} of opset {self.model.opset} is not supported; "
                "express it by others, or export the model again"
            )
        try:
            value = lowering(self, node)
        except DiagmemError:
            raise
        except DAMAGE as error:
            raise damaged(f"{node.label}: its inputs or attributes do not fit it ({type(error).__name__})") from error
        if value is not None:
            self.bind(node.outputs[0], value)
        unread = set(node.attributes) - self._read[node.number] - {"name", "doc_string"}
        if unread:
            words = ", ".join(one_line(name) for name in sorted(unread))
            raise ModelError(f"{node.label}: its attribute {words} is not understood")

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

    def new_number(self) -> int:
        """Of a node that the file does not have: no other node has it."""
        self._extra += 1
        return -self._extra

    def bind(self, name: str, value: Value) -> None:
        """What a name of the file stands for from now on."""
        if name in self.values:
            raise damaged(f"{self.build.about}: '{one_line(name)}' is made twice")
        if name:
            self.values[name] = value

    def given(self, node: OnnxNode, place: int) -> Value | None:
        """An input, None if it is left out."""
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
        """An input in RAM, its axes in any order. A constant becomes a tensor too."""
        value = self.build.in_ram(self.input(node, place))
        return value if as_stored else self.build.float32(value)

    def attribute(self, node: OnnxNode, name: str, default: Any = _REQUIRED) -> Any:
        """An attribute of the type that the default has."""
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
        """The one node that reads a value, if it is of such a kind and nobody else wants the value."""
        readers = self.readers.get(name, [])
        if self.uses[name] == 1 and len(readers) == 1 and readers[0].kind in kinds:
            return readers[0]
        return None

    def refuse(self, node: OnnxNode, why: str) -> ModelError:
        return ModelError(f"{node.label}: {why}")

    def damaged(self, node: OnnxNode, why: str) -> ModelError:
        return damaged(f"{node.label}: {why}")


def inline_branch(im: Importer, node: OnnxNode) -> None:
    """An If whose condition is known: the nodes of its branch stand in its place."""
    condition = im.given(node, 0) if node.kind == "If" else None
    if not isinstance(condition, Constant) or condition.array.size != 1:
        raise ModelError(
            f"{node.label}: loops, and branches that are chosen at run time, are not supported; simplify the model so "
            "that none is left"
        )
    branch = node.attributes.get("then_branch" if condition.array.reshape(-1)[0] else "else_branch")
    graph = branch.graph if isinstance(branch, Subgraph) else None
    if graph is None or graph.inputs or len(graph.outputs) != len(node.outputs):
        raise damaged(f"{node.label}: its branch is missing, or has inputs or other outputs")
    for name, array in graph.constants.items():
        im.bind(name, Constant(array))
    inner = [replace(n, number=im.new_number(), stands_for=f"{node.label}, {n.label}") for n in graph.nodes]
    ends = [
        OnnxNode(im.new_number(), "Identity", "", "", (value.name,), (name,), {}, node.label)
        for value, name in zip(graph.outputs, node.outputs, strict=True)
        if name
    ]
    im.expect([*inner, *ends])
    for each in (*inner, *ends):
        im.lower(each)


class Parts:
    """Lowers one node of the file as several simpler ones, one after the other."""

    def __init__(self, im: Importer, node: OnnxNode) -> None:
        self.im, self.node = im, node

    def attribute(self, name: str, default: Any = _REQUIRED) -> Any:
        return self.im.attribute(self.node, name, default)

    def __call__(self, kind: str, *inputs: str | npt.NDArray[Any] | float, **attributes: Any) -> str:
        """The name of what an operator makes of names, arrays and numbers."""
        name = self._name()
        self._lower(kind, inputs, (name,), attributes)
        return name

    def end(self, kind: str, *inputs: str | npt.NDArray[Any] | float, **attributes: Any) -> None:
        """The operator that makes the node's own output."""
        self._lower(kind, inputs, self.node.outputs[:1], attributes)

    def _lower(self, kind: str, inputs: Any, outputs: tuple[str, ...], attributes: dict[str, Any]) -> None:
        names = tuple(given if isinstance(given, str) else self._constant(given) for given in inputs)
        given = {name: value.encode() if isinstance(value, str) else value for name, value in attributes.items()}
        number, label = self.im.new_number(), self.node.label
        self.im.lower(OnnxNode(number, kind, "", self.node.name, names, outputs, given, label))

    def _constant(self, value: npt.NDArray[Any] | float) -> str:
        name = self._name()
        self.im.bind(name, Constant(np.asarray(value, np.float32) if isinstance(value, float) else np.asarray(value)))
        return name

    def _name(self) -> str:
        return f"{self.node.outputs[0]}/part {-self.im.new_number()}"


def composed(make: Callable[[Parts, str], None]) -> Lowering:
    """The lowering of an operator that is made of others, from the name of its first input."""
    return lambda im, node: make(Parts(im, node), node.inputs[0])


RECURRENT = ("LSTM", "GRU", "RNN")
"""Operators whose first output need not have a name: their last states may be all that is wanted."""

INPUT_TYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")


def _words(shape: Sequence[int | str]) -> str:
    return "[" + ", ".join(str(dim) if isinstance(dim, int) else one_line(dim) or "?" for dim in shape) + "]"


def _fits(declared: Sequence[int | str], shape: Shape) -> bool:
    """Whether a shape may be the one that a file declares."""
    return len(declared) == len(shape) and all(
        not isinstance(dim, int) or dim in (size, -1, 0) for dim, size in zip(declared, shape, strict=True)
    )


def integers(values: npt.NDArray[Any]) -> list[int]:
    """A small constant of whole numbers."""
    return [int(v) for v in np.asarray(values).reshape(-1)]

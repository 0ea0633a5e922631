"""Reads a model: functions that the file defines are replaced by what they consist of, nodes are sorted, and those of
opsets 1 to 6 get the form that they have had since."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagmem.frontends.onnx.proto import (
    MOST_DEPTH,
    MOST_NODES,
    TYPES,
    Function,
    Given,
    OnnxModel,
    OnnxNode,
    Subgraph,
    read_parts,
)
from diagmem.model.errors import ModelError, damaged

if TYPE_CHECKING:
    from diagmem.frontends.onnx.importer import Importer

Functions = Mapping[tuple[str, str, str], Function]


def read_model(content: bytes, directory: Path | None) -> OnnxModel:
    """The model in a file's bytes. `directory`: where files that it refers to may be; None: nowhere."""
    return _arranged(*read_parts(content, directory), count(MOST_NODES))


def _arranged(model: OnnxModel, functions: Functions, numbers: Iterator[int]) -> OnnxModel:
    """The model, and graphs inside its nodes, without calls of functions, nodes sorted. `numbers`: for new nodes."""
    nodes = []
    for node in _inlined(model.nodes, functions, numbers, 0):
        inner = {
            name: Subgraph(_arranged(value.graph, functions, numbers))
            for name, value in node.attributes.items()
            if isinstance(value, Subgraph) and value.graph is not None
        }
        nodes.append(replace(node, attributes={**node.attributes, **inner}) if inner else node)
    return replace(model, nodes=_sorted(nodes, {"", *model.constants, *(v.name for v in model.inputs)}))


def _sorted(nodes: Sequence[OnnxNode], known: Collection[str]) -> tuple[OnnxNode, ...]:
    """Each behind those that make its inputs, otherwise as in the file."""
    makers = {name: place for place, node in reversed(list(enumerate(nodes))) for name in node.outputs}
    waits = [{makers[name] for name in node.reads() if name in makers and name not in known} for node in nodes]
    readers: dict[int, list[int]] = {}
    for place, needed in enumerate(waits):
        for maker in needed:
            readers.setdefault(maker, []).append(place)
    ready = [place for place, needed in enumerate(waits) if not needed]
    found = []
    while ready:
        place = heapq.heappop(ready)
        found.append(nodes[place])
        for reader in readers.get(place, ()):
            waits[reader].remove(place)
            if not waits[reader]:
                heapq.heappush(ready, reader)
    if len(found) < len(nodes):
        label = next(node.label for node, needed in zip(nodes, waits, strict=True) if needed)
        raise damaged(f"{label}: it is in a cycle of nodes that wait for each other, or behind one")
    return tuple(found)


def _inlined(nodes: Sequence[OnnxNode], functions: Functions, numbers: Iterator[int], depth: int) -> Iterator[OnnxNode]:
    for node in nodes:
        function = functions.get((node.domain, node.kind, node.overload))
        if function is None:
            yield node
        elif depth > MOST_DEPTH:
            raise ModelError(f"{node.label}: functions that call each other more than {MOST_DEPTH} deep")
        else:
            yield from _inlined(_body(node, function, numbers), functions, numbers, depth + 1)


def _body(call: OnnxNode, function: Function, numbers: Iterator[int]) -> list[OnnxNode]:
    """The nodes of a function as one call has them."""
    if len(call.inputs) > len(function.inputs) or len(call.outputs) > len(function.outputs):
        raise damaged(f"{call.label}: it has more inputs or outputs than the function that it calls")
    own, given = f"{next(numbers)}/", {**function.defaults, **call.attributes}
    outputs = {inner: outer for inner, outer in zip(function.outputs, call.outputs, strict=False) if outer}
    names = {**dict.fromkeys(("", *function.inputs), ""), **dict(zip(function.inputs, call.inputs, strict=False))}
    names |= outputs
    found = []
    for bare in function.nodes:
        node = replace(bare, number=next(numbers), stands_for=f"{call.label}, {bare.label}", opset=function.opset)
        found.append(_renamed(node, lambda name: names.get(name, own + name), given))
        if found[-1].number > 2 * MOST_NODES:
            raise ModelError(f"{call.label}: with the nodes of functions the graph has more than {MOST_NODES}")
    return found


def _renamed(node: OnnxNode, name_of: Callable[[str], str], given: Mapping[str, object]) -> OnnxNode:
    """A function's node with other names, and with the call's attributes where it refers to them."""
    attributes = {
        name: given.get(value.name, value) if isinstance(value, Given) else _renamed_graph(value, name_of, given)
        for name, value in node.attributes.items()
    }
    attributes = {name: value for name, value in attributes.items() if not isinstance(value, Given)}
    inputs, outputs = (tuple(map(name_of, names)) for names in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs, attributes=attributes)


def _renamed_graph(value: object, name_of: Callable[[str], str], given: Mapping[str, object]) -> object:
    if not isinstance(value, Subgraph) or value.graph is None:
        return value
    graph = value.graph
    inputs, outputs = (
        tuple(replace(each, name=name_of(each.name)) for each in values) for values in (graph.inputs, graph.outputs)
    )
    nodes = tuple(_renamed(node, name_of, given) for node in graph.nodes)
    constants = {name_of(name): array for name, array in graph.constants.items()}
    return Subgraph(replace(graph, inputs=inputs, outputs=outputs, nodes=nodes, constants=constants))


SINCE = 7
"""The opset from which on operands are broadcast as in numpy."""

_BROADCAST = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
_GONE = ("consumed_inputs", "broadcast", "output_sequence")
"""Attributes that say nothing today, or what shapes say."""
_SELU = {"alpha": 1.6732, "gamma": 1.0507}


def modern(im: Importer, node: OnnxNode) -> OnnxNode:
    """The node in its newer form."""
    given: dict[str, Any] = {name: value for name, value in node.attributes.items() if name not in _GONE}
    axis = given.pop("axis", None) if node.kind in _BROADCAST else 1 if node.kind == "PRelu" else None
    if node.kind == "Pad" and "paddings" in given:
        given["pads"] = given.pop("paddings")
    elif node.kind == "Upsample" and "height_scale" in given:
        given["scales"] = [1.0, 1.0, given.pop("height_scale"), given.pop("width_scale", 1.0)]
    elif node.kind == "Cast" and isinstance(given.get("to"), bytes):
        numbers = {name.replace("float32", "float").replace("float64", "double"): n for n, name in TYPES.items()}
        given["to"] = numbers.get(given["to"].decode("ascii", "replace").lower(), 0)
    elif node.kind == "Selu":
        given = {**_SELU, **given}
    inputs = node.inputs if axis is None else (node.inputs[0], _at_axis(im, node, axis))
    return replace(node, attributes=given, inputs=inputs)


def _at_axis(im: Importer, node: OnnxNode, axis: int) -> str:
    """The second operand, which has the axes of the first one from `axis` on, with one axis for each after those."""
    first, second = im.input(node, 0), im.input(node, 1)
    rank, own = len(first.shape), len(second.shape)
    rest = rank - (axis % rank if rank else 0) - own
    if rest <= 0 or not own:
        return node.inputs[1]
    name = f"{node.inputs[1]} of {node.label}"
    im.bind(name, im.build.reshape(second, (*second.shape, *[1] * rest)))
    return name

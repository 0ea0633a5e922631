"""If, Loop and Scan: what they run takes their place. Which branch is taken, and how often a loop runs, must be known
before the model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from diagmem.frontends.onnx.builder import Constant, Value
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts
from diagmem.frontends.onnx.proto import OnnxModel, OnnxNode, Subgraph

MOST_OPS = 10_000
"""Of a graph with loops, and nodes that are looked at in one loop."""

ADVICE = "depends on the model's inputs, so it cannot be planned; simplify the model, or export it with fixed shapes"


def branch(im: Importer, node: OnnxNode) -> None:
    """An If with a known condition: the nodes of its branch replace it."""
    condition = im.input(node)
    if not isinstance(condition, Constant) or condition.array.size != 1:
        raise im.refuse(node, f"a branch is chosen at run time: which one {ADVICE}")
    graphs = [_graph(im, node, name) for name in ("then_branch", "else_branch")]
    body = _Body(im, node, graphs[0 if condition.array.reshape(-1)[0] else 1])
    _bind(im, node, body.run(()))


def loop(im: Importer, node: OnnxNode) -> None:
    """Inputs: how often it runs at the most, whether it runs at all, and what it carries on from run to run."""
    most, goes_on = im.given(node, 0), im.given(node, 1)
    body = _Body(im, node, _graph(im, node, "body"))
    states = [im.input(node, place) for place in range(2, len(node.inputs))]
    made: list[list[Value]] = []
    while most is None or len(made) < _number(im, node, most):
        if goes_on is not None and not _number(im, node, goes_on):
            break
        given = Constant(np.array(len(made), np.int64)), goes_on or Constant(np.array(True)), *states
        goes_on, *found = body.run(given)
        states, entries = found[: len(states)], found[len(states) :]
        made.append(entries)
    _bind(im, node, [*states, *_stacked(im, node, made, body.count - 1 - len(states))])


def scan(im: Importer, node: OnnxNode) -> None:
    """Inputs: what it carries on from run to run, and tensors of which a run gets the next part along an axis."""
    if im.model.opset < 9:
        raise im.refuse(node, "Scan of opset 8 is not supported; export with a newer opset")
    scanned = range(len(node.inputs) - im.attribute(node, "num_scan_inputs"), len(node.inputs))
    axes, backward = (im.attribute(node, f"scan_input_{name}", [0] * len(scanned)) for name in ("axes", "directions"))
    body, parts = _Body(im, node, _graph(im, node, "body")), Parts(im, node)
    shapes = [im.input(node, place).shape for place in scanned]
    axes = [im.axis(node, axis, len(shape)) for axis, shape in zip(axes, shapes, strict=True)]
    counts = {shape[axis] for axis, shape in zip(axes, shapes, strict=True)}
    if len(counts) != 1 or len(scanned) != len(backward):
        raise im.damaged(node, "its inputs differ in length")
    states = [im.input(node, place) for place in range(scanned.start)]
    made: list[list[Value]] = []
    for run in range(count := counts.pop()):
        places = [count - 1 - run if is_backward else run for is_backward in backward]
        taken = zip((node.inputs[place] for place in scanned), places, axes, strict=True)
        names = [parts("Gather", name, np.array(place, np.int64), axis=axis) for name, place, axis in taken]
        found = body.run((*states, *(im.values[name] for name in names)))
        states, entries = found[: len(states)], found[len(states) :]
        made.append(entries)
    _bind(im, node, [*states, *_stacked(im, node, made, body.count - len(states))])


def _graph(im: Importer, node: OnnxNode, name: str) -> OnnxModel:
    found = im.attribute(node, name)
    if not isinstance(found, Subgraph) or found.graph is None:
        raise im.damaged(node, f"its {name} is no graph")
    return found.graph


def _number(im: Importer, node: OnnxNode, value: Value) -> int:
    if not isinstance(value, Constant) or value.array.size != 1:
        raise im.refuse(node, f"how often it runs {ADVICE}")
    return int(value.array.reshape(-1)[0])


def _bind(im: Importer, node: OnnxNode, found: Sequence[Value]) -> None:
    if len(found) != len(node.outputs):
        raise im.damaged(node, f"it has {len(node.outputs)} outputs, its graph makes {len(found)}")
    for name, value in zip(node.outputs, found, strict=True):
        im.bind(name, value)


def _stacked(im: Importer, node: OnnxNode, made: Sequence[Sequence[Value]], count: int) -> list[Value]:
    """What runs have made, one tensor for each output, along a new axis."""
    names = node.outputs[len(node.outputs) - count :] if count > 0 else ()
    defaults = [0] * len(names)
    axes, backward = (im.attribute(node, f"scan_output_{name}", defaults) for name in ("axes", "directions"))
    if not made and names:
        raise im.refuse(node, "it never runs, so what it would collect is empty")
    parts, found = Parts(im, node), list[Value]()
    for entries, axis, is_backward in zip(zip(*made, strict=True), axes, backward, strict=True):
        axis = im.axis(node, axis, len(entries[0].shape) + 1)
        rows = [parts("Unsqueeze", parts.name(entry), np.array([axis])) for entry in entries]
        found.append(im.values[parts("Concat", *(reversed(rows) if is_backward else rows), axis=axis)])
    return found


class _Body:
    """A graph inside a node, which is lowered each time that it runs. What it names is gone after that."""

    def __init__(self, im: Importer, node: OnnxNode, graph: OnnxModel) -> None:
        self.im, self.node, self.graph = im, node, graph
        self.count = len(graph.outputs)
        self.nodes = [replace(n, number=im.new_number(), stands_for=f"{node.label}, {n.label}") for n in graph.nodes]
        im.expect(self.nodes)
        im.uses.update(value.name for value in graph.outputs)

    def run(self, given: Sequence[Value]) -> list[Value]:
        """Its outputs."""
        im, graph = self.im, self.graph
        im.looked_at += 1 + len(self.nodes)
        im.build.shares_constants = True
        if max(len(im.build.ops), im.looked_at // 10) > MOST_OPS:
            raise im.refuse(self.node, f"unrolled, it has more than {MOST_OPS} operations; export it with fewer steps")
        if len(graph.inputs) != len(given):
            raise im.damaged(self.node, f"its graph takes {len(graph.inputs)} inputs, and gets {len(given)}")
        before = len(im.values)
        for name, value in (*graph.constants.items(), *zip((v.name for v in graph.inputs), given, strict=True)):
            im.bind(name, Constant(value) if isinstance(value, np.ndarray) else value)
        for node in self.nodes:
            im.lower(node)
        missing = [value.name for value in graph.outputs if value.name not in im.values]
        if missing:
            raise im.damaged(self.node, f"its graph does not make '{missing[0][:80]}'")
        found = [im.values[value.name] for value in graph.outputs]
        while len(im.values) > before:
            im.values.popitem()
        im.done -= {node.number for node in self.nodes}
        return found


LOWERINGS: Mapping[str, Lowering] = {"If": branch, "Loop": loop, "Scan": scan}

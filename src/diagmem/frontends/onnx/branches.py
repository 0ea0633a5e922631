"""Nodes that stand for others: the branch that is taken of an If, and operators that are made of simpler ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.layout import Constant
from diagmem.frontends.onnx.proto import OnnxModel, OnnxNode, Subgraph
from diagmem.model.errors import ModelError

if TYPE_CHECKING:
    from diagmem.frontends.onnx.importer import Importer


def inline_branch(im: Importer, node: OnnxNode) -> None:
    """An If whose condition is known: the nodes of its branch stand in its place."""
    condition = im.given(node, 0) if node.kind == "If" else None
    if not isinstance(condition, Constant) or condition.array.size != 1:
        raise ModelError(
            f"{node.label}: loops, and branches that are chosen at run time, are not supported; simplify the model so "
            "that none is left"
        )
    branch = node.attributes.get("then_branch" if condition.array.reshape(-1)[0] else "else_branch")
    if not isinstance(branch, Subgraph) or branch.graph is None or branch.graph.inputs:
        raise ModelError(f"{node.label}: its branch is missing, or has inputs; the file is damaged")
    _inline(im, node, branch.graph)


def _inline(im: Importer, node: OnnxNode, branch: OnnxModel) -> None:
    if len(branch.outputs) != len(node.outputs):
        raise ModelError(f"{node.label}: its branch does not have its outputs; the file is damaged")
    for name, array in branch.constants.items():
        im.bind(name, Constant(array))
    ends = [
        OnnxNode(0, "Identity", "", "", (value.name,), (name,), {})
        for value, name in zip(branch.outputs, node.outputs, strict=True)
        if name
    ]
    nodes = [replace(each, number=im.new_number(), stands_for=_within(node, each)) for each in (*branch.nodes, *ends)]
    im.expect(nodes)
    for each in nodes:
        im.lower(each)


def _within(node: OnnxNode, inner: OnnxNode) -> str:
    return f"{node.label}, {inner.label}" if inner.kind != "Identity" else node.label


class Parts:
    """Lowers one node of the file as several simpler ones, one after the other."""

    def __init__(self, im: Importer, node: OnnxNode) -> None:
        self.im, self.node = im, node

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

"""Ops whose results nobody looks at."""

from __future__ import annotations

from diagmem.model.graph import Graph, Node
from diagmem.transforms._editing import Choice, edited


def drop_dead(graph: Graph, choice: Choice) -> Graph:
    """An op stays if an output of it is wanted by the caller or by an op that stays, or if it does something else: it
    has no outputs, or touches a variable."""
    wanted = set(graph.outputs)
    dead = []
    for node in reversed(graph.nodes):
        outputs = {member for t in node.op.outputs for member in graph.sharing.get(t, (t,))}
        if has_effect(node) or wanted & outputs or not choice(node.op):
            wanted.update(node.op.inputs)
        else:
            dead.append(node.op.index)
    return edited(graph, without=dead) if dead else graph


def has_effect(node: Node) -> bool:
    """Whether it does more than to make its outputs from its inputs."""
    return not node.outputs or any(t is not None and t.is_variable for t in (*node.inputs, *node.outputs))

"""One program with a model for every kind of operation in every type, and networks: what compilers are tried on."""

from __future__ import annotations

from functools import cache

from diagmem.backends.c.program import Program
from diagmem.model.errors import DiagmemError
from diagmem.model.graph import Graph, Node
from diagmem.ops import kinds
from diagmem.planning import planner
from diagmem.planning.options import Options
from tests.ops.drawing import CASES, drawn
from tests.row_networks import image_net, line_net, side_by_side
from tests.tflite_files import graph_of

WAYS = (Options(skip="all"), Options(skip="all", schedule="rows", recompute=2.0))
"""How networks are planned: every tensor has a place of its own."""


@cache
def everything(of_each: int, networks: int) -> Program:
    """`of_each`: nodes of each kind and type. `networks`: random ones, planned whole and by rows."""
    graphs = [(graph_of(node), Options(skip="all")) for node in _nodes(of_each)]
    graphs += [
        (image_net(seed) if seed % 3 else line_net(seed), options) for seed in range(networks) for options in WAYS
    ]
    return side_by_side([program for program in (_program(*given) for given in graphs) if program is not None])


def _nodes(of_each: int) -> list[Node]:
    found: dict[tuple[str, object], list[Node]] = {}
    for case in CASES:
        for node in drawn(case, 2 * of_each):
            if not kinds()[node.op.kind].states(node):
                found.setdefault((node.op.kind, node.output.dtype), []).append(node)
    return [node for nodes in found.values() for node in nodes[:of_each]]


def _program(graph: Graph, options: Options) -> Program | None:
    """None where there is nothing to run: all is known before the run, or no input is left."""
    try:
        return Program.of(planner.planned(graph, options))
    except DiagmemError:
        return None

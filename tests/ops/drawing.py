"""Random nodes that kernels can run, for each file of `ops/`."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, assume, given, settings

from diagmem.errors import ModelError
from diagmem.model.graph import Node
from diagmem.ops import Unsupported, kinds
from tests.ops.cases import case_modules
from tests.ops.runnable import runnable

CASES = case_modules()

WITHOUT_KERNEL = {"LOG", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "LOGICAL_NOT", "L2_POOL_2D"}
"""Kinds that can be planned but not run."""


def names_of(case: str) -> set[str]:
    """The kinds that a file has kernels for."""
    return {n for n, kind in kinds().items() if type(kind).__module__.endswith(f".{case}")} - WITHOUT_KERNEL


def drawn(case: str, count: int) -> list[Node]:
    """About so many nodes for each kind and some more, all at once: one program is compiled for all."""
    found: list[Node] = []

    @settings(
        max_examples=6 * count + count * len(names_of(case)),
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(CASES[case])
    def draw(node: Node) -> None:
        assume(node.output.elems > 3 or len(found) % 8 == 0)
        found.append(runnable(node, len(found)))

    draw()
    return [node for node in found if is_supported(node)]


def is_supported(node: Node) -> bool:
    try:
        kinds()[node.op.kind].c_call(node)
    except (Unsupported, ModelError):
        return False
    return True

"""The paper's own procedure (sections II-D and IV), as far as its figures tell it.

Only intermediate tensors are counted, in the order in which the model's file creates them. Convolutions and poolings
overlap, nothing else does. The sequential models are placed by a plain heap from the last tensor to the first, one
tensor moved to the end; the connected ones by the heap of section IV.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from diagmem.model.graph import Graph, Node
from diagmem.ops import kind_of
from diagmem.ops.orders import Order
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import Footprint, SeparationRule, footprint
from diagmem.planning.needs.problem import Problem
from diagmem.planning.options import Options
from diagmem.planning.order.search import file_order
from diagmem.planning.place.fit import Offsets
from diagmem.planning.place.local_search import modified_heap, reordered_heap
from diagmem.planning.plan import Plan

OVERLAPPED = ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")
EXACT, ANALYTICAL = "exact", "analytical"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """`method`: how O_s was computed for `optimised`."""

    original: Plan
    optimised: Plan
    method: str


def reproduce(graph: Graph, is_sequential: bool) -> dict[str, Reproduction]:
    """The two figures of a row of Table III, by the method that O_s comes from."""
    if is_sequential:
        original = _placed(_apart(graph), reordered_heap)
        return {
            m: Reproduction(original, _placed(_overlapped(graph, m), reordered_heap), m) for m in (EXACT, ANALYTICAL)
        }
    apart = _apart(graph)
    original = _smaller(_placed(apart, _FORWARDS), _placed(apart, _BACKWARDS))
    overlapped = _placed(_overlapped(graph, ANALYTICAL), _BACKWARDS)
    return {ANALYTICAL: Reproduction(original, _smaller(original, overlapped), ANALYTICAL)}


def with_other_ties(graph: Graph) -> Plan:
    """The connected models' optimised plan if ties go to the tensor created last."""
    return _placed(_overlapped(graph, ANALYTICAL), partial(_BACKWARDS, latest_first=True))


def reference_overlap(node: Node, method: str) -> int | None:
    """O_s in bytes of the reference kernel, by the method; None where the paper does not overlap."""
    kind = kind_of(node.op.kind)
    if kind is None or node.op.kind not in OVERLAPPED:
        return None
    if method == ANALYTICAL:
        return kind.analytical(node, 0)
    return node.output.size_bytes - kind.separation(node, 0, Order.REFERENCE)


def printed_overlap(node: Node) -> Fraction | None:
    """O_s in bytes by equation (11) as printed; None where the paper has no formula."""
    kind = kind_of(node.op.kind)
    return kind.paper(node, 0) if kind else None


def _rule(method: str) -> SeparationRule:
    def separation(node: Node, position: int, output: int) -> int | None:
        overlap = reference_overlap(node, method) if position == 0 else None
        return None if overlap is None else node.outputs[output].size_bytes - overlap

    return separation


def _apart(graph: Graph) -> Footprint:
    return footprint(graph, Options(external_io=True, overlap=False))


def _overlapped(graph: Graph, method: str) -> Footprint:
    return footprint(graph, Options(external_io=True), _rule(method))


_FORWARDS, _BACKWARDS = (partial(modified_heap, backwards=backwards) for backwards in (False, True))
"""The heap of section IV, from the first tensor on, or from the last."""


def _placed(needs: Footprint, place: Callable[[Problem], Offsets]) -> Plan:
    order = file_order(needs)
    posed = build_problem(needs, order)
    return Plan.of(needs.graph, needs.options, order, posed, place(posed))


def _smaller(first: Plan, second: Plan) -> Plan:
    return min(first, second, key=lambda plan: plan.arena_bytes)

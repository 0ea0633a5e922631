"""How much work a run is, in multiply-accumulates, and which kernels do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from diagmem.kernels import Library
from diagmem.kernels.rows import row_graph
from diagmem.model.graph import Graph
from diagmem.model.schedule import Step
from diagmem.ops import node_macs

PLAIN_C = "plain C"
"""What runs an op for which a library has no kernel with special instructions."""


def macs_as_run(graph: Graph, library: Library, steps: Iterable[Step]) -> Mapping[int, int]:
    """Op -> its multiply-accumulates; rows that are recomputed count each time."""
    visits = Counter(step.op for step in steps if step.turn is not None)
    rows = row_graph(graph, library).ops if visits else ()
    whole = {node.op.index: node_macs(node) for node in graph.nodes}
    return {op: macs * visits[op] // rows[op].turns if op in visits else macs for op, macs in whole.items()}


def kernel_shares(graph: Graph, library: Library, macs: Mapping[int, int]) -> Mapping[str, float]:
    """Which kernels do which share of the multiply-accumulates (of the ops, where there are none), most first: `dsp`,
    `mve` or `plain C`, or the library by its name if it is not ours."""
    work, total = Counter[str](), sum(macs.values())
    for node in graph.nodes:
        name = library.name if not library.is_own else PLAIN_C
        if library.instructions is not None and library.variant(node) is not None:
            name = library.instructions.value
        work[name] += macs[node.op.index] if total else 1
    return {name: done / max(1, work.total()) for name, done in work.most_common() if done}


def shares_text(shares: Mapping[str, float]) -> str:
    """`93.2 % with DSP instructions, 6.8 % in plain C`."""
    return ", ".join(
        f"{100 * share:.3g} % {'in plain C' if name == PLAIN_C else f'with {name.upper()} instructions'}"
        for name, share in shares.items()
    )

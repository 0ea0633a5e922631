"""How much work a run is, in multiply-accumulates, and which kernels do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from diagmem.kernels import Library
from diagmem.kernels.rows import row_graph
from diagmem.model.graph import DType, Graph, Node
from diagmem.model.schedule import Step
from diagmem.ops import kind_of, node_macs

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


def float_text(graph: Graph) -> str:
    """Of a quantised network, which ops compute in float32 all the same, why, and what to do about it."""
    layers = [node for node in graph.nodes if (kind := kind_of(node.op.kind)) is not None and kind.takes.weights]
    found = Counter(_float_name(node) for node in graph.nodes if _is_float32(node))
    if not found or all(node.input(0).dtype is DType.FLOAT32 for node in layers):
        return ""
    listed = ", ".join(f"{count} {name}" if count > 1 else name for name, count in found.most_common())
    reason = "because the file does not quantise what they read and make"
    advice = "export them quantised, or replace those that have no int8 kernel (docs/supported-ops.md)"
    return f"{found.total()} of {len(graph.ops)} ops run in float32, {reason}: {listed}; {advice}"


def _is_float32(node: Node) -> bool:
    kind, touched = kind_of(node.op.kind), (*(t for _, t in node.activations()), *node.outputs)
    is_work = kind is not None and not kind.is_alias and node.op.kind not in ("QUANTIZE", "DEQUANTIZE")
    return is_work and any(t.dtype is DType.FLOAT32 for t in touched)


def _float_name(node: Node) -> str:
    """That of the operation in float32, where integers are widened as they are read."""
    kind, name = kind_of(node.op.kind), node.op.kind
    return next((plain for plain, wide in (kind.widened.items() if kind else ()) if wide == name), name)

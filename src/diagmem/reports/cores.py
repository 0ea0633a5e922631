"""Which core touches which bytes when: addresses across, time down, a row for each phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diagmem.model.graph import Node
from diagmem.model.teamwork import Along, How, Phase, Sharing
from diagmem.planning.plan import Plan
from diagmem.planning.teamwork import SharedOp, op_path, running_ops
from diagmem.reports.axes import byte_ticks, kb, short_kb
from diagmem.reports.drawing import Drawing
from diagmem.reports.svg import clipped, line, rect, text, text_width

LABELS = 164
WIDTH = 640
HEIGHT = 620
LEAST_OP_PX = 16
CORES = ("made", "t0", "used", "t2")
"""What the parts of the cores look like."""


@dataclass(frozen=True, slots=True)
class _Sheet:
    plan: Plan
    cores: int

    def across(self, address: float) -> float:
        return LABELS + WIDTH * address / max(1, self.plan.arena_bytes)

    def block(self, low: float, high: float, top: float, height: float, class_: str) -> str:
        return rect(self.across(low), top, self.across(high) - self.across(low), height, class_)


def cores_drawing(plan: Plan, cores: int = 2, last_op: int | None = None) -> Drawing:
    """The run of a plan on so many cores, up to the op `last_op` of those that run, if not to the end."""
    shared, sheet = plan.teamwork, _Sheet(plan, cores)
    assert shared is not None
    ops = running_ops(plan)[: None if last_op is None else last_op + 1]
    paths = [op_path(plan.graph.nodes[op], shared.by_op.get(op), cores) for op in ops]
    heights = _heights(paths)
    body = [text(LABELS, 22, f"{plan.graph.name} on {cores} cores", "title"), *_legend(cores)]
    top = first = 84.0
    for op, height in zip(ops, heights, strict=True):
        node = plan.graph.nodes[op]
        body += [
            line(LABELS - 8, top, LABELS + WIDTH, top, "grid"),
            text(LABELS - 8, top + 12, clipped(_label(node), LABELS - 12, 11), "small end"),
            *_op(sheet, node, shared.by_op.get(op), top, height),
        ]
        top += height
    body += _axis(sheet, first, top)
    title = f"{plan.graph.name} on {cores} cores in {kb(plan.arena_bytes)}: which core writes which bytes when"
    return Drawing(LABELS + WIDTH + 24, top + 28, "".join(body), title)


def _label(node: Node) -> str:
    return f"{node.op.number} {node.op.kind.lower().replace('_', ' ')}"


def _heights(paths: Sequence[float]) -> list[float]:
    """As the time that ops take, but none too thin to be seen."""
    total = sum(paths)
    return [max(LEAST_OP_PX, HEIGHT * path / max(1.0, total)) for path in paths]


def _axis(sheet: _Sheet, top: float, bottom: float) -> Iterator[str]:
    for tick in byte_ticks(sheet.plan.arena_bytes, 8):
        x = sheet.across(tick)
        yield line(x, top - 4, x, top, "axis")
        yield text(x, top - 8, short_kb(tick), "small soft mid")
    yield line(sheet.across(sheet.plan.arena_bytes), top - 6, sheet.across(sheet.plan.arena_bytes), bottom, "limit")


def _legend(cores: int) -> Iterator[str]:
    x = float(LABELS)
    entries = [(CORES[core % len(CORES)], f"core {core} writes") for core in range(cores)]
    for class_, words in (*entries, ("t3", "still to be read"), ("shared", "held back until all have read")):
        yield rect(x, 36, 18, 12, class_)
        yield text(x + 24, 46, words, "small soft")
        x += 24 + text_width(words, 11) + 16


def _op(sheet: _Sheet, node: Node, sharing: Sharing | None, top: float, height: float) -> Iterator[str]:
    offsets = sheet.plan.offsets
    placed = [t for t in dict.fromkeys(t.index for _, t in node.activations()) if t in offsets]
    if sharing is None or node.output.index not in offsets:
        for index in placed:
            tensor = sheet.plan.graph.tensors[index]
            yield sheet.block(offsets[index], offsets[index] + tensor.span_bytes, top, height, "t3")
        for out in node.outputs:
            start = offsets.get(out.index, 0)
            yield sheet.block(start, start + out.span_bytes, top, height, CORES[0])
        return
    phases = list(sharing.each_phase())
    lengths = [phase.units if phase.how is How.ALONE else phase.units / sheet.cores for phase in phases]
    for phase, length in zip(phases, lengths, strict=True):
        row = height * length / sum(lengths)
        for low, high in _still_read(sheet, node, sharing, phase):
            yield sheet.block(low, high, top, row, "t3")
        yield from _parts(sheet, node, sharing, phase, top, row)
        if phase is not phases[-1]:
            yield line(LABELS, top + row, LABELS + WIDTH, top + row, "grid")
        top += row


def _still_read(sheet: _Sheet, node: Node, sharing: Sharing, phase: Phase) -> Iterator[tuple[int, int]]:
    """Of each input the bytes that are read in the phase, or later."""
    op = SharedOp(sheet.plan, node, sheet.cores)
    near = {tensor.index: runs for tensor, runs in op.overlapping}
    for _, tensor in node.activations():
        if tensor.index in sheet.plan.offsets:
            start = sheet.plan.offsets[tensor.index]
            low = start
            if tensor.index in near and sharing.cut.along is Along.PIXELS:
                low = int(op.pair(sharing.cut, tensor, near[tensor.index]).in_first[phase.first])
            if low < start + tensor.span_bytes:
                yield low, start + tensor.span_bytes


def _parts(sheet: _Sheet, node: Node, sharing: Sharing, phase: Phase, top: float, height: float) -> Iterator[str]:
    """What each core writes: its stretch; of channels, which lie all over, a stripe."""
    start, size, units = sheet.plan.offsets[node.output.index], node.output.span_bytes, sharing.cut.units
    if sharing.cut.along is Along.CHANNELS:
        for core in range(sheet.cores):
            stripe = height / sheet.cores
            yield sheet.block(start, start + size, top + core * stripe, stripe, CORES[core % len(CORES)])
        return
    cores = 1 if phase.how is How.ALONE else sheet.cores
    for core in range(cores):
        low, high = (phase.first + phase.units * part // cores for part in (core, core + 1))
        left, right = start + size * low // units, start + size * high // units
        yield sheet.block(left, right, top, height, CORES[core % len(CORES)])
        if phase.how is How.HELD:
            yield sheet.block(left, right, top, height, "shared")

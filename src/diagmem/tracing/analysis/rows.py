"""What a trace says of each input and output of an operation, and of operations that run a row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from diagmem.backends.c.program import Program
from diagmem.kernels import signature
from diagmem.model.graph import Node
from diagmem.model.schedule import Step
from diagmem.tracing.capture.calls import Role
from diagmem.tracing.capture.events import ALWAYS, Span
from diagmem.tracing.capture.run import CallTrace, Counts, TracedOverlap, traced_separation


@dataclass(frozen=True, slots=True)
class TracedRow:
    """`input` and `output` are the model's tensors, or count the call's buffers where it belongs to no model. `node`:
    the operation that was computed, if known; only then can a planner use the row. `exact`: by closed form."""

    kind: str
    input: int
    output: int
    input_bytes: int
    output_bytes: int
    overlap: TracedOverlap
    counts: Counts
    position: int
    number: int
    node: Node | None = None
    exact: int | None = None
    scratch_bytes: int = 0

    @property
    def agrees(self) -> bool:
        """Whether closed form and trace say the same, if there are both. An operation that loads nothing (ARG_MAX along
        an axis of one element) has no limit, whatever the closed form says of its loads."""
        if self.exact is None or self.exact == self.overlap.monotone:
            return True
        return not self.counts.loads and self.exact < self.overlap.monotone

    def to_json(self) -> dict[str, Any]:
        return {
            "op": None if self.node is None else self.node.op.number,
            "kind": self.kind,
            "input": self.input,
            "output": self.output,
            "input_bytes": self.input_bytes,
            "output_bytes": self.output_bytes,
            "exact": self.exact,
            "algorithmic": None,
            "analytical": None,
            "paper": None,
            "traced": self.overlap.monotone,
            "traced_largest": self.overlap.largest,
            "instructions": self.counts.instructions,
            "loads": self.counts.loads,
            "stores": self.counts.stores,
            "updates": self.counts.updates,
            "scratch_bytes": self.scratch_bytes,
            "position": self.position,
            "number": self.number,
            "signature": None if self.node is None else signature(self.node),
        }


def call_rows(trace: CallTrace, node: Node | None) -> list[TracedRow]:
    """The rows of a traced call. `node`: the operation that it computes; inputs and outputs in the same order."""
    call = trace.call
    sources, targets = call.places(Role.INPUT), call.places(Role.OUTPUT)
    activations = list(node.activations()) if node else []
    return [
        TracedRow(
            node.op.kind if node else call.function,
            activations[i][1].index if node else i,
            node.outputs[o].index if node else o,
            len(source),
            len(target),
            trace.overlaps[i][o],
            trace.counts,
            activations[i][0] if node else i,
            o,
            node,
            scratch_bytes=sum(len(place) for place in call.places(Role.SCRATCH)),
        )
        for i, source in enumerate(sources)
        for o, target in enumerate(targets)
    ]


class RowRead(NamedTuple):
    """A row that is read while another one is made: separation(row made below, this row above) in bytes, by closed form
    and as traced. `is_loaded`: whether the compiled code looks at it at all."""

    tensor: int
    row: int
    exact: int
    traced: int
    is_loaded: bool

    @property
    def agrees(self) -> bool:
        """Code that does without a row (softmax over a single channel) sets no limit, whatever the closed form says."""
        return self.exact == self.traced or (not self.is_loaded and self.exact > self.traced)


@dataclass(frozen=True, slots=True)
class TracedTurn:
    """One turn of an op. `made`: the row that it makes. `reads`: of it what may overlap."""

    node: Node
    made: int
    counts: Counts
    reads: tuple[RowRead, ...]


@dataclass(frozen=True, slots=True)
class TracedTurns:
    """All turns of an op. `pairs`: how many times a row is read while another one is made; for `differing` of these
    closed form and trace say different things."""

    node: Node
    turns: int
    pairs: int
    differing: int
    instructions: int
    loads: int
    stores: int
    updates: int

    def to_json(self) -> dict[str, Any]:
        return {
            "op": self.node.op.number,
            "kind": self.node.op.kind,
            "output": self.node.output.index,
            "turns": self.turns,
            "pairs": self.pairs,
            "differing": self.differing,
            "instructions": self.instructions,
            "loads": self.loads,
            "stores": self.stores,
            "updates": self.updates,
        }


def traced_turn(program: Program, step: Step, span: Span) -> TracedTurn:
    """`program`: every row in a place of its own."""
    op, node, turn = program.rows.ops[step.op], program.graph.nodes[step.op], step.turn or 0
    made = (op.makes_at(turn) or range(0)) if op.makes_rows else range(0)
    reads = []
    for out in made:
        written = span.first_write[_place(program, op.makes[0], out)]
        for need in op.needs:
            for row, exact in enumerate(need.apart[turn], need.first[turn]):
                read = span.last_read[_place(program, need.tensor, row)]
                is_loaded = bool((read != ALWAYS).any())
                reads.append(RowRead(need.tensor, row, exact, traced_separation(written, read), is_loaded))
    return TracedTurn(node, turn, Counts.of(span), tuple(reads))


def _place(program: Program, tensor: int, row: int) -> slice:
    """Where a row lies in the traced space."""
    begin = program.how_rows_lie(tensor).offsets[row]
    return slice(begin, begin + program.graph.tensors[tensor].row_span_bytes)


def remade_places(program: Program, step: Step) -> Iterator[slice]:
    """Where the rows lie that the step makes, if it may have made them before."""
    op = program.rows.ops[step.op]
    if step.turn is not None and op.makes_rows:
        yield from (_place(program, tensor, step.turn) for tensor in op.makes)


def gathered(turns: Sequence[TracedTurn]) -> tuple[TracedTurns, ...]:
    """By op, in the model's order."""
    by_op = sorted(turns, key=lambda turn: turn.node.op.index)
    return tuple(_gathered(list(group)) for _, group in groupby(by_op, key=lambda turn: turn.node.op.index))


def _gathered(turns: Sequence[TracedTurn]) -> TracedTurns:
    reads = [read for turn in turns for read in turn.reads]
    counts = [turn.counts for turn in turns]
    return TracedTurns(
        turns[0].node,
        len(turns),
        len(reads),
        sum(not read.agrees for read in reads),
        sum(c.instructions for c in counts),
        sum(c.loads for c in counts),
        sum(c.stores for c in counts),
        sum(c.updates for c in counts),
    )

"""What a trace says about operations that run a row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from diagmem.backends.c.program import Program
from diagmem.model.graph import Node
from diagmem.model.schedule import Step
from diagmem.tracing.analysis.overlap import traced_separation
from diagmem.tracing.capture.events import ALWAYS, Span
from diagmem.tracing.capture.run import Counts


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

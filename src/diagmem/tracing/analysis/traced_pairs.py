"""What a trace says, row by row: one for each input and output of an operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagmem.kernels import signature
from diagmem.model.graph import Node
from diagmem.tracing.analysis.overlap import TracedOverlap
from diagmem.tracing.capture.calls import Role
from diagmem.tracing.capture.run import CallTrace, Counts


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

"""Two files in TFLM's interpreter, side by side: the same answers, and how small an arena each of them accepts."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.model.graph import Graph
from diagmem.verification.tflm import runtime
from diagmem.verification.tflm.runtime import Inputs, TflmError, TflmRun


@dataclass(frozen=True, slots=True)
class Comparison:
    """`after` is None where TFLM does not run the planned file. `failure`: why the answer is no; empty if it is yes."""

    inputs: int
    before: TflmRun
    after: TflmRun | None
    failure: str = ""

    @property
    def ok(self) -> bool:
        return not self.failure


def compare(original: bytes, planned: bytes, graph: Graph, inputs: Inputs) -> Comparison:
    """Runs both files on all inputs, each in the smallest arena that it accepts, and compares every output byte."""
    before = runtime.run(original, graph, inputs)
    try:
        after = runtime.run(planned, graph, inputs)
    except TflmError as error:
        return Comparison(len(inputs), before, None, str(error))
    differing = [n for n, pair in enumerate(zip(before.outputs, after.outputs, strict=True)) if pair[0] != pair[1]]
    failure = (
        f"outputs differ on {len(differing)} of {len(inputs)} inputs, first on input {differing[0]}"
        if differing
        else ""
    )
    return Comparison(len(inputs), before, after, failure)

"""Two files in TFLM's interpreter, side by side: the same answers, and how small an arena each of them accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import Graph
from diagmem.verification.equality import differing
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


def _is_same(graph: Graph, old: Sequence[bytes], new: Sequence[bytes]) -> bool:
    types = [graph.tensors[t].dtype.numpy for t in graph.outputs]
    return not any(
        len(a) != len(b) or differing(np.frombuffer(a, dtype), np.frombuffer(b, dtype)).any()
        for a, b, dtype in zip(old, new, types, strict=True)
    )


def compare(original: bytes, planned: bytes, graph: Graph, inputs: Inputs) -> Comparison:
    """Runs both files on all inputs, each in the smallest arena that it accepts, and compares every output."""
    before = runtime.run(original, graph, inputs)
    try:
        after = runtime.run(planned, graph, inputs)
    except TflmError as error:
        return Comparison(len(inputs), before, None, str(error))
    pairs = zip(before.outputs, after.outputs, strict=True)
    wrong = [n for n, (old, new) in enumerate(pairs) if not _is_same(graph, old, new)]
    failure = f"outputs differ on {len(wrong)} of {len(inputs)} inputs, first on input {wrong[0]}" if wrong else ""
    return Comparison(len(inputs), before, after, failure)

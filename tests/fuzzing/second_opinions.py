"""What TensorFlow Lite Micro computes for random graphs, beside what numpy does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType
from diagmem.verification import reference
from diagmem.verification.oracles import TFLM, deviation
from tests.fuzzing.growth import Case
from tests.ops.single_op import Job, answered, is_installed
from tests.tflite_files import file_of

Array = npt.NDArray[Any]

TOLERANCE = 1e-4
"""Of the largest real output: sums are added up in different orders."""

_STEPS = {"FLOOR", "CEIL", "ROUND", "FLOOR_DIV", "FLOOR_MOD", "ARG_MAX", "ARG_MIN", "CAST", "QUANTIZE"}
_STEPS |= {"EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"}
"""Kinds that make a large difference of a small one, among those on floats."""


def disagreements(cases: Sequence[tuple[int, Case]], count: Counter[str]) -> Iterator[str]:
    """Seeds and graphs of which the interpreter computes something else. Graphs that it does not run say nothing."""
    asked = [(seed, case) for seed, case in cases if _is_comparable(case)]
    if not asked or not is_installed(TFLM):
        return
    jobs: list[Job] = [(file_of(c.graph), list(c.inputs[0]), len(c.graph.outputs)) for _, c in asked]
    for (seed, case), answer in zip(asked, answered(TFLM, jobs), strict=True):
        if isinstance(answer, str):
            count["which TensorFlow Lite Micro does not run"] += 1
            continue
        count["compared with TensorFlow Lite Micro"] += 1
        graph = case.graph
        with np.errstate(all="ignore"):
            ours = reference.run(graph, case.inputs[0])
        for number, (t, theirs) in enumerate(zip(graph.outputs, answer, strict=True)):
            if not _agrees(ours[t].reshape(-1), theirs.reshape(-1)):
                label = graph.nodes[graph.producer[t]].label
                yield f"graph {seed}: output {number} ({label}) is not what TensorFlow Lite Micro computes"
                break


def _is_comparable(case: Case) -> bool:
    graph = case.graph
    if not all(deviation(TFLM, node) is None for node in graph.nodes) or any(t.is_variable for t in graph.tensors):
        return False
    is_real = any(t.dtype is DType.FLOAT32 for t in graph.tensors)
    return not (is_real and any(op.kind in _STEPS for op in graph.ops))


def _agrees(ours: Array, theirs: Array) -> bool:
    if ours.dtype.kind != "f":
        return bool(np.array_equal(ours, theirs))
    largest = float(np.abs(ours[np.isfinite(ours)]).max(initial=1e-6))
    return bool(np.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE * largest, equal_nan=True))

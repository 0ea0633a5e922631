"""A handful of what `tools/fuzz` tries by the hundred thousand, and every seed that has once found something."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.fuzzing import batches, files, graphs, growth, nodes, onnx_files, plans, texts
from tests.ops.compiled import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


def test_random_graphs_compute_what_numpy_does() -> None:
    """Planned in any way, replayed by the validator, built and run, a fence on either side of each arena."""
    count: Counter[str] = Counter()
    assert not list(graphs.faults(range(1, 41), count))
    assert count["graphs built, run and compared"] > 30


def test_graphs_are_of_all_sorts() -> None:
    """Branches, joins, several inputs and outputs, all types, groups, dilations, batches; most kinds within few."""
    found = [growth.grown(seed).graph for seed in range(300)]
    kinds = {op.kind for graph in found for op in graph.ops}
    types = {t.dtype.value for graph in found for t in graph.tensors if not t.is_constant}
    assert len(kinds) > 60
    assert types >= {"int8", "int16", "float32", "int32", "bool"}
    assert any(len(graph.inputs) > 2 for graph in found)
    assert any(len(graph.outputs) > 2 for graph in found)
    assert any(len(readers) > 2 for graph in found for readers in graph.consumers.values())
    assert any(op.kind == "CONV_2D" and op.attributes.dilation_h > 1 for graph in found for op in graph.ops)


def test_wrong_programs_are_found() -> None:
    """One that computes something else, one that does not build, and one that writes beyond its arena are told by their
    names, and none of the others."""
    jobs = [made for seed in range(9) if (made := graphs.job(seed, Counter())) is not None]
    changed = [[np.logical_not(values).astype(values.dtype) for values in run] for run in jobs[1].outputs]
    beyond = jobs[5].source.replace(f"const size_t size = {jobs[5].name.upper()}_ARENA_BYTES", "const size_t size = 0")
    wrong = [
        replace(jobs[1], outputs=changed),
        replace(jobs[3], source=f"{jobs[3].source}\n#error"),
        replace(jobs[5], source=beyond),
    ]
    found = list(batches.faults([jobs[0], wrong[0], jobs[2], wrong[1], jobs[4], wrong[2]], batches.compiler()))
    assert [fault.partition(":")[0] for fault in found] == [job.label for job in wrong]


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_spoiled_operations_are_refused_or_run(first: int) -> None:
    """One line, or C code: never a traceback."""
    assert not list(nodes.faults(range(first, first + 20), Counter()))


def test_spoiled_files_are_refused_or_run() -> None:
    """One line, or C code that computes what numpy does: never a traceback."""
    count: Counter[str] = Counter()
    assert not list(files.faults(range(60), count))
    assert 20 < count["  files refused in one line"] < 60


def test_spoiled_onnx_files_are_refused_or_run() -> None:
    """One line, or C code that computes what numpy does."""
    count: Counter[str] = Counter()
    assert not list(onnx_files.faults(range(60), count))
    assert 20 < count["  ONNX files refused in one line"] < 60
    assert count["sound ONNX files"] > 3


def test_tampered_plans_are_refused_or_harmless() -> None:
    """Each is refused as a plan, or by the validator, or runs and gives the right bytes."""
    count: Counter[str] = Counter()
    assert not list(plans.faults(range(40), count))
    assert count["  plans refused by the validator"] > 3
    assert count["  plans refused as plans"] > 3
    assert count["  plans built, run and compared"] > 3


def test_texts_are_refused_or_read() -> None:
    """Traced libraries, files of calls, calls in writing."""
    assert not list(texts.faults(range(100), Counter()))

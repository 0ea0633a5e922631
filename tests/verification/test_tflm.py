"""TFLM's interpreter, its crashes included."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from diagmem.backends.tflm import greedy
from diagmem.frontends import tflite
from diagmem.frontends.tflite import writer as flatbuffer
from diagmem.kernels import library
from diagmem.verification import tflm
from diagmem.verification.reference import sample_inputs
from tests.backends.tflm import small_models

needs_tflm = pytest.mark.skipif(not tflm.is_installed(), reason="needs the package tflite-micro")


@needs_tflm
@pytest.mark.parametrize("make", small_models.ALL)
def test_smallest_arena_is_split(make: Callable[[], bytes]) -> None:
    """Head, persistent part and planning make up the smallest arena; the head is the one predicted."""
    data = make()
    graph = tflite.parse(data, make.__name__)
    run = tflm.run(data, graph, sample_inputs(graph, 2))
    predicted = greedy.layout(graph, [greedy.ONLINE] * len(graph.tensors), library("tflm-reference"))
    assert run.head_bytes == predicted.head_bytes
    assert run.planning_bytes >= 0
    assert run.arena_bytes % 16 == 0
    assert [len(outputs) for outputs in run.outputs] == [len(graph.outputs)] * 2


@needs_tflm
def test_state_is_kept_between_runs() -> None:
    """The same input gives another answer when a variable has changed."""
    data = small_models.variable()
    graph = tflite.parse(data, "variable")
    [ones] = sample_inputs(graph, 2)[1:]
    run = tflm.run(data, graph, [ones] * 4)
    assert run.outputs[0] != run.outputs[1]
    assert run.outputs[:2] == run.outputs[2:], "state starts anew half-way"


@needs_tflm
def test_refusal_is_told_in_tflms_words() -> None:
    """A plan with a wrong count is refused for what it is, not for the arena."""
    data = small_models.reshapes()
    graph = tflite.parse(data, "reshapes")
    bad = flatbuffer.rewritten(data, {"OfflineMemoryAllocation": struct.pack("<4i", 1, 1, 1, -1)})
    with pytest.raises(tflm.TflmError, match="Nbr of offline buffer offsets"):
        tflm.run(bad, graph, sample_inputs(graph, 1))


def crashed(*answers: dict[str, int]) -> subprocess.CompletedProcess[str]:
    """What is left of a worker that was killed after these answers."""
    text = "".join(json.dumps(answer) + "\n" for answer in answers)
    return subprocess.CompletedProcess([], -signal.SIGSEGV, text, "out of luck\n")


@needs_tflm
def test_crash_in_too_small_an_arena_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search goes on above the size that killed TFLM, and below what it had accepted, to the same end."""
    data = small_models.reshapes()
    graph = tflite.parse(data, "reshapes")
    inputs = sample_inputs(graph, 1)
    expected = tflm.run(data, graph, inputs)
    work, ranges = tflm._work, []

    def crash_once(job: dict[str, Any], timeout_seconds: float) -> subprocess.CompletedProcess[str]:
        ranges.append((job["refused_bytes"], job["accepted_bytes"]))
        if len(ranges) == 1:
            return crashed({"trying_bytes": 4096}, {"accepted_bytes": 4096}, {"trying_bytes": 160})
        return work(job, timeout_seconds)

    monkeypatch.setattr(tflm, "_work", crash_once)
    assert tflm.run(data, graph, inputs) == expected
    assert ranges[1] == (160, 4096)


@needs_tflm
def test_crash_in_an_ample_arena_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing to do with the arena's size, so it is told, with what TFLM said last."""
    data = small_models.reshapes()
    graph = tflite.parse(data, "reshapes")

    def crash(job: dict[str, Any], timeout_seconds: float) -> subprocess.CompletedProcess[str]:
        return crashed({"trying_bytes": job["accepted_bytes"]})

    monkeypatch.setattr(tflm, "_work", crash)
    with pytest.raises(tflm.TflmError, match=r"crashed \(SIGSEGV\) after saying: out of luck"):
        tflm.run(data, graph, sample_inputs(graph, 1))


@needs_tflm
def test_waiting_has_an_end() -> None:
    """A run that takes too long is stopped."""
    data = small_models.reshapes()
    graph = tflite.parse(data, "reshapes")
    with pytest.raises(tflm.TflmError, match="did not finish"):
        tflm.run(data, graph, sample_inputs(graph, 1), timeout_seconds=0.01)


def test_inputs_are_seeded_and_reach_the_edges() -> None:
    """Same seed, same inputs; the lowest and the highest value come first; more inputs begin with the same ones."""
    graph = tflite.parse(small_models.scratch(), "scratch")
    few, many = sample_inputs(graph, 8, seed=3), sample_inputs(graph, 12, seed=3)
    assert all(np.array_equal(a, b) for one, two in zip(few, many, strict=False) for a, b in zip(one, two, strict=True))
    assert few[0][0].max() == -128
    assert few[1][0].min() == 127
    assert len({values.tobytes() for [values] in many}) == len(many)

"""Models on one's own data: the bytes of the firmware, values as its own functions convert them, state and refusals."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diagmem
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType
from diagmem.verification.reference import runs, sample_inputs
from diagmem.verification.running import real, taken
from tests.streams import stream


def classifier() -> bytes:
    """Pictures of 8 x 6 in, four classes out."""
    b = Builder("classifier", DType.INT8)
    x = b.conv(b.input(1, 8, 6, 3), 8, 3, 2)
    return to_tflite(b.graph(b.softmax(b.fully_connected(b.flatten(x), 4))))


MODEL = classifier()
GRAPH = diagmem.Source(MODEL).runnable
INPUT, OUTPUT = GRAPH.tensors[GRAPH.inputs[0]], GRAPH.tensors[GRAPH.outputs[0]]


@pytest.mark.parametrize("options", [{}, {"input_rows": True}, {"schedule": "best", "cpu": "cortex-m4"}])
def test_it_computes_what_the_reference_does(options: dict[str, Any]) -> None:
    """Whole, with the input streamed, and with another core's kernels."""
    samples = sample_inputs(GRAPH, 8)
    wanted = [values[GRAPH.outputs[0]] for values in runs(GRAPH, samples)]
    with diagmem.running(MODEL, **options) as net:
        for made, want in zip(net.stored(samples), wanted, strict=True):
            np.testing.assert_array_equal(made[0], want)
        together = net(np.stack([run[0] for run in samples]), raw=True)[OUTPUT.name]
    np.testing.assert_array_equal(together.reshape(8, -1), np.stack(wanted).reshape(8, -1))


def test_real_numbers_become_what_the_firmware_makes_of_them(tmp_path: Path) -> None:
    """Halves, ends and what lies beyond them, beside the C function that does the same."""
    diagmem.emit_c(MODEL, name="net").write(tmp_path)
    sources = [str(path) for path in tmp_path.glob("*.c")]
    subprocess.run(["gcc", "-shared", "-fPIC", *sources, "-lm", "-o", str(tmp_path / "net.so")], check=True)
    library = ctypes.CDLL(str(tmp_path / "net.so"))
    library.net_input.restype = ctypes.c_void_p
    assert INPUT.quantisation is not None
    scale = np.float32(INPUT.quantisation.scales[0])
    halves = (np.arange(INPUT.elems, dtype=np.float32) - INPUT.elems // 2 + np.float32(0.5)) * scale
    for values in (halves, halves * 7, np.random.default_rng(0).normal(0, 90, INPUT.elems).astype(np.float32)):
        assert library.net_quantize_input(0, values.ctypes.data_as(ctypes.c_void_p)) == 1
        ours = taken(GRAPH, values)[0][0]
        theirs = np.frombuffer(ctypes.string_at(library.net_input(0), INPUT.elems), np.int8)
        np.testing.assert_array_equal(ours.reshape(-1), theirs)


def test_outputs_are_real_numbers_unless_stored_ones_are_asked_for() -> None:
    """`raw` is for both directions."""
    values = np.random.default_rng(1).normal(0, 1, (5, 8, 6, 3)).astype(np.float32)
    made = diagmem.run(MODEL, {INPUT.name: values})[OUTPUT.name]
    stored = np.stack([run[0] for run in taken(GRAPH, values)])
    raw = diagmem.run(MODEL, stored, raw=True)[OUTPUT.name]
    assert (made.dtype, raw.dtype, made.shape) == (np.float32, np.int8, (5, 4))
    np.testing.assert_array_equal(made, real(raw, OUTPUT))


@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_state_is_kept_until_it_is_reset(seed: int) -> None:
    """Runs one by one are those of the reference in a row, and once more after a reset."""
    graph = stream(seed)
    samples = sample_inputs(graph, 6)
    wanted = [[values[t] for t in graph.outputs] for values in runs(graph, samples, (3,))]
    with diagmem.running(graph) as net:
        made = [net.stored([run])[0] for run in samples[:3]]
        net.reset()
        made += net.stored(samples[3:])
    for got, want in zip(made, wanted, strict=True):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_model_that_was_closed_says_so() -> None:
    """And not a crash in what was unloaded."""
    net = diagmem.running(MODEL)
    net.close()
    with pytest.raises(PlanError, match="closed"):
        net(np.zeros((8, 6, 3), np.float32))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (np.zeros((6, 8, 3), np.float32), "1x8x6x3, for N runs N of that; what is given is 6x8x3"),
        (np.zeros((2, 3, 8, 6), np.float32), "what is given is 2x3x8x6"),
        (np.zeros((1, 8, 6, 3), np.int8), "if these are stored values"),
        (np.full((1, 8, 6, 3), np.nan, np.float32), "NaN has no stored value"),
        (np.zeros((1, 8, 6, 3), complex), "takes numbers"),
        ({"other": np.zeros(1), INPUT.name: np.zeros(1)}, "'other' is no input"),
        ({"a": np.zeros(1), "b": np.zeros(1)}, "nothing is given for"),
    ],
)
def test_what_does_not_match_is_refused(given: object, why: str) -> None:
    """Each with what the model takes."""
    with pytest.raises(PlanError, match=why):
        taken(GRAPH, given)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[0.5], [128], [-129]])
def test_stored_values_must_be_some(values: list[float]) -> None:
    """Whole, and within the type's range."""
    with pytest.raises(PlanError, match="whole and from -128 to 127"):
        taken(GRAPH, np.resize(np.asarray(values), (8, 6, 3)), is_raw=True)

"""Networks from the wild, as their projects ship them: planned, emitted and run, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagmem
from tests.backends.c.models import compiler

RUN = {
    "audio_preprocessor_int8": 6,
    "kws_hybrid": 1,
    "mnist_lstm_int8": 5,
    "mobilenet_v1_0.25_128_uint8": 1,
    "mobilenet_v1_0.25_96_shape_ops": 1,
    "person_detect": 1,
    "voice_activity": 10,
}
"""Files -> how many inputs they are given: those that take a few seconds."""

RUN_SLOWLY = {
    "audio_codec_encoder": 4,
    "face_detection_float16_constants": 1,
    "face_detector_dynamic_signature": 1,
    "keyword_svdf_int16_state": 12,
    "mnist_lstm_float": 2,
    "presence_new_opcode_field": 1,
    "wake_word_hey_jarvis": 10,
}

REFUSED = {"planestrike_dynamic_signature": "FlexMultinomial"}
"""Files that no runtime for micro-controllers runs -> the operation that is named."""


def verified(path: Path, inputs: int) -> None:
    compiler("gcc")
    (verdict,) = diagmem.verify(path, inputs=inputs)
    assert verdict.ok, verdict.failure


@pytest.mark.deep
@pytest.mark.parametrize("name", RUN)
def test_in_c_on_the_host(name: str, shared: Path) -> None:
    """Every operation, under sanitizers; where another runtime can run it, outputs are that one's."""
    verified(shared / "models" / "wild" / f"{name}.tflite", RUN[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN_SLOWLY)
def test_larger_ones_in_c_on_the_host(name: str, shared: Path) -> None:
    verified(shared / "models" / "wild" / f"{name}.tflite", RUN_SLOWLY[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_runs_is_planned_and_refused_by_name(name: str, shared: Path) -> None:
    path = shared / "models" / "wild" / f"{name}.tflite"
    assert diagmem.plan(path, schedule="file").arena_bytes
    with pytest.raises(diagmem.DiagmemError, match=REFUSED[name]) as caught:
        diagmem.emit_c(path)
    assert "\n" not in str(caught.value)


def test_all_files_are_listed(shared: Path) -> None:
    """So that one that is added is run as well."""
    found = {path.stem for path in (shared / "models" / "wild").glob("*.tflite")}
    assert found <= RUN.keys() | RUN_SLOWLY.keys() | REFUSED.keys()

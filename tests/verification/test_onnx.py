"""ONNX files as C: the same bytes as numpy, which computes what onnxruntime does."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import diagmem
from diagmem.frontends.source import Source
from diagmem.model.errors import PlanError
from tests.backends.c.models import compiler

MODELS = ("ad_qdq", "kws_qdq", "micro_kws_float", "micro_kws_qoperator", "resnet8_float", "resnet8_qdq")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_on_the_host(name: str, channels_last: bool, shared: Path) -> None:
    """Every operation, under sanitizers; the outputs are onnxruntime's."""
    compiler("gcc")
    source = Source(shared / "models" / "wild" / "onnx" / f"{name}.onnx", channels_last=channels_last)
    (verdict,) = diagmem.verify(source, inputs=7)
    assert verdict.failure is None
    judges = ("numpy", "onnxruntime") if importlib.util.find_spec("onnxruntime") else ("numpy",)
    assert verdict.to_json()["compared_with"] == list(judges)


def test_no_file_for_tflm(shared: Path) -> None:
    """TFLM does not run ONNX: the refusal names what would."""
    with pytest.raises(PlanError, match="convert"):
        diagmem.emit_tflm(shared / "models" / "wild" / "onnx" / "resnet8_float.onnx")

"""A plan inside a file goes through the judge before anything runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagmem import pipeline
from diagmem.backends.tflm import metadata
from diagmem.backends.tflm.greedy import ONLINE
from diagmem.frontends import tflite
from diagmem.model.errors import DiagmemError, UnsafePlanError
from tests.backends.tflm import small_models
from tests.cli.calling import call


def unsafe_file() -> bytes:
    """All tensors in one place: wrong in most places, even if some inputs do not show it."""
    data = small_models.branches()
    graph = tflite.parse(data, "branches")
    offsets = [0 if not t.is_constant else ONLINE for t in graph.tensors]
    return metadata.with_plan(data, graph, offsets, "tflm-reference")


def test_unsafe_plan_in_a_file_is_not_run(tmp_path: Path) -> None:
    """The answer is no, in one line, with exit status 1; nothing has to go wrong in a runtime first."""
    with pytest.raises(UnsafePlanError, match="the plan in the file is not safe"):
        pipeline.verify(unsafe_file(), on=["tflm"], inputs=1)
    path = tmp_path / "unsafe.tflite"
    path.write_bytes(unsafe_file())
    done = call("verify", str(path), "--on", "tflm", "--inputs", "1")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_an_unsafe_plan_is_an_error_of_ours() -> None:
    """Whoever catches DiagmemError catches this one too."""
    assert issubclass(UnsafePlanError, DiagmemError)

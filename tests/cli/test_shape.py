"""`--shape`: shapes of inputs that a file leaves open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tflite as schema

import diagmem
from tests.cli.calling import call
from tests.frontends.tflite.flat import FlatModel, FlatOp, FlatTensor

REAL = schema.TensorType.FLOAT32


@pytest.fixture(params=[1, -1])
def model(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """An image of any height: converters write 1, some -1."""
    shape, signature = [1, request.param, 4, 1], [1, -1, 4, 1]
    tensors = [FlatTensor(shape, name, REAL, signature=signature) for name in ("serving:0=x", "made")]
    path = tmp_path / "open.tflite"
    path.write_bytes(FlatModel(tensors, [FlatOp("RELU", [0], [1])]).content())
    return str(path)


@pytest.mark.parametrize("model", [-1], indirect=True)
def test_an_open_shape_is_refused_with_the_way_out(model: str) -> None:
    done = call("plan", model)
    assert done.returncode == 2
    assert "--shape" in done.stderr


@pytest.mark.parametrize("command", [["plan"], ["inspect"], ["verify", "--inputs", "2"]])
def test_a_shape_makes_it_a_model_like_any_other(model: str, command: list[str]) -> None:
    """The name may hold colons and equal signs."""
    done = call(*command, model, "--shape", "serving:0=x=1x8x4x1", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    arena = {"plan": "arena_bytes", "inspect": "peak_bytes"}.get(command[0])
    assert found[arena] >= 128 if arena else found["ok"]


def test_the_same_in_python(model: str) -> None:
    made = diagmem.plan(diagmem.Source(model, shapes={"serving:0=x": (1, 8, 4, 1)}))
    assert made.arena_bytes == 128


@pytest.mark.parametrize("shape", ["serving:0=x", "=1x2", "a=1x", "a=-1", "a=1x99999999999"])
def test_what_is_no_shape(model: str, shape: str) -> None:
    done = call("plan", model, "--shape", shape)
    assert done.returncode == 2
    assert "is no name and shape" in done.stderr


def test_a_file_for_tflm_must_have_its_shapes(model: str, tmp_path: Path) -> None:
    """TensorFlow Lite Micro looks for them in the file."""
    done = call("emit", "tflm", model, "--shape", "serving:0=x=1x8x4x1", "-o", str(tmp_path / "out.tflite"))
    assert done.returncode == 2
    assert "fixed shapes" in done.stderr

"""What operations remember in no tensor of a file: variables in the graph, and in no file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import diagmem
from diagmem.frontends import tflite
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Op, Tensor
from diagmem.ops.signal.frames import Delay, Framer, OverlapAdd, Stacker
from diagmem.ops.state import tensors_in_file
from diagmem.verification import tflm
from diagmem.verification.places import CVerdict
from tests.backends.c.models import compiler
from tests.tflite_files import file_of


def sounds() -> Graph:
    """Samples cut into frames, put together again, delayed and stacked."""
    shapes = {"in": (4,), "frames": (1, 12), "whole": (4,), "late": (4,), "stack": (12,)}
    tensors = [Tensor(n, name, shape, DType.INT16) for n, (name, shape) in enumerate(shapes.items())]
    flags = [Tensor(len(shapes) + n, f"flag{n}", (), DType.BOOL) for n in range(2)]
    ops = (
        Op(0, "CUSTOM:SignalFramer", (0,), (1, 5), Framer(12, 4, 1)),
        Op(1, "CUSTOM:SignalOverlapAdd", (1,), (2,), OverlapAdd(4)),
        Op(2, "CUSTOM:SignalDelay", (2,), (3,), Delay(6)),
        Op(3, "CUSTOM:SignalStacker", (3,), (4, 6), Stacker(4, 2, 0, 1)),
    )
    return Graph("sounds", (*tensors, *flags), ops, (0,), (4, 5, 6))


def written(graph: Graph, folder: Path) -> Path:
    path = folder / "sounds.tflite"
    path.write_bytes(file_of(graph))
    return path


def test_each_is_a_variable_behind_the_file_s_tensors() -> None:
    found = tflite.parse(file_of(sounds()), "sounds")
    assert tensors_in_file(found) == len(sounds().tensors)
    assert [(t.name, t.shape) for t in found.variables] == [
        ("frames1/kept", (9,)),
        ("whole2/overlap", (8,)),
        ("late3/delayed", (6,)),
        ("stack4/stack", (9,)),
    ]
    assert all(not np.any(t.first_values) for t in found.variables)


def test_in_c_over_runs_in_a_row(tmp_path: Path) -> None:
    """With a reset half-way; where it is installed, TensorFlow Lite Micro gives the same."""
    compiler("gcc")
    path = written(sounds(), tmp_path)
    (verdict,) = diagmem.verify(path, inputs=9)
    assert verdict.ok, verdict.failure
    assert isinstance(verdict, CVerdict)
    assert verdict.compared_with == (("numpy", "tflm") if tflm.is_installed() else ("numpy",))
    assert diagmem.plan(path).plan.state_bytes == 2 * (9 + 8 + 6 + 9)


@pytest.mark.skipif(not tflm.is_installed(), reason="needs tflite_micro")
def test_tflm_obeys_the_plan_and_keeps_its_own_state(tmp_path: Path) -> None:
    (verdict,) = diagmem.verify(written(sounds(), tmp_path), on=("tflm",), inputs=9)
    assert verdict.ok, verdict.failure


def test_more_inputs_than_the_file_may_have_are_refused(tmp_path: Path) -> None:
    graph = sounds()
    ops = (*graph.ops[:2], replace(graph.ops[2], inputs=(2, 0)), graph.ops[3])
    named = replace(graph, ops=tuple(replace(op, kind="CUSTOM:SignalDelax") if op.index == 2 else op for op in ops))
    content = file_of(named).replace(b"SignalDelax", b"SignalDelay")
    with pytest.raises(ModelError, match="expected: 1"):
        tflite.parse(content, "sounds")


@pytest.mark.parametrize(
    ("number", "attributes"),
    [
        (0, Framer(12, 3, 0)),
        (0, Framer(12, 0, 0)),
        (0, Framer(3, 4, 1)),
        (1, OverlapAdd(13)),
        (2, Delay(-1)),
        (2, Delay(2**30)),
        (3, Stacker(5, 2, 0, 1)),
        (3, Stacker(4, 2, 0, 4)),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(number: int, attributes: object) -> None:
    graph = sounds()
    ops = tuple(replace(op, attributes=attributes) if op.index == number else op for op in graph.ops)
    with pytest.raises(ModelError) as caught:
        tflite.parse(file_of(replace(graph, ops=ops)), "sounds")
    assert "\n" not in str(caught.value)

"""A file written anew is the same model, and one with narrower tensors computes the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagmem
from diagmem.frontends import tflite
from diagmem.frontends.tflite.writer import copied, to_tflite
from diagmem.frontends.zoo import build
from diagmem.transforms import transformed
from diagmem.verification import reference, tflm
from diagmem.verification.reference import sample_inputs

VWW = "mlperf_tiny/vww_96_int8"

FILES = (VWW, "mlperf_tiny/ad01_int8", "mlperf_tiny/kws_ref_model", "wild/person_detect", "wild/mnist_lstm_int8")


@pytest.mark.parametrize("name", FILES)
def test_a_copy_is_the_same_model(name: str, shared: Path) -> None:
    """Ops, attributes, shapes, scales and constants are read back as they were, whatever the numbers of tensors."""
    data = (shared / "models" / f"{name}.tflite").read_bytes()
    graph = tflite.parse(data, name)
    again = tflite.parse(copied(data, graph, graph), name)
    assert [(op.kind, op.attributes) for op in again.ops] == [(op.kind, op.attributes) for op in graph.ops]
    for old, new in zip(graph.nodes, again.nodes, strict=True):
        for a, b in zip((*old.inputs, *old.outputs), (*new.inputs, *new.outputs), strict=True):
            if a is None or b is None:
                assert a is b
                continue
            assert (a.name, a.shape, a.dtype, a.quantisation) == (b.name, b.shape, b.dtype, b.quantisation)
            assert (a.is_constant, a.is_variable) == (b.is_constant, b.is_variable)
            if a.data is not None:
                assert b.data is not None
                assert a.data.tobytes() == b.data.tobytes()


def test_a_lean_file_computes_the_same(shared: Path) -> None:
    """Without channels that do nothing the file is a third as large, and numpy and TFLM give the bytes of the old."""
    data = (shared / "models" / f"{VWW}.tflite").read_bytes()
    graph = tflite.parse(data, "vww")
    small = copied(data, graph, transformed(graph, ["remove-channels"])[0])
    assert len(small) < len(data) / 3
    less = tflite.parse(small, "vww")
    inputs = sample_inputs(graph, 3)
    for values in inputs:
        wanted = reference.run(graph, values)[graph.outputs[0]]
        assert wanted.tobytes() == reference.run(less, values)[less.outputs[0]].tobytes()
    if not tflm.is_installed():
        pytest.skip("needs tflite-micro to compare with")
    assert tflm.run(small, less, inputs).outputs == tflm.run(data, graph, inputs).outputs


def test_emitted_for_tflm(shared: Path) -> None:
    """The planned file is the small one, with a plan that TFLM obeys; `verify` compares it with the file as given."""
    path = shared / "models" / f"{VWW}.tflite"
    made, whole = diagmem.emit_tflm(path), diagmem.emit_tflm(path, remove_channels=False)
    assert made.given_bytes == whole.given_bytes == path.stat().st_size
    assert len(made.data) < len(whole.data) / 3
    assert whole.data.endswith(path.read_bytes())
    assert all(made.heads[name][1] <= whole.heads[name][1] for name in made.heads)
    assert {name: before for name, (before, _) in made.heads.items()} == {n: b for n, (b, _) in whole.heads.items()}
    if not tflm.is_installed():
        pytest.skip("needs tflite-micro to compare with")
    (verdict,) = diagmem.verify(path, on=["tflm"], inputs=3)
    assert verdict.ok


def test_a_file_without_idle_channels_stays_as_it_is() -> None:
    """It stands whole at the end of the planned one."""
    data = to_tflite(build("kws_dscnn_int8"))
    graph = tflite.parse(data, "kws")
    if transformed(graph, ["remove-channels"])[1]:
        pytest.skip("these random weights have idle channels")
    made = diagmem.emit_tflm(data)
    assert made.data.endswith(data)

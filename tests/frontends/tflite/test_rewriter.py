"""Rewriting a file leaves every old byte in its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tflite
from hypothesis import given
from hypothesis import strategies as st

from diagmem.frontends import tflite as frontend
from diagmem.frontends.tflite import writer as flatbuffer
from diagmem.model.errors import ModelError
from tests.backends.tflm import small_models
from tests.profiles import examples

REAL = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
SMALL = small_models.reshapes()


def buffer_places(data: bytes) -> dict[int, int]:
    """Where the bytes of each filled buffer start in the file."""
    model = tflite.Model.GetRootAs(data, 0)
    tables = {i: model.Buffers(i) for i in range(model.BuffersLength())}
    return {i: t._tab.Vector(t._tab.Offset(4)) for i, t in tables.items() if t.DataLength()}


def check_rewritten(old: bytes, new: bytes) -> None:
    """The old file stands whole at the end of the new one, 64-byte aligned, so that weights keep their alignment."""
    assert new.endswith(old)
    shift = len(new) - len(old)
    assert shift % 64 == 0
    before, after = buffer_places(old), buffer_places(new)
    assert {i: place - shift for i, place in after.items() if i in before} == before
    assert all(place % 16 == 0 for i, place in after.items() if i not in before)


@pytest.mark.parametrize("name", REAL)
def test_real_files_keep_every_byte(shared: Path, name: str) -> None:
    """The graph read from the new file is the same, and so are its old metadata."""
    old = (shared / "models" / "mlperf_tiny" / f"{name}.tflite").read_bytes()
    new = flatbuffer.rewritten(old, {"plan": b"\1\2\3", "note": b"x" * 100})
    check_rewritten(old, new)
    assert frontend.parse(new, name) == frontend.parse(old, name)
    for entry in ("min_runtime_version", "CONVERSION_METADATA"):
        assert flatbuffer.block(new, entry) == flatbuffer.block(old, entry)


@pytest.mark.parametrize("make", small_models.ALL)
def test_built_files_keep_every_byte(make: Callable[[], bytes]) -> None:
    """Files without any metadata gain them and lose nothing."""
    old = make()
    new = flatbuffer.rewritten(old, {"plan": b"\1\2\3"})
    check_rewritten(old, new)
    assert flatbuffer.block(new, "plan") == b"\1\2\3"
    assert frontend.parse(new, "model") == frontend.parse(old, "model")


@examples(30)
@given(st.dictionaries(st.text(max_size=40), st.binary(max_size=200), max_size=6), st.integers(0, 70))
def test_blocks_are_read_back(blocks: dict[str, bytes], tail: int) -> None:
    """Whatever is put in comes out, whatever follows the flatbuffer in the file stays behind it."""
    old = SMALL + bytes(tail)
    new = flatbuffer.rewritten(old, blocks)
    check_rewritten(old, new)
    assert {name: flatbuffer.block(new, name) for name in blocks} == blocks


def test_entry_of_the_same_name_is_replaced() -> None:
    """One entry of a name remains, the new one; others are kept."""
    first = flatbuffer.rewritten(SMALL, {"plan": b"old", "other": b"kept"})
    second = flatbuffer.rewritten(first, {"plan": b"new"})
    assert flatbuffer.block(second, "plan") == b"new"
    assert flatbuffer.block(second, "other") == b"kept"
    assert tflite.Model.GetRootAs(second, 0).MetadataLength() == 2


def test_absent_block_is_none() -> None:
    """A file without an entry says so."""
    assert flatbuffer.block(SMALL, "plan") is None


def test_operators_are_reordered() -> None:
    """Operators stand in the new order, each unchanged; tensors, inputs and outputs stay."""
    old = small_models.branches()
    before = frontend.parse(old, "model")
    order = [1, 2, 3, 0, 4]
    new = flatbuffer.rewritten(old, {}, order)
    check_rewritten(old, new)
    after = frontend.parse(new, "model")
    assert [(op.kind, op.inputs, op.outputs, op.attributes) for op in after.ops] == [
        (op.kind, op.inputs, op.outputs, op.attributes) for op in (before.ops[i] for i in order)
    ]
    assert (after.tensors, after.inputs, after.outputs) == (before.tensors, before.inputs, before.outputs)


def test_operators_that_an_order_leaves_out_come_first() -> None:
    """They prepare variables, and what was planned does not know them."""
    old = small_models.branches()
    before, after = (frontend.parse(data, "model") for data in (old, flatbuffer.rewritten(old, {}, [2, 3, 4])))
    assert [op.outputs for op in after.ops] == [op.outputs for op in before.ops]


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1, 2, 3, 3], [1, 2, 3, 4, 5]])
def test_order_that_is_none_is_refused(order: list[int]) -> None:
    """No operator may be named twice, nor one that is not there."""
    with pytest.raises(ModelError, match="each of the 5 operators once"):
        flatbuffer.rewritten(small_models.branches(), {}, order)


def test_data_behind_the_flatbuffer_is_refused() -> None:
    """Places counted from the file's start would be wrong in the new file, and TFLM does not know them."""
    data = bytearray(SMALL)
    buffer = tflite.Model.GetRootAs(data, 0).Buffers(1)
    # The table's only field, its data, becomes the field `offset`: slot 1 instead of slot 0.
    vtable = buffer._tab.Pos - int.from_bytes(data[buffer._tab.Pos : buffer._tab.Pos + 4], "little", signed=True)
    size = int.from_bytes(data[vtable : vtable + 2], "little")
    assert size == 6
    moved = (
        bytes(data)
        + (8).to_bytes(2, "little")
        + data[vtable + 2 : vtable + 4]
        + bytes(2)
        + data[vtable + 4 : vtable + 6]
    )
    data = bytearray(moved)
    data[buffer._tab.Pos : buffer._tab.Pos + 4] = (buffer._tab.Pos - (len(moved) - 8)).to_bytes(
        4, "little", signed=True
    )
    with pytest.raises(ModelError, match="behind its flatbuffer"):
        flatbuffer.rewritten(bytes(data), {})


def test_damaged_tables_are_refused() -> None:
    """An offset that points outside ends in one clear error."""
    data = bytearray(SMALL)
    data[0:4] = (len(data) - 2).to_bytes(4, "little")
    with pytest.raises(ModelError, match="damaged"):
        flatbuffer.block(bytes(data), "plan")
    with pytest.raises(ModelError, match="damaged"):
        flatbuffer.rewritten(bytes(data), {})

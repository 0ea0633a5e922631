"""A plan inside a file: what is written is read back, and what is damaged is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import pytest
import tflite as schema

from diagmem import __version__
from diagmem.backends.tflm import metadata
from diagmem.backends.tflm.greedy import ONLINE, layout
from diagmem.frontends import tflite
from diagmem.frontends.tflite import writer as flatbuffer
from diagmem.kernels import library
from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph
from tests.backends.tflm import small_models

SMALL = small_models.reshapes()
GRAPH = tflite.parse(SMALL, "reshapes")


def stock_plan(graph: Graph) -> list[int]:
    """The offsets that TFLM would choose itself; variables left to it."""
    found = layout(graph, [ONLINE] * len(graph.tensors), library("tflm-reference")).tensors
    return [found.get(t.index, ONLINE) for t in graph.tensors]


def with_block(block: bytes) -> bytes:
    return flatbuffer.rewritten(SMALL, {metadata.PLAN_ENTRY: block})


def packed(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}i", *words)


@pytest.mark.parametrize("make", small_models.ALL)
def test_plan_is_read_back(make: Callable[[], bytes]) -> None:
    """The same offsets, from a file that is otherwise the same."""
    data = make()
    graph = tflite.parse(data, "model")
    offsets = stock_plan(graph)
    planned = metadata.with_plan(data, graph, offsets, "tflm-reference")
    assert planned.endswith(data)
    assert metadata.offsets_in(planned, graph) == tuple(offsets)


def test_file_without_plan_has_none() -> None:
    """No entry, no plan, no origin."""
    assert metadata.offsets_in(SMALL, GRAPH) is None
    assert metadata.origin(SMALL) is None


def test_origin_names_tool_version_library_and_model() -> None:
    """The second entry is JSON that other tools can read."""
    planned = metadata.with_plan(SMALL, GRAPH, stock_plan(GRAPH), "cmsis-nn")
    assert json.loads(flatbuffer.block(planned, "diagmem") or b"") == {
        "tool": "diagmem",
        "version": __version__,
        "kernels": "cmsis-nn",
        "model_sha256": metadata.model_sha256(GRAPH),
        "source_bytes": len(SMALL),
    }


def test_plan_is_replaced_and_can_be_taken_out() -> None:
    """A second plan stands in the first one's place; cut off, the file is the old one; so nothing ever piles up."""
    first = metadata.with_plan(SMALL, GRAPH, stock_plan(GRAPH), "cmsis-nn")
    assert metadata.without_plan(first) == SMALL
    assert metadata.without_plan(SMALL) == SMALL
    second = metadata.with_plan(first, GRAPH, [-1] * len(GRAPH.tensors), "tflm-reference")
    assert set(metadata.offsets_in(second, GRAPH) or ()) == {-1}
    assert schema.Model.GetRootAs(second, 0).MetadataLength() == 2
    assert metadata.without_plan(second) == first


def test_hash_is_of_the_model_not_of_the_file() -> None:
    """It survives metadata and a new order of operations, and changes with a weight."""
    data = small_models.branches()
    expected = metadata.model_sha256(tflite.parse(data, "a"))
    again = flatbuffer.rewritten(data, {"x": b"y"}, [1, 2, 3, 0, 4])
    assert metadata.model_sha256(tflite.parse(again, "b")) == expected
    weights = next(t for t in tflite.parse(data, "a").tensors if t.data is not None and len(t.shape) == 4)
    assert weights.data is not None
    raw = weights.data.tobytes()
    changed = data.replace(raw, bytes([raw[0] ^ 1]) + raw[1:])
    assert metadata.model_sha256(tflite.parse(changed, "a")) != expected


def test_plan_for_another_model_is_refused() -> None:
    """Even if the number of tensors is the same."""
    planned = metadata.with_plan(SMALL, GRAPH, stock_plan(GRAPH), "tflm-reference")
    filters = next(t for t in GRAPH.tensors if t.data is not None and len(t.shape) == 4)
    assert filters.data is not None
    raw = filters.data.tobytes()
    retrained = planned.replace(raw, raw[::-1])
    with pytest.raises(ModelError, match=r"^[^\n]*made for another model[^\n]*$"):
        metadata.offsets_in(retrained, tflite.parse(retrained, "model"))


COUNT = len(GRAPH.tensors)
DAMAGED = {
    "empty": (b"", "cannot hold a plan"),
    "odd size": (packed(1, 1, COUNT, *[-1] * COUNT)[:-1], "cannot hold a plan"),
    "version": (packed(7, 1, COUNT, *[-1] * COUNT), "version 7"),
    "subgraphs": (packed(1, 2, COUNT, *[-1] * COUNT), "2 subgraphs"),
    "count": (packed(1, 1, COUNT + 1, *[-1] * (COUNT + 1)), "offsets, the model"),
    "negative count": (packed(1, 1, -1), "offsets, the model"),
    "truncated": (packed(1, 1, COUNT, *[-1] * (COUNT - 1)), "truncated or damaged"),
    "too long": (packed(1, 1, COUNT, *[-1] * (COUNT + 1)), "truncated or damaged"),
    "negative offset": (packed(1, 1, COUNT, -2, *[-1] * (COUNT - 1)), "has offset -2"),
    "huge offset": (packed(1, 1, COUNT, 2**31 - 1, *[-1] * (COUNT - 1)), "has offset 2147483647"),
}


@pytest.mark.parametrize(("block", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_plan_is_refused(block: bytes, message: str) -> None:
    """One line says what is wrong with it."""
    with pytest.raises(ModelError, match=rf"^[^\n]*{message}[^\n]*$"):
        metadata.offsets_in(with_block(block), GRAPH)


@pytest.mark.parametrize("note", [b"", b"{}", b"[1]", b"\xff", b'{"tool": 1}', b"[" * 100_000])
def test_damaged_origin_is_refused(note: bytes) -> None:
    """The second entry is not trusted either."""
    with pytest.raises(ModelError, match="'diagmem': it is damaged"):
        metadata.origin(flatbuffer.rewritten(SMALL, {metadata.ORIGIN_ENTRY: note}))


def test_plan_of_another_tool_is_read() -> None:
    """Vela writes version 0 and no origin, and may give constants an offset, which TFLM does not look at."""
    offsets = metadata.offsets_in(with_block(packed(0, 1, COUNT, *[32] * COUNT)), GRAPH)
    assert offsets == tuple(-1 if t.is_constant else 32 for t in GRAPH.tensors)


def test_bad_offsets_are_not_written() -> None:
    """A plan that TFLM could not run is refused before a file is made of it."""
    for bad in ([-1] * (COUNT - 1), [-7] * COUNT):
        with pytest.raises(ModelError, match="offset"):
            metadata.with_plan(SMALL, GRAPH, bad, "tflm-reference")

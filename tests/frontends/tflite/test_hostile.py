"""Damaged files end in one clear error: never another exception, never a long wait."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import diagmem
from diagmem.frontends import tflite
from diagmem.frontends.checks import check_wiring
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Op, Tensor
from diagmem.ops.elementwise.unary import Unary
from diagmem.reports.inspection import inspect
from diagmem.transforms.channel_ranges import Range
from tests.profiles import some
from tests.row_networks import with_values
from tests.tflite_files import file_of

SLOWEST_SECONDS = 5.0
EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x01000000)


def corrupted(data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Truncations, flipped bytes, words set to extreme values, and blocks copied over others; seeded."""
    rng = random.Random(seed)
    # Structure lies in the first and the last part of the file, weights in between: aim there more often.
    edges = [(0, len(data)), (0, min(len(data), 4096)), (max(0, len(data) - 32768), len(data))]
    for _ in range(count):
        low, high = rng.choice(edges)
        way = rng.choice(("truncate", "flip", "extreme", "copy"))
        changed = bytearray(data)
        if way == "truncate":
            changed = changed[: rng.randrange(low, high)]
        elif way == "flip":
            for _ in range(rng.choice((1, 1, 2, 8, 64))):
                changed[rng.randrange(low, high)] ^= 1 << rng.randrange(8)
        elif way == "extreme":
            for _ in range(rng.choice((1, 1, 3))):
                at = rng.randrange(low, high - 4) & ~3
                changed[at : at + 4] = rng.choice(EXTREMES).to_bytes(4, "little")
        else:
            size = rng.choice((4, 16, 64))
            source, target = (rng.randrange(low, high - size) for _ in range(2))
            changed[target : target + size] = changed[source : source + size]
        yield way, bytes(changed)


def check(data: bytes) -> bool:
    """Whether the file is accepted. Anything but acceptance or a one-line ModelError fails the test."""
    start, refusal = time.perf_counter(), ""
    try:
        inspect(tflite.parse(data, "model")).to_json()
    except ModelError as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert time.perf_counter() - start < SLOWEST_SECONDS
    return not refusal


@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8"])
def test_real_files_corrupted(shared: Path, name: str) -> None:
    """1,250 variants of each MLPerf Tiny file, fewer in a quick run; some are still sound, some are not."""
    data = (shared / "models" / "mlperf_tiny" / f"{name}.tflite").read_bytes()
    accepted = [check(variant) for _, variant in corrupted(data, some(1250), seed=7)]
    assert any(accepted)
    assert not all(accepted)


def test_truncated_at_every_byte_of_the_head(shared: Path) -> None:
    """No prefix of a file is accepted or crashes."""
    data = (shared / "models" / "mlperf_tiny" / "kws_ref_model.tflite").read_bytes()
    for size in [*range(2048), *range(2048, len(data), 97)]:
        assert not check(data[:size])


@pytest.mark.parametrize("shape", [(-1,), (2, 2**31 - 1)])
def test_constants_have_sizes(shape: tuple[int, ...]) -> None:
    """A constant whose shape is left open is damage: nobody works it out. So is one that no file can hold."""
    b = Builder("open", DType.FLOAT32)
    graph = with_values(b.graph(b.mean(b.input(1, 4, 4, 2), keep_dims=True)), 0)
    axes = next(t for t in graph.tensors if t.is_constant)
    tflite.parse(file_of(graph), "model")
    tensors = tuple(replace(t, shape=shape) if t.index == axes.index else t for t in graph.tensors)
    with pytest.raises(ModelError, match="a constant of shape"):
        tflite.parse(file_of(replace(graph, tensors=tensors)), "model")


def test_constants_without_values_cost_nothing() -> None:
    """A file without its weights may say that they are large: nobody makes a list of their channels."""
    constant = Tensor(0, "large", (1, 2**31 - 1), DType.INT8, is_constant=True)
    assert Range.of_constant(constant).low.strides == (0,)


@pytest.mark.parametrize(("kind", "may_be_unfilled"), [("CUSTOM:SignalFilterBankLog", False), ("CUSTOM:ethos-u", True)])
def test_only_unknown_operations_take_room_to_work_in(kind: str, may_be_unfilled: bool) -> None:
    """An input that nobody fills: operations that are known here would compute from noise."""
    tensors = tuple(Tensor(i, f"t{i}", (1, 8), DType.INT8) for i in range(2))
    graph = Graph("room", tensors, (Op(0, kind, (0,), (1,)),), (), (1,))
    if may_be_unfilled:
        check_wiring(graph)
    else:
        with pytest.raises(ModelError, match="which nothing produces"):
            check_wiring(graph)


def test_graphs_made_by_hand_have_sizes_too() -> None:
    """What holds no elements has no place in an arena, wherever the graph comes from."""
    tensors = tuple(Tensor(i, f"t{i}", (0,), DType.FLOAT32) for i in range(2))
    graph = Graph("nothing", tensors, (Op(0, "NEG", (0,), (1,), Unary()),), (0,), (1,))
    with pytest.raises(ModelError, match="holds no elements"):
        diagmem.plan(graph)

"""64-bit integers whose values fit into 32 bits become integers of 32; results are the same bit for bit."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import diagmem
from diagmem.model.graph import DType, Graph
from diagmem.ops import kinds
from diagmem.transforms import transformed
from tests.execution import run_planned, run_whole
from tests.networks import Net
from tests.profiles import some

WIDE, REAL, NARROW = DType.INT64, DType.FLOAT32, DType.INT32
SHAPE = (1, 3, 4, 2)


class Numbers(Net):
    """Operations on tensors of one shape, and constants."""

    def number(self, value: float, dtype: DType, *shape: int) -> int:
        made = self.tensor(shape, dtype, is_constant=True)
        self.tensors[made] = replace(self.tensors[made], data=np.full(shape, value, dtype.numpy))
        return made

    def apply(self, kind: str, *inputs: int, dtype: DType | None = None) -> int:
        return self.op(kind, kinds()[kind].decode(kind, None), *inputs, dtype=dtype)

    def by(self, kind: str, x: int, value: float) -> int:
        """Of a tensor and a number."""
        return self.apply(kind, x, self.number(value, self.tensors[x].dtype))

    def clamped(self, x: int, low: float, high: float) -> int:
        return self.by("MINIMUM", self.by("MAXIMUM", x, low), high)


def narrowed(graph: Graph) -> Graph:
    return transformed(graph, ["narrow-integers"])[0]


def wide_tensors(graph: Graph) -> int:
    """How many of those that an operation touches."""
    return sum(graph.tensors[t].dtype is WIDE for t in {t for op in graph.ops for t in (*op.inputs, *op.outputs)})


@pytest.mark.parametrize(
    ("factor", "offset", "fits"), [(2**23, 127, True), (2**23, 128, False), (-(2**23), -128, True)]
)
def test_up_to_the_last_number_that_fits(factor: int, offset: int, fits: bool) -> None:
    """255 * 2**23 + 2**23 - 1 does, and so does its opposite less 1."""
    net = Numbers()
    x = net.cast(net.clamped(net.input(*SHAPE, dtype=NARROW), 0, 255), WIDE)
    sums = net.by("ADD", net.by("MUL", x, factor), offset * 2**16)
    sums = net.by("ADD", sums, 2**16 - 1) if factor > 0 else sums
    graph = net.graph(net.cast(net.by("DIV", sums, 256), REAL))
    assert (wide_tensors(narrowed(graph)) == 0) == fits


@pytest.mark.parametrize(("factor", "fits"), [(7000, True), (8000, False)])
def test_a_range_of_real_numbers(factor: int, fits: bool) -> None:
    """A layer of clamped values, scaled in 64 bits: 18 products of 255 and 60, and some room for roundings."""
    net = Numbers(REAL)
    x = net.clamped(net.input(*SHAPE), 0, 255)
    layer = net.conv(x, 3)
    weights = net.ops[-1].inputs[1]
    net.tensors[weights] = replace(net.tensors[weights], data=np.full((3, 3, 3, 2), -60, np.float32))
    scaled = net.by("DIV", net.by("MUL", net.cast(layer, WIDE), factor), 4096)
    graph = net.graph(net.cast(scaled, REAL))
    assert (wide_tensors(narrowed(graph)) == 0) == fits
    inputs = [np.full(SHAPE, 300, np.float32)]
    assert np.array_equal(run_whole(narrowed(graph), inputs)[0], run_whole(graph, inputs)[0])


def test_what_the_caller_sees_stays() -> None:
    """Inputs and outputs, and with them all that an operation takes beside them."""
    net = Numbers()
    first, second = (net.cast(net.clamped(net.input(*SHAPE, dtype=NARROW), 0, 9), WIDE) for _ in range(2))
    graph = net.graph(net.cast(net.apply("ADD", first, net.input(*SHAPE, dtype=WIDE)), REAL), net.by("MUL", second, 3))
    assert narrowed(graph) is graph


def test_what_is_no_number_becomes_0() -> None:
    """A clamp that lets it through leaves a range without 0: from 3 to 9."""
    net = Numbers(REAL)
    above = net.apply("MAXIMUM", net.number(3, REAL), net.input(*SHAPE))
    x = net.cast(net.apply("MINIMUM", net.number(9, REAL), above), WIDE)
    low = net.by("SUB", net.by("SUB", net.by("MUL", x, 2**27), 2**31 - 1), 2**28)
    graph = net.graph(net.cast(low, REAL))
    inputs = [np.full(SHAPE, np.nan, np.float32)]
    assert run_whole(graph, inputs)[0].max() < -(2.0**31)
    assert np.array_equal(run_whole(narrowed(graph), inputs)[0], run_whole(graph, inputs)[0])


@pytest.mark.parametrize(
    ("kind", "value"), [("FLOOR_MOD", -7), ("DIV", 2**29), ("FLOOR_DIV", -(2**29)), ("MINIMUM", -4)]
)
def test_every_limit_counts(kind: str, value: int) -> None:
    """Numbers that are left small enough to be multiplied."""
    net = Numbers()
    x = net.cast(net.by("MAXIMUM", net.input(*SHAPE, dtype=NARROW), -8), WIDE)
    graph = net.graph(net.cast(net.by("MUL", net.by(kind, x, value), 2**28), REAL))
    assert wide_tensors(narrowed(graph)) == 0


@pytest.mark.parametrize(("kind", "most"), [("MUL", 46340), ("ADD", 2**30 - 1)])
def test_both_operands_count(kind: str, most: int) -> None:
    """Of two computed tensors, up to the largest numbers that fit, and one more."""
    for limit, fits in ((most, True), (most + 1, False)):
        net = Numbers()
        first, second = (net.cast(net.clamped(net.input(*SHAPE, dtype=NARROW), 0, limit), WIDE) for _ in range(2))
        graph = net.graph(net.cast(net.apply(kind, first, second), REAL))
        assert (wide_tensors(narrowed(graph)) == 0) == fits


@pytest.mark.parametrize(("kind", "dtype"), [("RANK", REAL), ("RANK", WIDE), ("SHAPE", REAL), ("SHAPE", WIDE)])
def test_sizes_are_no_values(kind: str, dtype: DType) -> None:
    """They have nothing to do with what the tensor holds, of whatever type it is."""
    net = Numbers()
    inside = net.cast(net.clamped(net.input(*SHAPE, dtype=NARROW), 0, 1), dtype)
    sizes = net.apply(kind, inside, dtype=WIDE)
    graph = net.graph(net.cast(net.by("ADD", sizes, 2**31 - 3), NARROW))
    assert wide_tensors(narrowed(graph)) == wide_tensors(graph)


PAIRS = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "FLOOR_DIV", "FLOOR_MOD")


def drawn(seed: int) -> Graph:
    """Any arithmetic on a few clamped integers, some of them beyond 32 bits."""
    rng, net = random.Random(seed), Numbers()
    real, whole = net.input(*SHAPE, dtype=REAL), net.input(*SHAPE, dtype=NARROW)
    found = [net.cast(net.clamped(real, -3, 2 ** rng.randrange(1, 20)), WIDE), net.cast(whole, WIDE)]
    for _ in range(rng.randrange(4, 12)):
        x, kind = rng.choice(found), rng.choice((*PAIRS, *PAIRS, "ABS", "NEG", "LIMITS", "CAST", "SELECT_V2"))
        value = rng.choice((-7, 1, 3, 255, 2 ** rng.randrange(5, 34)))
        if kind == "LIMITS":
            found.append(net.clamped(x, -value, abs(value)))
        elif kind == "CAST":
            found.append(net.cast(net.by("MUL", net.cast(x, REAL), 0.5), WIDE))
        elif kind == "SELECT_V2":
            condition = net.apply("LESS", x, net.number(value, WIDE), dtype=DType.BOOL)
            found.append(net.apply(kind, condition, x, rng.choice(found), dtype=WIDE))
        elif kind not in PAIRS:
            found.append(net.apply(kind, x))
        elif kind in PAIRS[:6] and rng.randrange(2) and kind != "DIV":
            found.append(net.apply(kind, x, rng.choice(found)))
        else:
            found.append(net.by(kind, x, value))
    return net.graph(*(net.cast(x, rng.choice((REAL, NARROW))) for x in found[-3:]))


def test_the_same_bit_for_bit() -> None:
    """Planned and run in one arena, on the ends of ranges and what is no number; some do fit, and some do not."""
    changed = 0
    for seed in range(some(200)):
        graph, rng = drawn(seed), np.random.default_rng(seed)
        less = narrowed(graph)
        changed += 0 < wide_tensors(less) < wide_tensors(graph)
        edges = np.array([0, 1, -1, 2**31 - 1, -(2**31)]), np.array([np.nan, np.inf, -np.inf, 1e30, 0.7])
        inputs = [rng.choice(edges[1], SHAPE).astype(np.float32), rng.choice(edges[0], SHAPE).astype(np.int32)]
        made = run_planned(diagmem.plan(less, schedule="best", skip="all").plan, inputs)
        for one, other in zip(made, run_whole(graph, inputs), strict=True):
            assert np.array_equal(one.reshape(-1), other.reshape(-1), equal_nan=one.dtype.kind == "f"), seed
    assert changed > some(200) // 4

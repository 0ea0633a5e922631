"""Several operations that are a function of one 8-bit tensor become a table; DEQUANTIZE goes where readers widen."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import diagmem
from diagmem.kernels.work import float_text
from diagmem.model.graph import DType, Graph, Quantisation, Rounding
from diagmem.ops import Activation
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.lookup import LOOKUP
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.reductions.reduce import Reduce
from diagmem.transforms import transformed
from diagmem.verification import reference
from tests.backends.c.models import compiler
from tests.networks import Net
from tests.profiles import examples

SHAPE = (1, 4, 8, 8)
"""As many elements as an 8-bit number has values."""


class Real(Net):
    """A network in float32 between 8-bit integers."""

    def stored(self, index: int, scale: float = 0.05, zero_point: int = 3, to_even: bool = False) -> int:
        rounding = Rounding.ONNX if to_even else Rounding.TFLITE
        found = Quantisation((scale,), (zero_point,), 0, rounding)
        self.tensors[index] = replace(self.tensors[index], quantisation=found)
        return index

    def image(self, *shape: int, dtype: DType = DType.INT8) -> int:
        return self.stored(self.input(*shape, dtype=dtype))

    def real(self, x: int) -> int:
        return self.op("DEQUANTIZE", Unary(), x, dtype=DType.FLOAT32)

    def small(self, x: int, scale: float = 0.03, to_even: bool = False) -> int:
        return self.stored(self.op("QUANTIZE", Unary(), x, dtype=DType.INT8), scale, -7, to_even)

    def axes(self) -> int:
        return self.constant(2, values=[1, 2])

    def number(self, value: float, count: int = 1) -> int:
        return self.tensor((count,), DType.FLOAT32, is_constant=True, data=np.full(count, value, np.float32))


def inputs_of(graph: Graph) -> list[list[np.ndarray]]:
    """Every value that an input can have is in it, once in order, once in disorder."""
    infos = [(graph.tensors[t].dtype.numpy, graph.tensors[t]) for t in graph.inputs]
    every = [np.resize(np.arange(np.iinfo(d).min, np.iinfo(d).max + 1), t.elems).astype(d) for d, t in infos]
    mixed = [np.random.default_rng(n).permutation(values) for n, values in enumerate(every)]
    return [[v.reshape(t.shape) for v, (_, t) in zip(some, infos, strict=True)] for some in (every, mixed)]


def left(graph: Graph, *names: str) -> list[str]:
    """The kinds of the operations that are left; every output is the same bit for bit."""
    less = transformed(graph, names)[0]
    for inputs in inputs_of(graph):
        whole, found = reference.run(graph, inputs), reference.run(less, inputs)
        assert all(whole[t].tobytes() == found[t].tobytes() for t in graph.outputs)
    return [op.kind for op in less.ops]


def test_a_function_in_several_steps() -> None:
    """x * sigmoid(x + 1) in float32, as quantisers leave it, is one table."""
    net = Real(DType.FLOAT32)
    x = net.image(*SHAPE)
    real = net.real(x)
    gate = net.op("LOGISTIC", Unary(), net.op("ADD", Binary(), real, net.number(1.0)))
    graph = net.graph(net.small(net.op("MUL", Binary(), real, gate)))
    assert left(graph, "tabulate") == [LOOKUP]


def test_two_functions_of_one_tensor() -> None:
    """Both read the integers; what dequantises them stays for a third reader alone."""
    for is_read in (False, True):
        net = Real(DType.FLOAT32)
        real = net.real(net.image(*SHAPE))
        made = [net.small(net.op(kind, Unary(), real)) for kind in ("TANH", "EXP")]
        more = [net.op("FLOOR", Unary(), real)] if is_read else []
        kinds = left(net.graph(*made, *more), "tabulate")
        assert sorted(kinds) == sorted([LOOKUP, LOOKUP, *["DEQUANTIZE", "FLOOR"] * is_read])


def test_what_stays() -> None:
    """A constant for each channel, a second tensor, a value that something else reads, one of another shape."""
    for case in (0, 1, 3, 4):
        net = Real(DType.FLOAT32)
        x, y = net.image(*SHAPE), net.image(*SHAPE)
        real, other = net.real(x), net.real(y)
        if case == 0:
            made = net.op("MUL", Binary(), real, net.number(0.5, SHAPE[-1]))
        elif case == 1:
            made = net.op("MUL", Binary(), real, other)
        elif case == 4:
            made = net.mean(real)
        else:
            made = net.op("TANH", Unary(), real)
        out = net.small(made)
        seen = {3: (out, net.op("ABS", Unary(), made))}.get(case, (out,))
        assert LOOKUP not in left(net.graph(*seen), "tabulate"), case


_STEPS = ("LOGISTIC", "TANH", "ABS", "NEG", "RELU", "SQUARE", "EXP", "FLOOR", "HARD_SWISH", "ELU")
_PAIRS = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")


def drawn(seed: int) -> Graph:
    """Any function of one tensor or two, with values in between that are stored, and that others read."""
    chance, net = random.Random(seed), Real(DType.FLOAT32)
    to_even = chance.random() < 0.5
    ints = [net.image(*SHAPE) for _ in range(chance.choice([1, 1, 1, 2]))]
    reals = [net.real(x) for x in ints]
    for _ in range(chance.randint(1, 7)):
        move, x = chance.random(), chance.choice(reals[-3:])
        if move < 0.4:
            reals.append(net.op(chance.choice(_STEPS), Unary(), x))
        elif move < 0.6:
            reals.append(net.op(chance.choice(_PAIRS), Binary(), x, net.number(chance.uniform(-2, 2))))
        elif move < 0.8:
            activation = chance.choice([Activation.NONE, Activation.RELU6])
            reals.append(net.op(chance.choice(("ADD", "MUL")), Binary(activation), x, chance.choice(reals)))
        else:
            ints.append(net.small(x, chance.uniform(0.01, 0.1), to_even))
            reals.append(net.real(ints[-1]))
    outputs = [net.small(reals[-1], 0.04, to_even)]
    outputs += [t for t in (*ints[1:], *reals) if t not in net.inputs and chance.random() < 0.05]
    return net.graph(*dict.fromkeys(outputs))


@examples(150)
@given(st.integers(0, 2**32))
def test_any_function_stays_the_same(seed: int) -> None:
    """Every value that goes in gives the bytes that it gave before, at all outputs."""
    graph = drawn(seed)
    with np.errstate(all="ignore"):
        kinds = left(graph, "drop-dead", "tabulate", "drop-dead")
    assert len(kinds) <= len(graph.ops)


def test_many_become_tables() -> None:
    """The drawn functions are not all too hard."""
    with np.errstate(all="ignore"):
        made = [[op.kind for op in transformed(drawn(seed), ["drop-dead", "tabulate"])[0].ops] for seed in range(60)]
    assert sum(LOOKUP in kinds for kinds in made) > 30


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize("kind", ["MEAN", "SUM"])
def test_sums_read_integers(kind: str, dtype: DType) -> None:
    """The real tensor is gone, and the C code makes the same bytes, whole and row by row."""
    compiler("gcc")
    net = Real(DType.FLOAT32)
    x = net.image(1, 16, 16, 4, dtype=dtype)
    graph = net.graph(net.op(kind, Reduce(keep_dims=True), net.real(x), net.axes()))
    assert left(graph, "narrow-inputs") == [f"CUSTOM:Diagmem{kind.title()}"]
    for schedule in ("best", "rows"):
        plan = diagmem.plan(graph, schedule=schedule)
        assert plan.arena_bytes <= 1024 + 16 + (16 if schedule == "rows" else 0)
        (verdict,) = diagmem.verify(graph, inputs=5, schedule=schedule)
        assert verdict.failure is None


def test_what_others_read_stays_real() -> None:
    """A second reader needs the real tensor, and so does the caller; integers of 16 bits have no such kernel."""
    for case in range(3):
        net = Real(DType.FLOAT32)
        real = net.real(net.image(1, 4, 4, 2, dtype=DType.INT16 if case == 2 else DType.INT8))
        mean = net.mean(real)
        outputs = (mean, net.op("EXP", Unary(), real)) if case == 0 else (mean, real) if case == 1 else (mean,)
        assert "DEQUANTIZE" in left(net.graph(*outputs), "narrow-inputs")


def test_what_stays_in_float32_is_named() -> None:
    """Of a network with integer layers alone; each kind once, with what to do about it. What only converts is not
    meant."""
    net = Real(DType.FLOAT32)
    x = net.image(1, 4, 4, 2)
    layer = net.stored(net.conv(x, 3))
    real = net.real(layer)
    outputs = [net.op("SUB", Binary(), real, net.op("SIGN", Unary(), real)), net.op("MEAN", Reduce(), real, net.axes())]
    graph = net.graph(*outputs)
    text = float_text(graph)
    assert text.startswith("3 of 5 ops run in float32"), text
    assert ": SIGN, SUB, MEAN; export them quantised, or" in text, text
    (only,) = (replace(graph, ops=graph.ops[:1], outputs=(layer,)),)
    assert float_text(only) == "" == float_text(drawn(1))

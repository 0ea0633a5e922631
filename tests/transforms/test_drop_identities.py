"""Ops that change no value that can reach them are gone; others stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diagmem.model.graph import DType, Graph, Quantisation
from diagmem.ops import Activation
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.transforms import transformed
from diagmem.verification import reference
from diagmem.verification.reference import sample_inputs
from tests.transforms.layers import IdleNet


def left(graph: Graph) -> list[str]:
    """The kinds of the ops that are left; they compute the same."""
    less = transformed(graph, ["drop-identities"])[0]
    for inputs in sample_inputs(graph, 2):
        whole, found = reference.run(graph, inputs), reference.run(less, inputs)
        assert all(whole[t].tobytes() == found[t].tobytes() for t in graph.outputs)
    return [op.kind for op in less.ops]


def begun(activation: Activation) -> tuple[IdleNet, int]:
    net = IdleNet(4)
    x = net.image(1, 4, 4, 3)
    conv = net.op("CONV_2D", Conv2D(activation=activation), x, net.weights((5, 1, 1, 3), 0))
    return net, net.scaled(conv, zero_point=3)


def ended(net: IdleNet, x: int) -> Graph:
    return net.graph(net.dense(x, 4, kernel=1))


@pytest.mark.parametrize(("activation", "stays"), [(Activation.RELU, False), (Activation.NONE, True)])
def test_a_relu_of_what_is_never_negative(activation: Activation, stays: bool) -> None:
    """It goes behind a layer that clamps already, and stays where something may be negative."""
    net, x = begun(activation)
    assert ("RELU" in left(ended(net, net.alike("RELU", Unary(), x)))) is stays


@pytest.mark.parametrize(("kind", "real", "goes"), [("MUL", 1.0, True), ("MUL", 0.5, False), ("ADD", 0.0, True)])
def test_constants_that_do_nothing(kind: str, real: float, goes: bool) -> None:
    """A product with one and a sum with zero go, if they are exact on every stored value."""
    net, x = begun(Activation.NONE)
    scale = Quantisation((1 / 64,), (0,))
    stored = np.full((5,), round(real * 64), np.int8)
    other = net.tensor((5,), DType.INT8, is_constant=True, data=stored, quantisation=scale)
    assert (kind not in left(ended(net, net.alike(kind, Binary(), x, other)))) is goes


def test_every_function_of_one_tensor_may_do_nothing() -> None:
    """PRELU with slopes of one, SELECT_V2 of always the same; RELU_0_TO_1 behind another. No table lists the kinds."""
    net, x = begun(Activation.NONE)
    scale, own = Quantisation((1 / 64,), (0,)), net.tensors[x].quantisation
    slopes = net.tensor((5,), DType.INT8, is_constant=True, data=np.full((5,), 64, np.int8), quantisation=scale)
    other = net.tensor((5,), DType.INT8, is_constant=True, data=np.zeros((5,), np.int8), quantisation=own)
    always = net.tensor((5,), DType.BOOL, is_constant=True, data=np.ones((5,), bool))
    x = net.alike("PRELU", None, x, slopes)
    x = net.op("SELECT_V2", None, always, x, other, dtype=DType.INT8)
    net.tensors[x] = replace(net.tensors[x], quantisation=own)
    x = net.alike("RELU_0_TO_1", Unary(), net.alike("RELU_0_TO_1", Unary(), x))
    assert left(ended(net, x)) == ["CONV_2D", "RELU_0_TO_1", "CONV_2D"]


@pytest.mark.parametrize(("factor", "goes"), [(0.25, True), (4.0, False)])
def test_there_and_back(factor: float, goes: bool) -> None:
    """To 16 bits of a finer scale and back is nothing; to a coarser one and back loses something."""
    net, x = begun(Activation.NONE)
    own = net.tensors[x].quantisation
    assert own is not None
    between = net.op("QUANTIZE", Unary(), x, dtype=DType.INT16)
    net.tensors[between] = replace(net.tensors[between], quantisation=Quantisation((own.scales[0] * factor,), (0,)))
    back = net.op("QUANTIZE", Unary(), between, dtype=DType.INT8)
    net.tensors[back] = replace(net.tensors[back], quantisation=own)
    graph = ended(net, back)
    assert left(graph).count("QUANTIZE") == (1 if goes else 2)


def test_what_the_caller_sees_stays() -> None:
    net, x = begun(Activation.RELU)
    assert "RELU" in left(net.graph(net.alike("RELU", Unary(), x)))

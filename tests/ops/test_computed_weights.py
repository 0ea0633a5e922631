"""Dense layers whose weights another operation makes, as converters write attention: products of matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.frontends.source import Source
from diagmem.model.graph import DType, Quantisation
from diagmem.ops import Activation
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.normalisation.softmax import Softmax
from diagmem.verification.places import CVerdict
from tests.networks import Net
from tests.tflite_files import file_of

REAL, INTS, NONE = DType.FLOAT32, DType.INT8, Activation.NONE


def dense(
    dtype: DType, rows: int, zero: int = 0, activation: Activation = Activation.NONE, is_input: bool = False
) -> bytes:
    """A layer, as a file: its weights are an input, or come from one."""
    net = Net(dtype)
    x, given = net.input(rows, 6), net.input(5, 6)
    weights = given if is_input else net.relu(given)
    made = net.op("FULLY_CONNECTED", FullyConnected(activation), x, weights)
    for t in (x, given, weights, made) if dtype is INTS else ():
        net.tensors[t] = replace(net.tensors[t], quantisation=Quantisation((0.05,), (zero,)))
    net.tensors[made] = replace(
        net.tensors[made], quantisation=net.tensors[made].quantisation and Quantisation((0.31,), (3,))
    )
    return file_of(net.graph(made))


def verified(content: bytes, **options: Any) -> CVerdict:
    (verdict,) = pipeline.verify(Source(content), on=["host"], inputs=12, **options)
    assert isinstance(verdict, CVerdict)
    assert verdict.ok, verdict.run.failure
    return verdict


@pytest.mark.parametrize("is_input", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 9])
@pytest.mark.parametrize(("dtype", "zero"), [(REAL, 0), (INTS, 0), (INTS, -7)])
def test_as_tensorflow_lite_micro(dtype: DType, zero: int, rows: int, is_input: bool) -> None:
    """Weights that are activations have a zero point like any other."""
    pytest.importorskip("tflite_micro", reason="needs TensorFlow Lite Micro to compare with")
    verdict = verified(dense(dtype, rows, zero, is_input=is_input))
    assert verdict.opinion.oracle == "tflm"
    assert not verdict.opinion.unseen


@pytest.mark.parametrize("options", [{"schedule": "rows"}, {"kernels": "diagmem-dsp"}, {"cores": 2}])
@pytest.mark.parametrize("dtype", [REAL, INTS])
def test_however_it_is_planned(dtype: DType, options: dict[str, Any]) -> None:
    verified(dense(dtype, 9), **options)


def test_attention() -> None:
    """Queries times keys, and their softmax times values, each a dense layer."""
    net = Net(REAL)
    queries, keys, values = (net.input(*shape) for shape in ((7, 4), (5, 4), (3, 5)))
    scores = net.op("FULLY_CONNECTED", FullyConnected(), queries, net.relu(keys))
    shares = net.op("SOFTMAX", Softmax(1.0), scores)
    made = net.op("FULLY_CONNECTED", FullyConnected(), shares, net.relu(values))
    assert not verified(file_of(net.graph(made))).opinion.unseen


def test_an_activation_of_integers_is_applied() -> None:
    assert verified(dense(INTS, 3, 0, Activation.RELU)).opinion.disagreement is None


def test_what_has_no_kernel_is_refused() -> None:
    """In one line that says why."""
    with pytest.raises(Exception, match="computed weights beside a bias, with several scales, or an activation"):
        verified(dense(REAL, 3, 0, Activation.RELU6))

"""A convolution between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND becomes a dilated one: the same bytes, in fewer ops."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem import pipeline
from diagmem.frontends.source import Source
from diagmem.model.graph import DType, Graph, Padding, Tensor
from diagmem.ops import Activation
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.transforms import transformed
from diagmem.verification import reference
from diagmem.verification.reference import sample_inputs
from tests.profiles import examples
from tests.row_networks import Lines, with_values

Pairs = list[list[int]]


class Blocked(Lines):
    """A builder of convolutions in blocks."""

    def apart(self, x: Tensor, block: list[int], pads: Pairs) -> Tensor:
        return self._op("SPACE_TO_BATCH_ND", None, x, self._ints("block", block), self._ints("pads", pads))

    def together(self, x: Tensor, block: list[int], crops: Pairs) -> Tensor:
        return self._op("BATCH_TO_SPACE_ND", None, x, self._ints("block", block), self._ints("crops", crops))

    def shifted(self, x: Tensor) -> Tensor:
        """Scaled and shifted by channel, as batch normalisation is."""
        return self.scale_and_shift(x)


def folded(graph: Graph) -> Graph:
    return transformed(graph, ["fold-dilation"])[0]


def blocked_net(seed: int) -> Graph:
    """Any block, kernel, padding and cropping, along one axis or two; a line as converters have it, with reshapes."""
    chance = random.Random(seed)
    b = Blocked(f"blocked{seed}", chance.choice([DType.INT8, DType.FLOAT32]))
    is_line = chance.random() < 0.4
    size, block = [chance.randint(3, 9) for _ in range(2)], [chance.randint(1, 3) for _ in range(2)]
    kernel = [chance.randint(1, 3) for _ in range(2)]
    if is_line:
        size, block, kernel = size[:1], block[:1], kernel[:1]
    x = b.relu(b.input(1, *size, chance.randint(1, 3)))
    pads: Pairs = []
    for n, (length, each, taps) in enumerate(zip(size, block, kernel, strict=True)):
        before, behind = chance.randint(0, 3), chance.randint(0, 3)
        behind += -(length + before + behind) % each + each * (taps if n < 2 else 0)
        pads.append([before, behind])
    padding = chance.choice([Padding.VALID, Padding.VALID, Padding.SAME])
    made = b.apart(x, block, pads)
    turned = chance.random() < 0.5
    if is_line:
        n, length, depth = made.shape
        made = b.reshaped(made, *((n, 1, length, depth) if turned else (n, length, 1, depth)))
        kernel = [1, *kernel] if turned else [*kernel, 1]
    activation = chance.choice([Activation.NONE, Activation.RELU])
    if chance.random() < 0.5:
        made = b.any_conv(made, chance.randint(1, 9), Conv2D(padding, activation=activation), (kernel[0], kernel[1]))
    else:
        made = b.any_depthwise(made, DepthwiseConv2D(padding, activation=activation), (kernel[0], kernel[1]))
    made = b.shifted(made) if chance.random() < 0.3 and b._dtype is DType.FLOAT32 else made
    made = b.relu(made) if chance.random() < 0.3 else made
    if is_line:
        made = b.reshaped(made, made.shape[0], max(made.shape[1:3]), made.shape[3])
    crops = [
        [chance.randint(0, pad[0]), chance.randint(0, min(pad[1], each - 1))]
        for pad, each in zip(pads, block, strict=True)
    ]
    spread = [length * each for length, each in zip(made.shape[1:], block, strict=False)]
    crops = [c if sum(c) < room else [0, 0] for c, room in zip(crops, spread, strict=True)]
    return with_values(b.graph(b.relu(b.together(made, block, crops))), seed)


@examples(60)
@given(st.integers(0, 100_000))
def test_the_result_is_the_same(seed: int) -> None:
    """Bit for bit, with the blocks and without."""
    graph = blocked_net(seed)
    less = folded(graph)
    (values,) = sample_inputs(graph, 1, seed)
    before, after = reference.run(graph, values), reference.run(less, values)
    for output in graph.outputs:
        np.testing.assert_array_equal(before[output], after[output])
    assert len(less.ops) in (len(graph.ops), len(graph.ops) - 2)


def test_most_are_folded() -> None:
    """But for those of which more is cropped than was padded."""
    kinds = [{op.kind for op in folded(blocked_net(seed)).ops} for seed in range(60)]
    assert sum("SPACE_TO_BATCH_ND" not in found for found in kinds) > 40


def usual(change: Callable[[Blocked, Tensor], Tensor] = lambda b, x: x, stride: int = 1, crop: int = 0) -> Graph:
    """Blocks of 2x2 around a convolution; what is changed behind it."""
    b = Blocked("usual", DType.FLOAT32)
    x = b.apart(b.relu(b.input(1, 8, 8, 2)), [2, 2], [[2, 2], [2, 2]])
    x = change(b, b.any_conv(x, 3, Conv2D(Padding.VALID, stride, stride), (3, 3)))
    return with_values(b.graph(b.relu(b.together(x, [2, 2], [[crop, 0], [0, crop]]))), 1)


def test_it_becomes_a_dilated_convolution() -> None:
    """As large as the image, and no larger than a convolution of it needs."""
    graph = usual(lambda b, x: b.relu(x))
    less = folded(graph)
    assert [op.kind for op in less.ops] == ["RELU", "CONV_2D", "RELU", "RELU"]
    assert (less.ops[1].attributes.dilation_h, less.ops[1].attributes.dilation_w) == (2, 2)
    made, kept = (pipeline.plan(graph, schedule="best", skip=skip) for skip in ((), ("fold-dilation",)))
    assert made.arena_bytes < kept.arena_bytes
    assert [removal.ops for removal in made.removals if removal.transform == "fold-dilation"] == [(1, 4)]


def two_readers() -> Graph:
    b = Blocked("two readers", DType.FLOAT32)
    x = b.apart(b.input(1, 8, 8, 2), [2, 2], [[2, 2], [2, 2]])
    made = b.together(b.any_conv(x, 3, Conv2D(Padding.VALID), (3, 3)), [2, 2], [[0, 0], [0, 0]])
    return replace(with_values(b.graph(made), 1), outputs=(1, 3))


def other_blocks() -> Graph:
    b = Blocked("other blocks", DType.FLOAT32)
    x = b.apart(b.input(1, 8, 8, 2), [2, 2], [[2, 2], [2, 2]])
    made = b.together(b.any_conv(x, 3, Conv2D(Padding.VALID), (3, 3)), [4, 1], [[0, 0], [0, 0]])
    return with_values(b.graph(made), 1)


def shifted_before() -> Graph:
    """What is padded is not 0 any more when the convolution reads it."""
    b = Blocked("shifted", DType.FLOAT32)
    x = b.shifted(b.apart(b.input(1, 8, 8, 2), [2, 2], [[2, 2], [2, 2]]))
    made = b.together(b.any_conv(x, 3, Conv2D(Padding.VALID), (3, 3)), [2, 2], [[0, 0], [0, 0]])
    return with_values(b.graph(made), 1)


def other_scale() -> Graph:
    b = Blocked("scales", DType.INT8)
    x = b.apart(b.input(1, 8, 8, 2), [2, 2], [[2, 2], [2, 2]])
    made = b.together(b.any_conv(x, 3, Conv2D(Padding.VALID), (3, 3)), [2, 2], [[0, 0], [0, 0]])
    graph = with_values(b.graph(made), 1)
    first = graph.tensors[0]
    assert first.quantisation is not None
    changed = replace(
        first, quantisation=replace(first.quantisation, zero_points=(first.quantisation.zero_points[0] + 1,))
    )
    return replace(graph, tensors=(changed, *graph.tensors[1:]))


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(two_readers(), id="the caller sees what is between"),
        pytest.param(other_blocks(), id="other blocks"),
        pytest.param(shifted_before(), id="shifted before"),
        pytest.param(other_scale(), id="another zero"),
        pytest.param(usual(stride=2), id="a stride"),
        pytest.param(usual(crop=3), id="more cropped than padded"),
        pytest.param(usual(lambda b, x: b.max_pool(x, 2)), id="a pool"),
    ],
)
def test_what_stays(graph: Graph) -> None:
    assert folded(graph) is graph


def test_a_converted_model(shared: Path) -> None:
    """Paddings that are computed, 36 images of which one remains."""
    graph = Source(shared / "models" / "more" / "dilated_conv.tflite").graph
    assert pipeline.plan(graph, schedule="best").arena_bytes == 64

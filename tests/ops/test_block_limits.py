"""The access model of kernels that work in blocks, held against the compiled kernels around every block's size.

Accesses and closed forms are compared with each other elsewhere; were both wrong in the same way, only the compiled
kernel would know. So each count of channels is run at the exact limit, where it must be right, and one element beyond,
where it must be seen to be wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from diagmem.kernels import library
from diagmem.model.graph import Node
from diagmem.ops import kinds
from diagmem.ops.c_call import TYPES
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.fitting import fitted, input_values
from diagmem.ops.matrix.fully_connected import FullyConnected
from diagmem.ops.numerics.weighted_sums import CHANNELS_OF_A_BLOCK
from diagmem.ops.sampling import activation, constant, node_of
from tests.ops.compiled import COMPILER, Job, compiled, overlapped
from tests.ops.drawing import is_supported

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")

CHANNELS = sorted(
    {c for block in (4, CHANNELS_OF_A_BLOCK) for many in (1, 2, 3) for c in range(block * many - 1, block * many + 2)}
    | {1, 2}
)
"""Around each multiple of the sizes of blocks and of those that kernels unroll by."""

SCALINGS, TRIES = 3, 8
"""An element that is lost need not show: an output may be at the end of its range already."""


def nodes_of(name: str) -> Iterator[Node]:
    """For each count of channels and each type, with one window of one tap and one of several, in several scales."""
    for channels in CHANNELS:
        for size in (1, 2):
            node = _node(name, channels, size)
            for turn in range(len(TYPES)):
                fit = (fitted(node, seed) for seed in range(turn, 99, len(TYPES)))
                yield from itertools.islice(filter(is_supported, fit), SCALINGS)


def _node(name: str, channels: int, size: int) -> Node:
    """`size`: of the window. Inputs are about as large as outputs, so that limits lie inside of them."""
    kind = kinds()[name]
    image = activation((1, 3, 3, channels))
    if name == "FULLY_CONNECTED":
        weights, bias = constant((channels, channels)), constant((channels,))
        return node_of(kind, name, FullyConnected(), [activation((2 + size, channels)), weights, bias])
    if name == "DEPTHWISE_CONV_2D":
        inputs = [image, constant((1, size, size, channels)), constant((channels,))]
        return node_of(kind, name, DepthwiseConv2D(), inputs)
    inputs = [image, constant((channels, size, size, channels)), constant((channels,))]
    return node_of(kind, name, Conv2D(), inputs)


@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_limits_are_those_of_the_compiled_kernel(name: str, tmp_path: Path) -> None:
    """At the limit outputs are right; one element beyond, each count of channels of each type is wrong some time."""
    nodes, diagmem = list(nodes_of(name)), library("diagmem")
    program = compiled(nodes, tmp_path)
    jobs: list[Job] = []
    about = []
    for index, node in enumerate(nodes):
        limit, unit = diagmem.separation(node, 0, 0), node.output.dtype.size_bytes
        assert limit is not None
        beyond = [] if limit <= -node.input(0).span_bytes else [limit - unit] * TRIES
        for separation in (limit, *beyond):
            values = input_values(node, np.random.default_rng(len(jobs)))
            place = overlapped(node, 0, 0, separation)
            jobs.append((index, place, place.filled(node, values)))
            about.append((separation == limit, kinds()[name].reference(node, values)[0]))
    wrong: dict[str, int] = {}
    for (index, place, _), (is_safe, wanted), found in zip(jobs, about, program.run(jobs), strict=True):
        out, window = nodes[index].output, nodes[index].input(1).shape
        is_right = np.array_equal(place.seen(found, out), wanted)
        assert is_right or not is_safe, nodes[index]
        if not is_safe:
            case = f"{out.dtype.value} {out.shape}, weights {window}"
            wrong[case] = wrong.get(case, 0) + (not is_right)
    assert len(wrong) > len(CHANNELS) * len(TYPES)
    assert not [case for case, times in wrong.items() if not times]

"""The access model of kernels that work in blocks, held against the compiled kernels around every block's size.

Accesses and closed forms are compared with each other elsewhere; were both wrong in the same way, only the compiled
kernel would know. So each count of channels is run at the exact limit, where it must be right, and one element beyond,
where it must be seen to be wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from diagmem.kernels import library
from diagmem.model.graph import Node
from diagmem.ops import InstructionSet, kinds
from diagmem.ops.c_call import TYPES, CCall
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.numerics.weighted_sums import CHANNELS_OF_A_BLOCK
from diagmem.ops.pooling.pool_2d import Pool2D
from tests.ops.compiled import COMPILER, Job, Place, compiled, overlapped, with_scratch
from tests.ops.drawing import is_supported
from tests.ops.fitting import fitted, input_values
from tests.ops.sampling import activation, constant, node_of

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")

CHANNELS = sorted(
    {c for block in (4, CHANNELS_OF_A_BLOCK) for many in (1, 2, 3) for c in range(block * many - 1, block * many + 2)}
    | {1, 2}
)
"""Around each multiple of the sizes of blocks and of those that kernels unroll by."""

SCALINGS, TRIES = 3, 8
"""An element that is lost need not show: an output may be at the end of its range already."""

KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "MAX_POOL_2D", "ADD", "MUL")


class Kernel(NamedTuple):
    """A node, one of the kernels for it, and how near its input may come."""

    node: Node
    call: CCall
    scratch_bytes: int
    separation: int

    @property
    def case(self) -> str:
        """What is seen to be wrong one element nearer: a kernel of the plan's choosing, a type, sizes."""
        out = self.node.output
        sizes = [t.shape for t in self.node.inputs if t is not None]
        return f"{self.call.function} {out.dtype.value} {sizes}"

    def at(self, separation: int) -> Place:
        return with_scratch(overlapped(self.node, 0, 0, separation), self.scratch_bytes)


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
    if name in ("ADD", "MUL"):
        return node_of(kind, name, Binary(), [image, constant((1, 1, 1, channels))])
    if name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        return node_of(kind, name, Pool2D(kernel_h=size, kernel_w=size), [image])
    if name == "FULLY_CONNECTED":
        weights, bias = constant((channels, channels)), constant((channels,))
        return node_of(kind, name, FullyConnected(), [activation((2 + size, channels)), weights, bias])
    if name == "DEPTHWISE_CONV_2D":
        inputs = [image, constant((1, size, size, channels)), constant((channels,))]
        return node_of(kind, name, DepthwiseConv2D(), inputs)
    inputs = [image, constant((channels, size, size, channels)), constant((channels,))]
    return node_of(kind, name, Conv2D(), inputs)


def in_plain_c(name: str) -> Iterator[Kernel]:
    diagmem = library("diagmem")
    for node in nodes_of(name):
        limit = diagmem.separation(node, 0, 0)
        assert limit is not None
        yield Kernel(node, kinds()[name].c_call(node), 0, limit)


def with_instructions(name: str, instructions: InstructionSet) -> Iterator[Kernel]:
    for node in nodes_of(name):
        for variant in kinds()[name].variants(node, instructions):
            limit = kinds()[name].separation(node, 0, variant.order)
            yield Kernel(node, variant.call(node), variant.scratch_bytes, limit)


def wrong_beyond(kernels: Sequence[Kernel], directory: Path) -> dict[str, int]:
    """Case -> how often it was wrong one element beyond its limit. At the limit it must be right."""
    program = compiled([kernel.node for kernel in kernels], directory, calls=[kernel.call for kernel in kernels])
    jobs: list[Job] = []
    about = []
    for index, kernel in enumerate(kernels):
        node, limit = kernel.node, kernel.separation
        beyond = [] if limit <= -node.input(0).span_bytes else [limit - node.output.dtype.size_bytes] * TRIES
        for separation in (limit, *beyond):
            values = input_values(node, np.random.default_rng(len(jobs)))
            place = kernel.at(separation)
            jobs.append((index, place, place.filled(node, values)))
            about.append((separation == limit, kinds()[node.op.kind].reference(node, values)[0]))
    wrong: dict[str, int] = {}
    for (index, place, _), (is_safe, wanted), found in zip(jobs, about, program.run(jobs), strict=True):
        kernel = kernels[index]
        is_right = np.array_equal(place.seen(found, kernel.node.output), wanted)
        assert is_right or not is_safe, kernel
        if not is_safe:
            wrong[kernel.case] = wrong.get(kernel.case, 0) + (not is_right)
    return wrong


@pytest.mark.parametrize("name", KINDS)
def test_limits_are_those_of_the_compiled_kernel(name: str, tmp_path: Path) -> None:
    """At the limit outputs are right; one element beyond, each count of channels of each type is wrong some time."""
    wrong = wrong_beyond(list(in_plain_c(name)), tmp_path)
    assert len(wrong) > len(CHANNELS)
    assert not [case for case, times in wrong.items() if not times]


@pytest.mark.parametrize("instructions", InstructionSet)
@pytest.mark.parametrize("name", KINDS)
def test_limits_of_every_variant(name: str, instructions: InstructionSet, tmp_path: Path) -> None:
    """The same of each kernel that uses more than plain C."""
    wrong = wrong_beyond(list(with_instructions(name, instructions)), tmp_path)
    assert len(wrong) > len(CHANNELS) // 4
    assert not [case for case, times in wrong.items() if not times]

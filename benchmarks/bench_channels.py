"""Instructions of a pointwise, a depthwise and again a pointwise layer, by the number of channels between them.

What `channel_block` of a kernel library says is read off this table: from how many channels on it is faster to compute
some more, so that a block is whole.

    python benchmarks/bench_channels.py [cortex-m3 cortex-m4 cortex-m55]
"""

from __future__ import annotations

import sys

import diagmem
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import RELU, Builder
from diagmem.model.graph import DType

COUNTS = (*range(1, 9), *range(17, 25))
PIXELS, WIDE = 8, 24


def network(channels: int) -> bytes:
    """A .tflite file with random weights."""
    builder = Builder("channels", DType.INT8)
    x = builder.conv(builder.input(1, PIXELS, PIXELS, WIDE), channels, 1, activation=RELU)
    x = builder.depthwise(x, 3, activation=RELU)
    return to_tflite(builder.graph(builder.conv(x, WIDE, 1, activation=RELU)))


def main(cores: list[str]) -> None:
    print("channels", *(f"{core:>12}" for core in cores))
    for channels in COUNTS:
        found = [diagmem.profile(network(channels), on=core) for core in cores]
        print(f"{channels:8}", *(f"{sum(op.instructions for op in one.ops):12,}" for one in found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["cortex-m3", "cortex-m4", "cortex-m55"])

"""A thousand networks of one family, scored by RAM, flash and multiply-accumulates, and the best of them drawn.

    python examples/architecture_search.py front.svg                        # on all cores of this machine
    python examples/architecture_search.py front.svg dask://10.0.0.5:8786   # on a Dask cluster

The family is that of MobileNet v1 in 8 bit: its width, the side of its image, and how often its middle block is there.
A network that cannot fit the chip is known by its bound, in milliseconds, and is not planned.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import diagmem
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType, Graph, Padding

CHIP = "STM32F401RE"
WIDTHS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.75)
SIDES = (48, 64, 80, 96, 112, 128, 144, 160, 176, 192)
DEPTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)


class Scored(NamedTuple):
    """`ram_bytes`: the arena; None if its bound is more than the chip has."""

    width: float
    side: int
    depth: int
    ram_bytes: int | None
    flash_bytes: int
    macs: int


def network(width: float, side: int, depth: int) -> Graph:
    """One of the family."""

    def channels(full: int) -> int:
        return max(8, int(full * width))

    b = Builder("candidate", DType.INT8)
    x = b.conv(b.input(1, side, side, 3), channels(32), 3, stride=2)
    middle = ((512, 1),) * depth
    for full, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *middle, (1024, 2)):
        x = b.conv(b.depthwise(x, 3, stride), channels(full), 1)
    pooled = b.average_pool(x, (x.shape[1], x.shape[2]), padding=Padding.VALID)
    return b.graph(b.softmax(b.flatten(b.conv(pooled, 2, 1))))


def scored(candidate: tuple[float, int, int], limit_bytes: int) -> Scored:
    """What a worker does. Only numbers travel."""
    graph = network(*candidate)
    seen = diagmem.inspect(graph)
    fits = diagmem.bound(graph).overlapped_bytes <= limit_bytes
    ram = diagmem.plan(graph, schedule="best", effort="quick", skip="all").arena_bytes if fits else None
    return Scored(*candidate, ram, seen.weights_bytes, sum(seen.macs))


def front(found: Sequence[Scored]) -> list[Scored]:
    """Those that no other one beats: more work for less RAM. Work stands for accuracy here; put in your own."""
    best: list[Scored] = []
    for one in sorted(found, key=lambda s: (s.ram_bytes or 0, -s.macs)):
        if not best or one.macs > best[-1].macs:
            best.append(one)
    return best


def drawn(found: Sequence[Scored], best: Sequence[Scored]) -> str:
    """RAM across, multiply-accumulates up, the front as a line."""
    most_ram, most_macs = max(s.ram_bytes or 0 for s in found), max(s.macs for s in found)

    def at(s: Scored) -> tuple[float, float]:
        return 60 + 680 * (s.ram_bytes or 0) / most_ram, 440 - 400 * s.macs / most_macs

    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="#9aa5b1"/>' for x, y in map(at, found))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, best))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 480" font-family="sans-serif" font-size="13">'
        f'<rect width="760" height="480" fill="white"/>{dots}'
        f'<polyline points="{line}" fill="none" stroke="#d9480f" stroke-width="2"/>'
        f'<text x="60" y="465">RAM, to {most_ram:,} bytes</text>'
        f'<text x="10" y="25">multiply-accumulates, to {most_macs:,}</text></svg>\n'
    )


def on(place: str | None) -> Executor:
    if place is None:
        return ProcessPoolExecutor(os.cpu_count())
    from distributed import Client

    executor: Executor = Client(place.replace("dask://", "tcp://")).get_executor()
    return executor


def main() -> None:
    chip = next(target for target in diagmem.known_targets() if target.name == CHIP)
    candidates = list(product(WIDTHS, SIDES, DEPTHS))
    begin = time.perf_counter()
    with on(sys.argv[2] if len(sys.argv) > 2 else None) as executor:
        everything = list(executor.map(scored, candidates, [chip.largest_region[1]] * len(candidates)))
    seconds = time.perf_counter() - begin
    found = [one for one in everything if one.ram_bytes is not None and one.flash_bytes <= chip.flash_bytes]
    best = front(found)
    rate = f"{len(candidates)} candidates in {seconds:.1f} s, {len(candidates) / seconds:.0f} a second"
    print(f"{rate}; {len(found)} fit {CHIP}")
    for one in best:
        shape = f"width {one.width}, {one.side} x {one.side}, {one.depth} times"
        print(f"{one.ram_bytes:>9,} B RAM {one.flash_bytes:>9,} B flash {one.macs:>12,} MACs  {shape}")
    Path(sys.argv[1]).write_text(drawn(found, best))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()

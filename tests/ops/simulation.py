"""Memory, byte by byte: does a kernel still read what its input held, when input and output share addresses?

Plain loops on purpose, and nothing of the package but the runs' definition: this is what the clever code is held
against.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from diagmem.model.graph import Tensor
from diagmem.ops.accesses import Accesses, Runs


def by_step(runs: Runs | None) -> dict[int, list[int]]:
    """Step -> elements touched at it."""
    found: dict[int, list[int]] = defaultdict(list)
    if runs is not None:
        columns = (runs.start, runs.length, runs.pitch, runs.step, runs.stride, runs.hold)
        for start, length, pitch, step, stride, hold in zip(*(c.tolist() for c in columns), strict=True):
            for k in range(length):
                for held in range(hold):
                    found[step + k * stride + held].append(start + k * pitch)
    return found


def places(tensor: Tensor) -> list[int]:
    """Where each element lies, counted in elements from the first."""
    indices = itertools.product(*(range(size) for size in tensor.shape))
    return [sum(i * stride for i, stride in zip(index, tensor.strides, strict=True)) for index in indices]


def survives(
    accesses: Accesses,
    position: int,
    output: int,
    sizes: tuple[int, int],
    separation: int,
    at: tuple[Sequence[int], Sequence[int]] | None = None,
) -> bool:
    """Whether every read finds its value, with the output at address 0 and the input at `separation`.

    `sizes`: bytes of an element of the input and of the output. `at`: where their elements lie, if not one after
    another.
    """
    in_size, out_size = sizes
    in_places, out_places = at or (range(1 << 40), range(1 << 40))
    reads, writes = by_step(accesses.reads[position]), by_step(accesses.writes[output])
    clobbered: set[int] = set()
    for step in range(accesses.steps):
        for element in reads.get(step, ()):
            address = separation + in_places[element] * in_size
            if not clobbered.isdisjoint(range(address, address + in_size)):
                return False
        for element in writes.get(step, ()):
            clobbered.update(range(out_places[element] * out_size, (out_places[element] + 1) * out_size))
    return True

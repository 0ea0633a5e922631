"""Memory, byte by byte: does a kernel still read what its input held, when input and output share addresses?

Plain loops on purpose, and nothing of the package but the runs' definition: this is what the clever code is held
against.
"""

from __future__ import annotations

from collections import defaultdict

from diagmem.accesses import Accesses, Runs


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


def survives(accesses: Accesses, position: int, output: int, sizes: tuple[int, int], separation: int) -> bool:
    """Whether every read finds its value, with the output at address 0 and the input at `separation`.

    `sizes`: bytes of an element of the input and of the output.
    """
    in_size, out_size = sizes
    reads, writes = by_step(accesses.reads[position]), by_step(accesses.writes[output])
    clobbered: set[int] = set()
    for step in range(accesses.steps):
        for element in reads.get(step, ()):
            address = separation + element * in_size
            if not clobbered.isdisjoint(range(address, address + in_size)):
                return False
        for element in writes.get(step, ()):
            clobbered.update(range(element * out_size, (element + 1) * out_size))
    return True

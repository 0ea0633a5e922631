"""What an operation touches, step by step: the truth that overlaps are computed from and checked against.

A *step* is one pass through the kernel's innermost loop: it reads first, then writes. Offsets are in elements of the
tensor that is touched. Millions of touches are written as few numbers, as runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import IntArray, Node, Tensor

Ints = int | npt.ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Touches of one tensor. Run j touches element `start + k*pitch`, for k in [0, length), at every step of
    [step + k*stride, step + k*stride + hold). All six arrays have one entry for each run.

    stride 0: the whole run is touched at once (a convolution's window, read anew for all output channels).
    stride 1, hold 1: the run is swept, one element at a step (element-wise, copies, outputs).
    """

    start: IntArray
    length: IntArray
    pitch: IntArray
    step: IntArray
    stride: IntArray
    hold: IntArray

    @classmethod
    def of(cls, start: Ints, length: Ints, step: Ints, *, pitch: Ints = 1, stride: Ints = 1, hold: Ints = 1) -> Runs:
        """Builds runs from arrays or single numbers, broadcast against each other; empty runs are dropped."""
        arrays = np.broadcast_arrays(
            *(np.asarray(v, dtype=np.int64) for v in (start, length, pitch, step, stride, hold))
        )
        flat = [a.reshape(-1) for a in arrays]
        kept = flat[1] > 0
        # What is the same for all runs takes no memory, as long as none is dropped.
        return cls(*(flat if kept.all() else (np.ascontiguousarray(a[kept]) for a in flat)))

    @classmethod
    def sweep(cls, elems: int) -> Runs:
        """Element i at step i: element-wise reads, and the output of most kernels."""
        return cls.of(0, elems, 0)

    @classmethod
    def none(cls) -> Runs:
        """Nothing is touched."""
        return cls.of(0, 0, 0)

    @classmethod
    def join(cls, *parts: Runs) -> Runs:
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__slots__))

    @property
    def last_steps(self) -> IntArray:
        """The last step of each run."""
        last: IntArray = self.step + (self.length - 1) * self.stride + self.hold - 1
        return last

    def picked(self, which: IntArray | npt.NDArray[np.bool_] | slice) -> Runs:
        """Some of the runs."""
        return Runs(*(getattr(self, name)[which] for name in self.__slots__))

    def parts(self, most: int) -> Iterator[Runs]:
        """The runs cut where so many touches have come together; a longer run is a part of its own."""
        ends = np.cumsum(self.length)
        begin = 0
        while begin < len(ends):
            done = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + most, side="right")))
            yield self.picked(slice(begin, end))
            begin = end

    def touches(self) -> tuple[IntArray, IntArray, IntArray]:
        """Every touch written out: element, first step, last step (closed) at which it is touched."""
        if (self.length == 1).all():
            return self.start, self.step, self.step + self.hold - 1
        k = np.arange(int(self.length.sum()), dtype=np.int64)
        k -= np.repeat(np.cumsum(self.length) - self.length, self.length)
        first = np.repeat(self.step, self.length) + k * np.repeat(self.stride, self.length)
        elems = np.repeat(self.start, self.length) + k * np.repeat(self.pitch, self.length)
        return elems, first, first + np.repeat(self.hold, self.length) - 1


@dataclass(frozen=True, slots=True)
class Accesses:
    """One operation, run whole. `reads` has an entry for each input (None: constant or absent), `writes` for each
    output."""

    steps: int
    reads: tuple[Runs | None, ...]
    writes: tuple[Runs, ...]


def last_reads(runs: Runs, elems: int) -> IntArray:
    """For each element, the last step that reads it; -1 where none does."""
    last = np.full(elems, -1, dtype=np.int64)
    element, _, step = runs.touches()
    np.maximum.at(last, element, step)
    return last


def replayed_separation(
    accesses: Accesses,
    position: int,
    output: int,
    in_size: int,
    out_size: int,
    in_places: IntArray | None = None,
    out_places: IntArray | None = None,
) -> int | None:
    """separation(output below, input above) in bytes, by the definition: the paper's algorithmic method. `in_places`,
    `out_places`: where each element lies, of tensors that are not in one piece.

    With maxW the prefix maximum of write ends and minR the suffix minimum of reads still to come, it is the largest
    maxW[i] - minR[i]. None where no write precedes a read: any placement is safe.
    """
    reads = accesses.reads[position]
    if reads is None:
        return None
    written, first, _ = accesses.writes[output].touches()
    written = written if out_places is None else out_places[written]
    max_w = np.zeros(accesses.steps, dtype=np.int64)
    np.maximum.at(max_w, first, (written + 1) * out_size)
    np.maximum.accumulate(max_w, out=max_w)

    read, _, last = reads.touches()
    read = read if in_places is None else in_places[read]
    far = np.iinfo(np.int64).max // 2
    min_r = np.full(accesses.steps, far, dtype=np.int64)
    np.minimum.at(min_r, last, read * in_size)
    min_r = np.minimum.accumulate(min_r[::-1])[::-1]

    # After step i: what has been written up to i, against what is read from step i + 1 on.
    meets = (max_w[:-1] > 0) & (min_r[1:] < far)
    if not meets.any():
        return None
    return int((max_w[:-1] - min_r[1:])[meets].max())


def node_reads(node: Node, hold: int, given: Mapping[int, Runs] | None = None) -> tuple[Runs | None, ...]:
    """For each input None where it is constant or absent, else what is `given`, else all of it for `hold` steps."""

    def read(position: int, tensor: Tensor | None) -> Runs | None:
        if tensor is None or tensor.is_constant:
            return None
        return (given or {}).get(position) or Runs.of(0, tensor.elems, 0, stride=0, hold=hold)

    return tuple(read(position, tensor) for position, tensor in enumerate(node.inputs))


def unknown_accesses(node: Node) -> Accesses:
    """An operation whose touches depend on values that only a run knows: every input is read until all is written."""
    return Accesses(2, node_reads(node, 2), tuple(Runs.of(0, t.elems, 0, stride=0) for t in node.outputs))

"""Operations that only move elements, or that read one element of each input for each element of the output.

Concatenation, slices, padding, transposition, gathering: each kernel is one table of chunks, in the order in which it
handles them. Along a chunk both the write and the read move evenly, and what is written already never shrinks; so the
largest distance between the two lies at an end of a chunk, and a look at the ends gives the exact separation.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import IntArray, Node, Pieces, Shape, Strides, distinct, pieces, row_major_strides
from diagmem.ops.accesses import Accesses, Ints, Runs, unknown_accesses
from diagmem.ops.c_call import CCall, CStretch, CTable, Unsupported, joined_axes, kernel_call, outermost, require_types
from diagmem.ops.kind import Array, OpKind, Values, unless_computed
from diagmem.ops.orders import Order

FILL = -(1 << 48)
"""A source that does not exist: the element gets a fill value. It stays below zero when offsets are added to it."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunk j moves `length` elements of input `position`, from `source` on, `pitch` apart, to `output` from `target`
    on. A source below zero: nothing is read, the elements are filled. All arrays have one entry for each chunk.

    An element takes one step; where `at_once`, a chunk takes two, all writes before all reads, so that no overlap
    inside a chunk counts as safe.
    """

    position: IntArray
    source: IntArray
    pitch: IntArray
    output: IntArray
    target: IntArray
    length: IntArray
    at_once: bool = False

    @classmethod
    def of(cls, source: Ints, length: Ints, *, pitch: Ints = 1, position: Ints = 0, output: Ints = 0) -> Chunks:
        """Chunks that write each output from its start to its end. Arrays or single numbers, broadcast against each
        other; empty chunks are dropped."""
        arrays = np.broadcast_arrays(
            *(np.asarray(v, dtype=np.int64) for v in (position, source, pitch, output, length))
        )
        kept = arrays[-1] > 0
        at, start, apart, to, count = (np.ascontiguousarray(a[kept]) for a in arrays)
        return cls(at, start, apart, to, _forward_targets(to, count), count)

    def sorted_by(self, key: IntArray) -> Chunks:
        """The same chunks in ascending order of `key`, otherwise in the order they had."""
        order = np.argsort(key, kind="stable")
        columns = ("position", "source", "pitch", "output", "target", "length")
        return replace(self, **{name: getattr(self, name)[order] for name in columns})

    def moved_at_once(self) -> Chunks:
        return replace(self, at_once=True)

    @property
    def steps(self) -> int:
        return 2 * len(self.length) if self.at_once else int(self.length.sum())

    def reads(self, position: int) -> Runs:
        picked = self._reading(position)
        source, length, pitch = self.source[picked], self.length[picked], self.pitch[picked]
        if self.at_once:
            return Runs.of(source, length, 2 * np.flatnonzero(picked) + 1, pitch=pitch, stride=0)
        return Runs.of(source, length, _before(self.length)[picked], pitch=pitch)

    def writes(self, output: int) -> Runs:
        picked = self.output == output
        target, length = self.target[picked], self.length[picked]
        if self.at_once:
            return Runs.of(target, length, 2 * np.flatnonzero(picked), stride=0)
        return Runs.of(target, length, _before(self.length)[picked])

    def separation(self, position: int, output: int, in_size: int, out_size: int) -> int | None:
        """separation(output below, input above) in bytes, exact; None where no read follows a write."""
        reading = self._reading(position)
        distances = np.concatenate(
            [
                (written * out_size - read * in_size)[reading & (written > 0)]
                for written, read in self._ends_of_chunks(output)
            ]
        )
        return int(distances.max()) if len(distances) else None

    def laid_out(self, node: Node) -> Chunks:
        """The same moves between places in memory, where the node's tensors are not all in one piece."""
        inputs = {p: pieces(t.shape, t.strides) for p, t in node.activations() if not t.is_in_one_piece}
        outputs = {o: pieces(t.shape, t.strides) for o, t in enumerate(node.outputs) if not t.is_in_one_piece}
        if not inputs and not outputs:
            return self
        cut = self._cut(inputs, outputs)
        source, target = cut.source.copy(), cut.target.copy()
        for position, found in inputs.items():
            picked = cut._reading(position)
            source[picked] = found.places_of(source[picked])
        for output, found in outputs.items():
            picked = cut.output == output
            target[picked] = found.places_of(target[picked])
        return replace(cut, source=source, target=target)

    def _cut(self, inputs: Mapping[int, Pieces], outputs: Mapping[int, Pieces]) -> Chunks:
        """The same chunks, cut where a piece of an input or output ends."""
        begin = _before(self.length)
        cuts = [begin]
        for output, found in outputs.items():
            cuts.append(_ends_of_pieces(begin, self.target, self.length, self.output == output, found.length))
        for position, found in inputs.items():
            even = self.pitch == 1
            read = self._reading(position)
            cuts.append(_ends_of_pieces(begin, self.source, self.length, read & even, found.length))
            cuts.append(_ends_of_pieces(begin, self.source, self.length, read & ~even & (self.pitch != 0), 1))
        starts = distinct(np.concatenate(cuts))
        chunk = np.searchsorted(begin, starts, side="right") - 1
        k = starts - begin[chunk]
        columns = {name: getattr(self, name)[chunk] for name in ("position", "pitch", "output")}
        return replace(
            self,
            **columns,
            source=self.source[chunk] + k * self.pitch[chunk],
            target=self.target[chunk] + k,
            length=np.diff(np.append(starts, self.length.sum())),
        )

    def moved(self, inputs: Values, outputs: Sequence[Array]) -> None:
        """Moves what the chunks say from the inputs into the outputs, which hold the fill value."""
        for output, target in enumerate(outputs):
            for position in distinct(self.position):
                picked = self._reading(position) & (self.output == output)
                length = self.length[picked]
                k = np.arange(length.sum()) - np.repeat(_before(length), length)
                source = np.repeat(self.source[picked], length) + k * np.repeat(self.pitch[picked], length)
                target.reshape(-1)[np.repeat(self.target[picked], length) + k] = inputs[position].reshape(-1)[source]

    def _reading(self, position: int) -> npt.NDArray[np.bool_]:
        reading: npt.NDArray[np.bool_] = (self.position == position) & (self.source >= 0)
        return reading

    def _ends_of_chunks(self, output: int) -> Iterator[tuple[IntArray, IntArray]]:
        """For each chunk: the end of what is written of `output` when it reads, and the element that it reads. A pair
        of arrays for each place in a chunk where the distance may be largest; 0 is written where it does not exist."""
        own, last = self.output == output, self.length - 1
        written = np.maximum.accumulate(np.where(own, self.target + self.length, 0))
        if self.at_once:
            yield written, self.source + np.minimum(0, self.pitch * last)
            return
        before = np.concatenate([[0], written])[: len(written)]
        yield before, self.source
        # From the second element on, the chunk's own writes count; they may lie behind a gap.
        for k in (np.minimum(1, last), last):
            yield np.where(last > 0, np.maximum(before, own * (self.target + k)), 0), self.source + k * self.pitch


class RearrangeKind(OpKind):
    """An op kind whose kernel is a table of chunks."""

    def only_moves(self, name: str) -> bool:
        return True

    @abstractmethod
    def moves(self, node: Node, order: Order) -> Chunks:
        """The table; raises Computed where it depends on values that are not constant in the file."""

    @unless_computed
    def chunks(self, node: Node, order: Order) -> Chunks:
        """The table; None where it depends on values that are not constant in the file."""
        return self.moves(node, order)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        outputs = tuple(np.full(t.shape, self.fill(node), t.dtype.numpy) for t in node.outputs)
        self.moves(node, Order.REFERENCE).moved(inputs, outputs)
        return outputs

    def fill(self, node: Node) -> int:
        """The stored value of elements that are not moved from anywhere."""
        return 0

    def accesses(self, node: Node, order: Order) -> Accesses:
        chunks = self.chunks(node, order)
        if chunks is None:
            return unknown_accesses(node)
        reads = (None if t is None or t.is_constant else chunks.reads(p) for p, t in enumerate(node.inputs))
        return Accesses(chunks.steps, tuple(reads), tuple(chunks.writes(o) for o in range(len(node.outputs))))

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        tensor, out = node.input(position), node.outputs[output]
        chunks = self.chunks(node, order)
        if chunks is None:
            return out.span_bytes
        return chunks.laid_out(node).separation(position, output, tensor.dtype.size_bytes, out.dtype.size_bytes)


def strided(shape: Shape, strides: Sequence[int], offset: int = 0, position: int = 0) -> Chunks:
    """An output of `shape` whose neighbours along each axis lie `strides` apart in the input."""
    *outer, (length, pitch) = _coalesced(shape, strides) or [(1, 1)]
    starts = outer_sum(*(np.arange(size, dtype=np.int64) * stride for size, stride in outer))
    return Chunks.of(offset + starts, length, pitch=pitch, position=position)


def gathered(shape: Shape, indices: Sequence[IntArray], least_axis: int = 0) -> Chunks:
    """The output `input[indices[0], indices[1], ...]`, all combinations, of an input of `shape`; FILL is filled. No
    chunk crosses a step of the axes before `least_axis`."""
    if not shape:
        return Chunks.of(0, 1)
    strides = row_major_strides(shape)
    axis = max(least_axis, *(a for a, index in enumerate(indices) if not _is_whole(index, shape[a])), 0)
    firsts, counts = _ascending_stretches(indices[axis])
    terms = [*indices[:axis], firsts]
    starts = outer_sum(*(np.where(i < 0, FILL, i * stride) for i, stride in zip(terms, strides, strict=False)))
    return Chunks.of(starts, counts * strides[axis])


def outer_sum(*terms: IntArray) -> IntArray:
    """All sums of one number of each term, the last term's index running fastest."""
    return reduce(np.add.outer, terms, np.zeros((), dtype=np.int64))


def _before(lengths: IntArray) -> IntArray:
    """For each chunk, the elements of all chunks before it."""
    return np.cumsum(lengths) - lengths


def _ends_of_pieces(
    begin: IntArray, element: IntArray, length: IntArray, picked: npt.NDArray[np.bool_], piece: int
) -> IntArray:
    """The steps at which the picked chunks, which begin at step `begin` with `element`, come to a multiple of `piece`
    elements, other than at their own begin."""
    first = element[picked] // piece + 1
    count = (element[picked] + length[picked] - 1) // piece - first + 1
    nth = np.arange(count.sum(), dtype=np.int64) - np.repeat(_before(count), count)
    steps: IntArray = np.repeat(begin[picked] - element[picked], count) + (np.repeat(first, count) + nth) * piece
    return steps


def _forward_targets(output: IntArray, length: IntArray) -> IntArray:
    """For each chunk, the elements of all chunks before it that have the same output."""
    order = np.argsort(output, kind="stable")
    before, grouped = _before(length[order]), output[order]
    targets = np.empty_like(before)
    targets[order] = before - before[np.searchsorted(grouped, grouped)]
    return targets


def _coalesced(shape: Shape, strides: Sequence[int]) -> list[tuple[int, int]]:
    """(size, stride) of the axes, those of size 1 left out, and neighbours that run on evenly made into one."""
    axes: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == stride * size:
            axes[-1] = (axes[-1][0] * size, stride)
        else:
            axes.append((size, stride))
    return axes


def _is_whole(index: IntArray, size: int) -> bool:
    return len(index) == size and bool((index == np.arange(size)).all())


def _ascending_stretches(index: IntArray) -> tuple[IntArray, IntArray]:
    """The index cut into stretches that ascend by one or are all FILL: the first index of each, and how many it has."""
    runs_on = (np.diff(index) == 1) | ((index[1:] < 0) & (index[:-1] < 0))
    firsts = np.flatnonzero(np.concatenate([[len(index) > 0], ~runs_on]))
    return index[firsts], np.diff(np.append(firsts, len(index)))


STRIDED_AXES = 6
"""How many axes `strided.c` walks over."""


@dataclass(frozen=True, slots=True)
class Walk:
    """An output of `shape` whose neighbours along each axis lie `strides` elements apart in the input, from `offset`
    on."""

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    def chunks(self) -> Chunks:
        return strided(self.shape, self.strides, self.offset)

    def c_call(self, node: Node) -> CCall:
        element = node.output.dtype.size_bytes
        if not node.output.elems:
            raise Unsupported("an output without elements")
        sizes, strides = joined_axes(STRIDED_AXES, self.shape, self.strides)
        steps = tuple(stride * element for stride in strides)
        fields = {"element": element, "offset": self.offset * element, "size": sizes, "step": steps}
        axis = outermost(sizes)
        units, made = sizes[axis], math.prod(self.shape)
        stretch = CStretch(units, f"size[{axis}]", (0, made // units), {"offset": steps[axis]})
        return replace(kernel_call("strided", fields, (node.input(0), node.output)), stretch=stretch)


class StridedKind(RearrangeKind):
    """An op kind whose kernel is one walk."""

    @abstractmethod
    def walk(self, node: Node) -> Walk:
        """Raises Computed where it depends on values that are not constant in the file."""

    def moves(self, node: Node, order: Order) -> Chunks:
        return self.walk(node).chunks()

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        return self.walk(node).c_call(node)


GATHERED_AXES = 4
"""How many axes `gathered.c` walks over."""


def gathered_call(node: Node, places: Sequence[IntArray], run: int = 1, strides: Strides | None = None) -> CCall:
    """`places`: for each axis, and each index along it, elements from the input's start. `run`: elements that lie side
    by side behind each place. `strides`: elements between neighbours in the output, if it is not in one piece."""
    require_types(node.output.dtype, (node.input(0),))
    dense = (run * stride for stride in row_major_strides([len(axis) for axis in places]))
    axes, run = _joined(zip(places, strides or dense, strict=True), run)
    if len(axes) > GATHERED_AXES:
        raise Unsupported(f"{len(axes)} axes that cannot be joined; at most {GATHERED_AXES} are supported")
    axes = [(np.zeros(1, np.int64), 0)] * (GATHERED_AXES - len(axes)) + axes
    element = node.output.dtype.size_bytes
    fields = {
        "element": element,
        "run": run,
        "size": tuple(len(axis) for axis, _ in axes),
        "step": tuple(stride * element for _, stride in axes),
        "places": CTable("places", (np.concatenate([axis for axis, _ in axes]) * element).astype(np.int32)),
    }
    return kernel_call("gathered", fields, (node.input(0), node.output))


def _joined(places: Iterable[tuple[IntArray, int]], run: int) -> tuple[list[tuple[IntArray, int]], int]:
    """The same places with fewer axes: those of one index that is 0 are left out, last ones that run on become part of
    the run."""
    axes = [(axis, stride) for axis, stride in places if len(axis) != 1 or axis[0]]
    while axes and axes[-1][1] == run and (axes[-1][0] == np.arange(len(axes[-1][0])) * run).all():
        run *= len(axes.pop()[0])
    return axes, run

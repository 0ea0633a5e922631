"""The plan: in what order a graph runs, and where every tensor lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from diagmem.footprint import Options
from diagmem.graph import Graph, Tensor
from diagmem.lifetimes import lifetimes
from diagmem.problem import Buffer
from diagmem.rows import row_bytes, rows_of
from diagmem.schedule import PUSH, Schedule


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor in the arena, or some of its rows. It holds bytes that matter during the steps [first_step, end_step).

    `rows`: None for the whole tensor.
    """

    tensor: Tensor
    offset: int
    first_step: int
    end_step: int
    rows: range | None = None

    @property
    def size_bytes(self) -> int:
        return self.tensor.size_bytes if self.rows is None else row_bytes(self.tensor) * len(self.rows)


@dataclass(frozen=True, slots=True)
class UsedOverlap:
    """An input and an output of an op that share `size_bytes` addresses."""

    op: int
    input: int
    output: int
    size_bytes: int


@dataclass(frozen=True)
class Plan:
    """Offsets for all buffers of a graph under a schedule, made for one kernel library.

    `lower_bound_bytes`: no plan of this graph with these options is smaller; over all orders of its ops if
    `is_over_all_orders` (schedules `best` and `search`), else over all placements for this order. `pressure`: for each
    step the bytes that no placement can do without. `baseline_bytes`: the best plan without any overlap, in file order.
    The arena's size is a multiple of the alignment, as is every offset.
    """

    graph: Graph
    options: Options
    schedule: Schedule
    buffers: tuple[Buffer, ...]
    buffer_offsets: tuple[int, ...]
    arena_bytes: int
    lower_bound_bytes: int
    is_over_all_orders: bool
    pressure: tuple[int, ...]
    allocator: str
    baseline_bytes: int

    @property
    def optimal(self) -> bool:
        """Proven: no plan of this graph (or, with a schedule that was asked for, of this order) is smaller."""
        return self.arena_bytes <= self.lower_bound_bytes

    @property
    def saved_bytes(self) -> int:
        return self.baseline_bytes - self.arena_bytes

    @cached_property
    def offsets(self) -> Mapping[int, int]:
        """Tensor -> offset, for the tensors that lie in the arena in one piece."""
        placed = zip(self.buffers, self.buffer_offsets, strict=True)
        return {tensor: offset for buffer, offset in placed if buffer.rows is None for tensor in buffer.tensors}

    @cached_property
    def row_offsets(self) -> Mapping[int, tuple[int, ...]]:
        """Tensor -> offset of each of its rows, for all tensors in the arena."""
        tables: dict[int, dict[int, int]] = {}
        for buffer, offset in zip(self.buffers, self.buffer_offsets, strict=True):
            for index in buffer.tensors:
                tensor = self.graph.tensors[index]
                for row in range(rows_of(tensor)) if buffer.rows is None else buffer.rows:
                    start = 0 if buffer.rows is None else buffer.rows.start
                    tables.setdefault(index, {})[row] = offset + (row - start) * row_bytes(tensor)
        return {index: tuple(table[row] for row in sorted(table)) for index, table in tables.items()}

    @property
    def runs_by_rows(self) -> bool:
        """Whether ops run a row at a time."""
        return any(step.rows is not None for step in self.schedule.steps)

    @property
    def input_rows(self) -> bool:
        """Whether the caller hands the input over a row at a time."""
        return any(step.op == PUSH for step in self.schedule.steps)

    @cached_property
    def scratch_offsets(self) -> Mapping[int, int]:
        """Op -> offset of its kernel's scratch."""
        placed = zip(self.buffers, self.buffer_offsets, strict=True)
        return {buffer.scratch_of: offset for buffer, offset in placed if buffer.scratch_of is not None}

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """What lies in the arena, by tensor and row."""
        if self.runs_by_rows:
            return self._places_by_rows()
        steps = len(self.schedule.steps)
        kept = self.graph.inputs if self.options.keep_inputs else ()
        lives = lifetimes(self.graph, self.schedule.ops)
        return tuple(
            Place(self.graph.tensors[t], self.offsets[t], lives[t].first, steps if t in kept else lives[t].end)
            for t in sorted(self.offsets)
        )

    def _places_by_rows(self) -> tuple[Place, ...]:
        placed = zip(self.buffers, self.buffer_offsets, strict=True)
        found = [
            Place(self.graph.tensors[index], offset, max(0, buffer.first_step), buffer.end_step, buffer.rows)
            for buffer, offset in placed
            for index in buffer.tensors
        ]
        return tuple(sorted(found, key=lambda place: (place.tensor.index, place.rows.start if place.rows else 0)))

    @cached_property
    def overlaps(self) -> tuple[UsedOverlap, ...]:
        """Every op whose input and output share addresses, reshapes that stay in place included."""
        return tuple(self._overlaps())

    def _overlaps(self) -> Iterator[UsedOverlap]:
        for node in self.graph.nodes:
            inputs = {t.index: t for _, t in node.activations() if t.index in self.offsets}
            for output in node.outputs:
                for tensor in inputs.values():
                    shared = self._shared_bytes(tensor, output) if output.index in self.offsets else 0
                    if shared > 0:
                        yield UsedOverlap(node.op.index, tensor.index, output.index, shared)

    def _shared_bytes(self, a: Tensor, b: Tensor) -> int:
        start_a, start_b = self.offsets[a.index], self.offsets[b.index]
        return min(start_a + a.size_bytes, start_b + b.size_bytes) - max(start_a, start_b)

    @property
    def peak_step(self) -> int | None:
        """The step that sets the peak: the first that needs most, whatever the placement."""
        return self.pressure.index(max(self.pressure)) if self.pressure else None

    @property
    def peak_op(self) -> int | None:
        return None if self.peak_step is None else self.schedule.ops[self.peak_step]

    @property
    def peak_buffers(self) -> tuple[Buffer, ...]:
        """What lives at the peak, largest first."""
        step = self.peak_step
        live = [b for b in self.buffers if step is not None and b.first_step <= step < b.end_step]
        return tuple(sorted(live, key=lambda b: -b.size_bytes))

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values, the same for the same input and options. Steps are counted from 0; `last_step` is
        the last one at which the tensor is needed. Row by row, `rows` says which row each step computes (None: all), op
        -1 stands for a row that the caller hands over, and `tensors` lists rows."""
        by_rows = self.runs_by_rows
        return {
            "model": self.graph.name,
            "kernels": self.options.kernels,
            "align_bytes": self.options.align_bytes,
            "keep_inputs": self.options.keep_inputs,
            "external_io": self.options.external_io,
            "overlap": self.options.overlap,
            "arena_bytes": self.arena_bytes,
            "baseline_bytes": self.baseline_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "lower_bound_over": "all orders" if self.is_over_all_orders else "this order",
            "optimal": self.optimal,
            "scheduler": self.schedule.name,
            "allocator": self.allocator,
            "peak_op": self.peak_op,
            "peak_step": self.peak_step,
            "schedule": list(self.schedule.ops),
            **({"rows": [step.rows.start if step.rows else None for step in self.schedule.steps]} if by_rows else {}),
            "pressure": list(self.pressure),
            "tensors": [
                {
                    "name": place.tensor.name,
                    "index": place.tensor.index,
                    "offset": place.offset,
                    "bytes": place.size_bytes,
                    "first_step": place.first_step,
                    "last_step": place.end_step - 1,
                    **({} if place.rows is None else {"rows": [place.rows.start, place.rows.stop]}),
                }
                for place in self.places
            ],
            "scratch": [
                {"op": buffer.scratch_of, "offset": offset, "bytes": buffer.size_bytes}
                for buffer, offset in zip(self.buffers, self.buffer_offsets, strict=True)
                if buffer.scratch_of is not None
            ],
            "overlaps": [
                {"op": o.op, "input": o.input, "output": o.output, "bytes": o.size_bytes} for o in self.overlaps
            ],
        }

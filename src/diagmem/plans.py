"""The plan: in what order a graph runs, and where every tensor lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from diagmem.footprint import Options
from diagmem.graph import Graph, Tensor, View
from diagmem.lifetimes import lifetimes
from diagmem.problem import Buffer
from diagmem.row_storage import RowStorage
from diagmem.schedule import PUSH, Schedule
from diagmem.transforms import Removal


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
        return self.tensor.size_bytes if self.rows is None else self.tensor.row_bytes * len(self.rows)


@dataclass(frozen=True, slots=True)
class UsedOverlap:
    """An input and an output of an op that share `size_bytes` addresses."""

    op: int
    input: int
    output: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Rung:
    """A step from whole tensors towards a plan, and what the arena takes with it and all before it."""

    step: str
    arena_bytes: int


@dataclass(frozen=True)
class Plan:
    """Offsets for all buffers of a graph under a schedule, made for one kernel library.

    `lower_bound_bytes`: no plan of this graph with these options is smaller; over all orders of its ops if
    `is_over_all_orders` (schedules `best` and `search`), else over all placements for this order. `pressure`: for each
    step the bytes that no placement can do without. `baseline_bytes`: the best plan without any overlap, in file order.
    The arena's size is a multiple of the alignment, as is every offset.

    `graph` is that of the model after `removals`; `source` is the model's own. `whole_bytes`: what the arena takes if
    every op is run, and run whole. For these, None stands for "the same". `recompute`: multiply-accumulates, as a
    multiple of those of a run that computes everything once.
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
    removals: tuple[Removal, ...] = ()
    source: Graph | None = None
    whole_bytes: int | None = None
    recompute: float = 1.0

    @property
    def optimal(self) -> bool:
        """Proven: no plan of this graph (or, with a schedule that was asked for, of this order) is smaller."""
        return self.arena_bytes <= self.lower_bound_bytes

    @property
    def model(self) -> Graph:
        """The graph as the file has it."""
        return self.graph if self.source is None else self.source

    @property
    def saved_bytes(self) -> int:
        return self.baseline_bytes - self.arena_bytes

    @cached_property
    def offsets(self) -> Mapping[int, int]:
        """Tensor -> offset of its first element, for the tensors in the arena that are not cut into rows."""
        placed = zip(self.buffers, self.buffer_offsets, strict=True)
        return {
            tensor: offset + self.graph.tensors[tensor].offset_bytes
            for buffer, offset in placed
            if buffer.rows is None
            for tensor in buffer.tensors
        }

    @cached_property
    def row_offsets(self) -> Mapping[int, tuple[int, ...]]:
        """Tensor -> offset of each of its rows, for all tensors in the arena."""
        tables: dict[int, dict[int, int]] = {}
        for buffer, offset in zip(self.buffers, self.buffer_offsets, strict=True):
            for index in buffer.tensors:
                tensor = self.graph.tensors[index]
                for row in range(tensor.rows) if buffer.rows is None else buffer.rows:
                    start = 0 if buffer.rows is None else buffer.rows.start
                    tables.setdefault(index, {})[row] = offset + (row - start) * tensor.row_bytes
        return {index: tuple(table[row] for row in sorted(table)) for index, table in tables.items()}

    @property
    def runs_by_rows(self) -> bool:
        """Whether ops run a row at a time."""
        return any(step.turn is not None for step in self.schedule.steps)

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
        """Of the stretches that they reach over; views of one tensor lie between each other."""
        if a.base == b.base:
            return 0
        start_a, start_b = self.offsets[a.index], self.offsets[b.index]
        return min(start_a + a.span_bytes, start_b + b.span_bytes) - max(start_a, start_b)

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

    def _repr_html_(self) -> str:
        """How notebooks show a plan. Pictures stand above plans in the order of imports, so they are called by name."""
        html: str = import_module("diagmem.reports").plan_html(self)
        return html

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values, the same for the same input and options. Steps are counted from 0, ops as in the
        model's file; `last_step` is the last one at which the tensor is needed. A tensor with a `view` lies inside its
        base. Row by row, `rows` says which row each step computes (None: all), op -1 stands for a row that the caller
        hands over, `storage` tells how the rows of tensors lie, and `tensors` lists rows."""
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
            "peak_op": None if self.peak_op is None else self._number(self.peak_op),
            "peak_step": self.peak_step,
            "schedule": [self._number(op) for op in self.schedule.ops],
            **(self._rows_json() if self.runs_by_rows else {}),
            "pressure": list(self.pressure),
            "tensors": [_place_json(place) for place in self.places],
            "scratch": [
                {"op": self._number(buffer.scratch_of), "offset": offset, "bytes": buffer.size_bytes}
                for buffer, offset in zip(self.buffers, self.buffer_offsets, strict=True)
                if buffer.scratch_of is not None
            ],
            "overlaps": [
                {"op": self._number(o.op), "input": o.input, "output": o.output, "bytes": o.size_bytes}
                for o in self.overlaps
            ],
            "removed": [
                {
                    "transform": removal.transform,
                    "ops": list(removal.ops),
                    "bytes_changed": removal.bytes_changed,
                    "macs_changed": removal.macs_changed,
                }
                for removal in self.removals
            ],
        }

    def _rows_json(self) -> dict[str, Any]:
        return {
            "rows": [step.turn for step in self.schedule.steps],
            "input_rows": self.input_rows,
            "recompute": round(self.recompute, 4),
            "storage": {tensor: RowStorage.of(offsets).form for tensor, offsets in sorted(self.row_offsets.items())},
        }

    def _number(self, op: int) -> int:
        """An op's index in the model's file."""
        return op if op == PUSH else self.graph.ops[op].number


def _place_json(place: Place) -> dict[str, Any]:
    return {
        "name": place.tensor.name,
        "index": place.tensor.index,
        "offset": place.offset,
        "bytes": place.size_bytes,
        "first_step": place.first_step,
        "last_step": place.end_step - 1,
        **({} if place.rows is None else {"rows": [place.rows.start, place.rows.stop]}),
        **({} if place.tensor.view is None else {"view": _view_json(place.tensor.view)}),
    }


def _view_json(view: View) -> dict[str, Any]:
    return {"base": view.base, "offset_elems": view.offset_elems, "strides": list(view.strides)}

"""Pictures of traced runs, as in the paper: time across in instructions, buffer offset up."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diagmem.reports.axes import KB, byte_ticks, short_kb, ticks
from diagmem.reports.drawing import Drawing
from diagmem.reports.pixels import Colour, indexed_png
from diagmem.reports.svg import line, rect, tag, text, text_width
from diagmem.tracing.analysis.model import TracedModel
from diagmem.tracing.analysis.model_trace import PlanRun
from diagmem.tracing.analysis.raster import Cell, Raster
from diagmem.tracing.analysis.traced_pairs import TracedRow
from diagmem.tracing.capture.calls import Call, Role
from diagmem.tracing.capture.run import SEEDS, CallTrace, Executable, observe

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT = 78, 84
TITLE_PX, AXIS_PX = 34, 44
LEGEND_PX = 34
MOST_MARKS = 150

# The paper's grey, red, blue and green, in shades that people with any colour vision tell apart.
COLOURS: dict[Cell, Colour] = {
    Cell.NOTHING: (255, 255, 255, 0),
    Cell.IN_USE: (128, 134, 142, 92),
    Cell.LOADED: (213, 74, 0, 255),
    Cell.STORED: (0, 84, 166, 255),
    Cell.UPDATED: (0, 158, 115, 255),
}
LEGEND = ((Cell.LOADED, "load"), (Cell.STORED, "store"), (Cell.UPDATED, "update"), (Cell.IN_USE, "in use"))


@dataclass(frozen=True, slots=True)
class Band:
    """A part of the space with a name of its own."""

    name: str
    place: range


@dataclass(frozen=True, slots=True)
class Panel:
    """One run. `bands` are named at the right, `op_ends` are the times at which operations end; `limit`, if given, is
    the end of an arena."""

    title: str
    raster: Raster
    bands: tuple[Band, ...] = ()
    op_ends: tuple[int, ...] = ()
    limit: int | None = None


def trace_drawing(panels: Sequence[Panel], title: str, same_scale: bool = False) -> Drawing:
    """The panels one above the other; to the same scale in bytes, if so asked."""
    largest = max((panel.raster.space_bytes for panel in panels), default=0)
    body = [*_legend(LEFT, 22), text(LEFT + WIDTH, 22, title, "small soft end")]
    y = float(LEGEND_PX)
    for panel in panels:
        sheet = _Sheet(panel, y + TITLE_PX, largest if same_scale else panel.raster.space_bytes)
        body += sheet.elements()
        y = sheet.bottom + AXIS_PX
    return Drawing(LEFT + WIDTH + RIGHT, y + 6, "".join(body), title)


def plan_panel(run: PlanRun, words: str) -> Panel:
    """The panel of a whole model in its arena. Where it runs row by row, there are too many ends to mark."""
    ends = run.op_ends if len(run.op_ends) <= MOST_MARKS else ()
    return Panel(f"{words}: {run.peak_bytes:,} bytes", run.raster, op_ends=ends, limit=run.peak_bytes)


def op_panel(model: TracedModel, row: TracedRow) -> Panel:
    """The panel of one operation that was laid out alone. Runs it once more."""
    raster = Raster(model.program.arena_bytes, row.counts.start, row.counts.end)
    recorder = observe(model.executable, model.contents(SEEDS[0]), raster.add)
    graph = model.program.graph
    raster.finish(recorder.values, [model.place(tensor) for tensor in graph.outputs])
    bands = [
        Band(role if len(tensors) == 1 else f"{role} {number}", model.place(tensor))
        for role, tensors in (("output", graph.outputs), ("input", graph.inputs))
        for number, tensor in enumerate(tensors)
    ]
    words = f"op {row.node.op.number} ({row.kind})" if row.node else row.kind
    return Panel(f"{words}: {_safe(row.overlap.monotone, row.output_bytes)}", raster, tuple(bands))


def call_panel(program: Executable, trace: CallTrace) -> Panel:
    """The panel of one call, its buffers one above the other, outputs lowest. Runs the call once more."""
    call = trace.call
    sizes = call.places(Role.OUTPUT)
    found = [_safe(o.monotone, len(sizes[n])) for overlaps in trace.overlaps for n, o in enumerate(overlaps)]
    raster = Raster(call.space_bytes, trace.counts.start, trace.counts.end)
    recorder = observe(program, call.contents(SEEDS[0]), raster.add)
    raster.finish(recorder.values, call.places(Role.OUTPUT))
    return Panel(f"{call.function}: {'; '.join(found) or 'no input or no output'}", raster, tuple(_bands(call)))


def _safe(overlap: int, output_bytes: int) -> str:
    return f"O_s = {overlap:,} B, output {output_bytes:,} B"


def _bands(call: Call) -> Iterator[Band]:
    for role in (Role.OUTPUT, Role.INPUT, Role.SCRATCH):
        places = call.places(role)
        for number, place in enumerate(places):
            yield Band(role.value if len(places) == 1 else f"{role.value} {number}", place)


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Where a panel lies on the drawing: `bytes_shown` up from its bottom."""

    panel: Panel
    y: float
    bytes_shown: int

    @property
    def bottom(self) -> float:
        return self.y + HEIGHT

    def across(self, time: float) -> float:
        raster = self.panel.raster
        return LEFT + WIDTH * (time - raster.start) / (raster.end - raster.start)

    def up(self, offset: float) -> float:
        return self.bottom - HEIGHT * offset / self.bytes_shown

    def elements(self) -> Iterator[str]:
        yield text(LEFT, self.y - 12, self.panel.title, "title")
        yield from self._offsets()
        yield from self._times()
        yield self._pixels()
        yield from self._marks()
        yield tag("rect", x=LEFT, y=self.y, width=WIDTH, height=HEIGHT, class_="axis")

    def _offsets(self) -> Iterator[str]:
        for tick in byte_ticks(self.bytes_shown, 8):
            y = self.up(tick)
            yield line(LEFT - 4, y, LEFT + WIDTH, y, "grid")
            yield text(
                LEFT - 8, y + 4, f"{tick:g} B" if self.bytes_shown < 2 * KB else short_kb(tick), "small soft end"
            )
        middle = (self.y + self.bottom) / 2
        yield text(16, middle, "buffer offset", "small soft mid", transform=f"rotate(-90 16 {middle:g})")

    def _times(self) -> Iterator[str]:
        raster = self.panel.raster
        for tick in ticks(raster.end - raster.start, 9):
            x = self.across(raster.start + tick)
            yield line(x, self.bottom, x, self.bottom + 5, "axis")
            yield text(x, self.bottom + 18, _count(tick), "small soft mid")
        yield text(LEFT + WIDTH / 2, self.bottom + 34, "time, in instructions", "small soft mid")

    def _pixels(self) -> str:
        raster = self.panel.raster
        png = indexed_png(raster.cells[::-1], [COLOURS[cell] for cell in Cell])
        top = self.up(raster.space_bytes)
        return tag(
            "image",
            x=LEFT,
            y=top,
            width=WIDTH,
            height=self.bottom - top,
            preserveAspectRatio="none",
            style="image-rendering:pixelated",
            href="data:image/png;base64," + base64.b64encode(png).decode("ascii"),
        )

    def _marks(self) -> Iterator[str]:
        for end in self.panel.op_ends[:-1]:
            yield line(self.across(end), self.y - 5, self.across(end), self.y, "axis")
        if self.panel.op_ends:
            yield text(LEFT + WIDTH, self.y - 12, "marks: an operation ends", "small soft end")
        for band in self.panel.bands:
            if band.place.start:
                yield line(LEFT, self.up(band.place.start), LEFT + WIDTH + 6, self.up(band.place.start), "axis")
            yield text(LEFT + WIDTH + 8, self.up((band.place.start + band.place.stop) / 2) + 4, band.name, "small")
        if self.panel.limit is not None:
            y = self.up(self.panel.limit)
            yield line(LEFT, y, LEFT + WIDTH + 6, y, "limit")
            yield text(LEFT + WIDTH + 10, y + 4, short_kb(self.panel.limit), "small limit-text")


def _legend(x: float, y: float) -> Iterator[str]:
    for cell, words in LEGEND:
        red, green, blue, opacity = COLOURS[cell]
        fill = f"#{red:02x}{green:02x}{blue:02x}"
        yield rect(x, y - 10, 18, 12, fill=fill, fill_opacity=round(opacity / 255, 2))
        yield text(x + 24, y, words, "small soft")
        x += 24 + text_width(words, 11) + 18


def _count(number: float) -> str:
    """`250`, `40 k`, `1.5 M`."""
    for unit, name in ((1_000_000, " M"), (1_000, " k")):
        if number >= unit:
            return f"{number / unit:g}{name}"
    return f"{number:g}"

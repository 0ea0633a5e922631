"""Pictures of traced runs: addresses across and time down, as in the maps of plans; time is counted in instructions."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagmem.reports.drawing import KB, Drawing, byte_ticks, clipped, line, rect, short_kb, tag, text, text_width, ticks
from diagmem.tracing.analysis import Cell, PlanRun, Raster, TracedRow
from diagmem.tracing.calls import Role
from diagmem.tracing.model import TracedModel
from diagmem.tracing.recording import SEEDS, CallTrace, Executable, observe

Colour = tuple[int, int, int, int]
"""Red, green, blue, opacity; 0 to 255."""


def indexed_png(cells: npt.NDArray[np.uint8], palette: Sequence[Colour]) -> bytes:
    """The picture of `cells` (rows from the top, columns), each the index of its colour."""
    rows, columns = cells.shape
    # Each row starts with the number of its filter; 0 is none.
    lines = np.concatenate((np.zeros((rows, 1), dtype=np.uint8), cells), axis=1)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", bytes(part for colour in palette for part in colour[:3])),
            _chunk(b"tRNS", bytes(colour[3] for colour in palette)),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


WIDTH, WIDTH_ALONE, HEIGHT = 400, 640, 480
LEFT, RIGHT = 78, 24
HEAD_PX, FOOT_PX = 64, 26
LEGEND_PX = 34
PANELS_A_LINE = 2
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
    """One run. `bands` are named at the foot, `op_ends` are the times at which operations end; `limit`, if given, is
    the end of an arena."""

    title: str
    raster: Raster
    bands: tuple[Band, ...] = ()
    op_ends: tuple[int, ...] = ()
    limit: int | None = None


def trace_drawing(panels: Sequence[Panel], title: str, same_scale: bool = False) -> Drawing:
    """The panels side by side, two in a line; to the same scale in bytes, if so asked."""
    largest = max((panel.raster.space_bytes for panel in panels), default=0)
    width = WIDTH if len(panels) > 1 else WIDTH_ALONE
    across, down = LEFT + width + RIGHT, HEAD_PX + HEIGHT + FOOT_PX
    seen = {int(cell) for panel in panels for cell in np.unique(panel.raster.cells)}
    body = [*_legend(LEFT, 22, seen)]
    for number, panel in enumerate(panels):
        line_number, place = divmod(number, PANELS_A_LINE)
        y = LEGEND_PX + line_number * down + HEAD_PX
        shown = largest if same_scale else panel.raster.space_bytes
        body += _Sheet(panel, LEFT + place * across, y, width, shown).elements()
    lines = -(-len(panels) // PANELS_A_LINE)
    return Drawing(across * min(PANELS_A_LINE, max(1, len(panels))), LEGEND_PX + lines * down + 6, "".join(body), title)


def plan_panel(run: PlanRun, words: str) -> Panel:
    """The panel of a whole model in its arena. Where it runs row by row, there are too many ends to mark."""
    ends = run.op_ends if len(run.op_ends) <= MOST_MARKS else ()
    return Panel(f"{words}: {run.peak_bytes:,} bytes", run.raster, op_ends=ends, limit=run.peak_bytes)


def op_panel(model: TracedModel, row: TracedRow) -> Panel:
    """The panel of one operation that was laid out alone. Runs it once more."""
    raster = Raster(model.program.arena_bytes, row.counts.start, row.counts.end)
    recorder = observe(model.executable, model.contents(SEEDS[0]), raster.add)
    graph = model.program.graph
    outputs, inputs = ([model.place(tensor) for tensor in side] for side in (graph.outputs, graph.inputs))
    raster.finish(recorder.values, outputs)
    words = f"op {row.node.op.number} ({row.kind})" if row.node else row.kind
    title = f"{words}: {_safe(row.overlap.monotone, row.output_bytes)}"
    return Panel(title, raster, _bands({"output": outputs, "input": inputs}))


def call_panel(program: Executable, trace: CallTrace) -> Panel:
    """The panel of one call, its buffers side by side, outputs first. Runs the call once more."""
    call = trace.call
    places = {role.value: call.places(role) for role in (Role.OUTPUT, Role.INPUT, Role.SCRATCH)}
    outputs = call.places(Role.OUTPUT)
    found = [_safe(o.monotone, len(outputs[n])) for overlaps in trace.overlaps for n, o in enumerate(overlaps)]
    raster = Raster(call.space_bytes, trace.counts.start, trace.counts.end)
    recorder = observe(program, call.contents(SEEDS[0]), raster.add)
    raster.finish(recorder.values, outputs)
    return Panel(f"{call.function}: {'; '.join(found) or 'no input or no output'}", raster, _bands(places))


def _safe(overlap: int, output_bytes: int) -> str:
    return f"O_s = {overlap:,} B, output {output_bytes:,} B"


def _bands(places: Mapping[str, Sequence[range]]) -> tuple[Band, ...]:
    """Each role's places; numbered where there are several."""
    return tuple(
        Band(role if len(found) == 1 else f"{role} {number}", place)
        for role, found in places.items()
        for number, place in enumerate(found)
    )


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Where a panel lies on the drawing: `bytes_shown` across `width` pixels from `x`, time down from `y`."""

    panel: Panel
    x: float
    y: float
    width: float
    bytes_shown: int

    @property
    def bottom(self) -> float:
        return self.y + HEIGHT

    @property
    def right(self) -> float:
        return self.x + self.width

    def across(self, offset: float) -> float:
        return self.x + self.width * offset / self.bytes_shown

    def down(self, time: float) -> float:
        raster = self.panel.raster
        return self.y + HEIGHT * (time - raster.start) / (raster.end - raster.start)

    def elements(self) -> Iterator[str]:
        yield text(self.x, self.y - 42, clipped(self.panel.title, self.width + RIGHT, 13), "title")
        yield from self._offsets()
        yield from self._times()
        yield self._pixels()
        yield from self._marks()
        yield tag("rect", x=self.x, y=self.y, width=self.width, height=HEIGHT, class_="axis")

    def _offsets(self) -> Iterator[str]:
        for tick in byte_ticks(self.bytes_shown, int(self.width // 56)):
            x = self.across(tick)
            yield line(x, self.y - 4, x, self.bottom, "grid")
            yield text(x, self.y - 8, f"{tick:g} B" if self.bytes_shown < 2 * KB else short_kb(tick), "small soft mid")

    def _times(self) -> Iterator[str]:
        raster = self.panel.raster
        for tick in ticks(raster.end - raster.start, 12):
            y = self.down(raster.start + tick)
            yield line(self.x - 5, y, self.x, y, "axis")
            yield text(self.x - 9, y + 4, _count(tick), "small soft end")
        x, middle = self.x - LEFT + 14, (self.y + self.bottom) / 2
        yield text(x, middle, "time, in instructions", "small soft mid", transform=f"rotate(-90 {x:g} {middle:g})")

    def _pixels(self) -> str:
        raster = self.panel.raster
        png = indexed_png(raster.cells.T, [COLOURS[cell] for cell in Cell])
        return tag(
            "image",
            x=self.x,
            y=self.y,
            width=self.across(raster.space_bytes) - self.x,
            height=HEIGHT,
            preserveAspectRatio="none",
            style="image-rendering:pixelated",
            href="data:image/png;base64," + base64.b64encode(png).decode("ascii"),
        )

    def _marks(self) -> Iterator[str]:
        for end in self.panel.op_ends[:-1]:
            yield line(self.right, self.down(end), self.right + 5, self.down(end), "axis")
        if self.panel.op_ends:
            yield text(self.x, self.bottom + 16, "marks at the right: an operation ends", "small soft")
        for band in self.panel.bands:
            if band.place.start:
                yield line(
                    self.across(band.place.start), self.y, self.across(band.place.start), self.bottom + 6, "axis"
                )
            middle = self.across((band.place.start + band.place.stop) / 2)
            yield text(middle, self.bottom + 16, band.name, "small mid")
        if self.panel.limit is not None:
            x = self.across(self.panel.limit)
            yield line(x, self.y - 4, x, self.bottom + 6, "limit")
            yield text(x, self.bottom + 18, short_kb(self.panel.limit), "small limit-text end")


def _legend(x: float, y: float, seen: Container[int]) -> Iterator[str]:
    """What the colours mean, those that are there."""
    for cell, words in LEGEND:
        if cell not in seen:
            continue
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

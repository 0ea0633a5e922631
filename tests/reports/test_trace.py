"""Pictures of traces: pixels that read back, and all that a reader needs beside them."""

from __future__ import annotations

import base64
import re
import struct
import zlib

import numpy as np
import pytest

from diagmem.reports.trace import COLOURS, LEGEND, Band, Panel, indexed_png, trace_drawing
from diagmem.tracing.analysis import Cell, Raster
from diagmem.tracing.recording import EVENT, Kind, Recorder


def decoded(png: bytes) -> list[list[int]]:
    """The palette indices of a PNG that `indexed_png` wrote; checks every checksum."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, data, width = 8, b"", 0
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        name, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length)[0] == zlib.crc32(name + content)
        width = struct.unpack_from(">I", content)[0] if name == b"IHDR" else width
        data += content if name == b"IDAT" else b""
        at += 12 + length
    lines = zlib.decompress(data)
    return [list(lines[i + 1 : i + 1 + width]) for i in range(0, len(lines), width + 1)]


def raster() -> Raster:
    """One load, one store and one update."""
    found = Raster(4, 0, 8)
    recorder = Recorder(4, lambda _: None, found.add)
    records = [(1, 3, 1, Kind.LOAD), (2, 0, 1, Kind.STORE), (4, 0, 1, Kind.LOAD), (5, 0, 1, Kind.STORE)]
    recorder.feed(np.array([(0, 0, 0, Kind.START), *records, (8, 0, 0, Kind.END)], dtype=EVENT))
    found.finish(recorder.values, [range(1)])
    return found


def test_png_reads_back() -> None:
    """Every cell comes back as it was given."""
    cells = np.arange(15, dtype=np.uint8).reshape(3, 5) % 5
    assert decoded(indexed_png(cells, list(COLOURS.values()))) == cells.tolist()


def test_colours_belong_to_their_cells() -> None:
    """The palette is in the order of the cells' numbers."""
    assert list(COLOURS) == list(Cell)


def test_drawing_carries_axes_legend_and_pixels() -> None:
    """Axes, legend, names of buffers and of the limit are text; what happened is the picture in the middle."""
    panel = Panel("relu <b>", raster(), (Band("output", range(3)), Band("input", range(3, 4))), (5, 8), limit=4)
    drawing = trace_drawing([panel], "a trace")
    svg = drawing.svg()
    for words in ("time, in instructions", "relu &lt;b&gt;", "output", "input", "4 B"):
        assert words in svg
    assert all(f">{words}</text>" in svg for _, words in LEGEND)
    found = re.search(r"data:image/png;base64,([^\"]+)", svg)
    assert found
    assert decoded(base64.b64decode(found[1])) == raster().cells.T.tolist()
    assert svg == trace_drawing([panel], "a trace").svg()


def test_legend_lists_what_is_there() -> None:
    """A run without updates has no colour for them."""
    svg = trace_drawing([Panel("nothing", Raster(4, 0, 8))], "a trace").svg()
    assert not any(f">{words}</text>" in svg for _, words in LEGEND)


def test_panels_share_a_scale_if_asked() -> None:
    """Before and after are drawn to the same scale of bytes: the smaller arena is the narrower one."""
    small, large = Panel("after", Raster(512, 0, 8), limit=512), Panel("before", Raster(1024, 0, 8), limit=1024)
    svg = trace_drawing([large, small], "", True).svg()
    widths = [float(width) for width in re.findall(r'<image [^>]*width="([\d.]+)"', svg)]
    assert widths[0] == 2 * widths[1]


def test_time_runs_down_as_in_plans() -> None:
    """A mark of an operation's end lies lower the later it is; an offset lies further right the higher it is."""
    panel = Panel("relu", raster(), (Band("output", range(3)), Band("input", range(3, 4))), (2, 5, 8))
    svg = trace_drawing([panel], "a trace").svg()
    marks = re.findall(r'd="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)" class="axis"', svg)
    right = max(float(x) for x, *_ in marks)
    ends = [float(y) for x, y, *_ in marks if float(x) == right]
    assert len(ends) == 2
    assert ends[0] < ends[1]
    places = {name: float(x) for x, name in re.findall(r'x="([\d.]+)"[^>]*>(output|input)<', svg)}
    assert places["output"] < places["input"]


def test_png_is_rendered() -> None:
    """With resvg, the drawing becomes pixels."""
    pytest.importorskip("resvg_py", reason="PNG needs resvg_py")
    assert trace_drawing([Panel("relu", raster())], "a trace").png().startswith(b"\x89PNG")

"""Drawings: well formed, the same every time, in the colours asked for, and deaf to what names say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem import pipeline
from diagmem.planning.plan import Plan
from diagmem.reports.arena import arena_drawing, before_after_drawing, legend_entries
from diagmem.reports.blocks import Picture
from diagmem.reports.charts import live_drawing, separation_drawing
from diagmem.reports.drawing import DARK, LIGHT, Drawing, kb, number, plain, short_kb, tag, ticks
from tests.reports.hostile import apart, hostile_graph, small_graph
from tests.streams import stream

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plans() -> tuple[Plan, Plan]:
    graph = hostile_graph()
    return apart(graph), pipeline.plan(graph).plan


DRAWINGS: dict[str, Callable[[Plan, Plan], Drawing]] = {
    "arena": lambda before, after: arena_drawing(after),
    "before and after": before_after_drawing,
    "live": live_drawing,
}


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_well_formed(name: str, theme: str, plans: tuple[Plan, Plan]) -> None:
    """Every drawing is XML with nothing in it but shapes and text, whatever the model's names are."""
    root = ElementTree.fromstring(DRAWINGS[name](*plans).svg(theme))
    kinds = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert kinds <= {"svg", "title", "style", "defs", "pattern", "path", "rect", "text", "g", "circle"}
    assert not [a for element in root.iter() for a in element.attrib if a.startswith("on")]


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_the_same_every_time(name: str, plans: tuple[Plan, Plan]) -> None:
    """The same plans give the same bytes."""
    assert DRAWINGS[name](*plans).svg() == DRAWINGS[name](*plans).svg()


def test_themes_use_their_own_colours(plans: tuple[Plan, Plan]) -> None:
    """A dark drawing has no light background, and no theme leaves a variable that only a page could fill."""
    drawing = arena_drawing(plans[1])
    for theme, other in (("light", DARK), ("dark", LIGHT)):
        svg = drawing.svg(theme)
        assert other["paper"] not in svg
        assert "var(" not in svg
    assert "prefers-color-scheme: dark" in drawing.svg("auto")


def test_both_palettes_name_the_same_colours() -> None:
    """No colour is missing in the dark, and every variable of the style sheet is one of them."""
    from diagmem.reports.drawing import rules

    assert set(LIGHT) == set(DARK) == set(re.findall(r"var\(--([\w-]+)\)", rules()))


@pytest.mark.parametrize("pixels", [1, 3])
def test_png_has_so_many_pixels_for_each_of_the_drawing(
    pixels: int, plans: tuple[Plan, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("resvg_py", reason="PNG needs the extra 'plot'")
    monkeypatch.setattr("diagmem.reports.drawing.PIXELS", pixels)
    drawing = live_drawing(*plans)
    png = drawing.png("dark")
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == pytest.approx(pixels * drawing.width, abs=1)


def test_every_buffer_has_a_block_where_the_plan_puts_it(plans: tuple[Plan, Plan]) -> None:
    """Blocks lie at the plan's offsets, and windows inside their blocks."""
    for plan in plans:
        blocks = Picture(plan).blocks
        assert [(b.buffer, b.offset) for b in blocks] == list(zip(plan.buffers, plan.buffer_offsets, strict=True))
        for block in blocks:
            assert all(block.offset <= at <= block.end_bytes for at, _ in block.window)
            assert all(block.first <= row <= block.end for _, row in block.window)


def test_shared_bytes_are_those_of_the_plan(plans: tuple[Plan, Plan]) -> None:
    """What is hatched is what the plan says is shared; nothing is before."""
    before, after = plans
    aliases = {node.op.index for node in after.graph.nodes if node.op.kind == "RESHAPE"}
    found = sorted((after.schedule.ops[s.step], s.end - s.start) for s in Picture(after).shared)
    assert found == sorted((o.op, o.size_bytes) for o in after.overlaps if o.op not in aliases)
    assert found
    assert not Picture(before).shared


def test_the_peak_is_where_the_arena_is_full() -> None:
    """The step marked is one at which a buffer reaches the arena's end."""
    for model in ("vww_96_int8", "resnet8_int8", "densenet_121"):
        for allocator in ("heap", "best"):
            plan = pipeline.plan(f"zoo:{model}", allocator=allocator, schedule="file").plan
            peak = Picture(plan).peak
            ends = zip(plan.buffers, plan.buffer_offsets, strict=True)
            live = [o + b.size_bytes for b, o in ends if peak is not None and b.first_step <= peak < b.end_step]
            assert max(live) == plan.arena_bytes


def test_plans_by_rows_can_be_drawn() -> None:
    """Steps that compute rows, and those at which the caller hands over a row of the input, have a place on the map."""
    plan = pipeline.plan("zoo:kws_dscnn_int8", schedule="rows", input_rows=True).plan
    svg = arena_drawing(plan).svg()
    assert "next row of the input" in svg
    assert len(Picture(plan).blocks) == len(plan.buffers)


def test_separation_is_drawn_to_scale() -> None:
    """The input starts where the safe overlap lets it."""
    from diagmem.kernels import library
    from diagmem.kernels.overlaps import overlaps

    node = small_graph().nodes[0]
    drawing = separation_drawing(node, library("tflm-reference"), width=1000)
    found = next(overlaps(node, library("tflm-reference"), ("exact",)))
    assert drawing is not None
    assert found.exact is not None
    apart = found.output.size_bytes - found.exact
    spans = [float(x) for x in re.findall(r'<rect x="([\d.]+)" y="92"', drawing.body)]
    assert spans[0] == 40
    assert spans[1] == pytest.approx(40 + 1000 * apart / (apart + found.input.size_bytes), abs=0.01)


def test_notebooks_show_a_plan() -> None:
    """A plan displays itself as its figures and its map, names escaped."""
    made = pipeline.plan(hostile_graph())
    html = made._repr_html_()
    assert made.plan.proof_text in html
    assert "data:image/svg+xml;base64," in html
    assert "<script" not in html
    assert "<img src=x" not in html
    assert arena_drawing(made.plan).svg().startswith("<svg ")


@given(st.text())
def test_plain_text_is_only_text(text: str) -> None:
    """Any string, inside an element or an attribute, comes back as itself but for characters that XML has not."""
    root = ElementTree.fromstring(tag("text", plain(text), title=text))
    expected = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
    assert (root.text or "") == expected.replace("\r\n", "\n").replace("\r", "\n")
    assert len(root) == 0


@given(st.floats(-1e6, 1e6))
def test_numbers_are_short_and_near(value: float) -> None:
    """Two decimals at most, and never an exponent."""
    assert re.fullmatch(r"-?\d+(\.\d{1,2})?", number(value))
    assert float(number(value)) == pytest.approx(value, abs=0.0051)


@given(st.integers(1, 10**8), st.integers(2, 12))
def test_ticks_are_few_and_inside(limit: int, most: int) -> None:
    """At most so many steps, from 0 up to the limit."""
    found = ticks(limit, most)
    assert found[0] == 0
    assert found[-1] <= limit
    assert len(found) <= most + 1


def test_sizes_for_people() -> None:
    """KB is 1024 bytes, one decimal; the short form leaves out what says nothing."""
    assert (kb(65536), kb(65543), kb(12), short_kb(65536), short_kb(65543)) == (
        "64.0 KB",
        "64.0 KB",
        "12 B",
        "64 KB",
        "64.0 KB",
    )


def test_legends_list_what_is_there() -> None:
    """Nothing is shared where overlap is off, so no legend speaks of it."""
    plans = [pipeline.plan("zoo:kws_dscnn_int8", schedule="best", overlap=overlap).plan for overlap in (True, False)]
    with_overlap, without = ([class_ for class_, _ in legend_entries([Picture(plan)])] for plan in plans)
    assert "shared" in with_overlap
    assert "shared" not in without
    assert "scratch" not in without


def test_no_edge_runs_through_a_label() -> None:
    """Labels stand in the middle of rows; edges of what is shared lie between rows."""
    made = pipeline.plan("zoo:mobilenet_v1_0.25_128_int8")
    drawing = before_after_drawing(made.baseline, made.plan, last_step=12).inline()
    edges = {
        edge
        for y, height in re.findall(r'<rect [^>]*?y="([\d.]+)"[^>]*?height="([\d.]+)"[^>]*?class="shared"', drawing)
        for edge in (float(y), float(y) + float(height))
    }
    labels = [float(y) - 4 for y in re.findall(r'<text [^>]*?y="([\d.]+)"[^>]*?class="on-(?:block|made) mid"', drawing)]
    assert edges
    assert labels
    assert min(abs(edge - label) for edge in edges for label in labels) > 5


def test_legend_of_a_part_lists_that_part() -> None:
    """A map that ends before the peak has no colour for what is made there."""
    plan = pipeline.plan("zoo:kws_dscnn_int8").plan
    peak = Picture(plan).peak
    assert peak is not None
    assert "output at the peak" in arena_drawing(plan).svg()
    assert "output at the peak" not in arena_drawing(plan, last_step=peak - 2).svg()


def test_state_has_a_colour_of_its_own(plans: tuple[Plan, Plan]) -> None:
    """Blocks that hold variables are drawn apart from all others, and the legend says so; where there are none, neither
    is there."""
    made = pipeline.plan(stream(3)).plan
    picture, svg = Picture(made), arena_drawing(made).svg()
    held = [block for block in picture.blocks if block.is_state]
    assert held
    assert svg.count('class="block state"') == len(held)
    assert {t for block in held for t in block.buffer.tensors} >= {t.index for t in made.graph.variables}
    assert ("state", "state, kept from run to run") in legend_entries([picture])
    assert 'class="block state"' not in arena_drawing(plans[1]).svg()
    assert "state" not in dict(legend_entries([Picture(plans[1])]))

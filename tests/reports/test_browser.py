"""The report in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.frontends.source import Source
from diagmem.model.graph import Graph
from diagmem.reports.report import report_page
from tests.browsing import Opened
from tests.reports.hostile import hostile_graph, long_named

MOBILENET = "zoo:mobilenet_v1_0.25_128_int8"
MOST_MS = 100


def written(model: str | Graph, place: Path, **options: Any) -> Path:
    path = place / "report.html"
    path.write_text(report_page(pipeline.plan(model, **options)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Layer by layer."""
    return Opened(browser, written(MOBILENET, tmp_path_factory.mktemp("page"), schedule="best"))


def test_page_is_quiet_and_alone(opened: Opened) -> None:
    """No message on the console, and no request but for the file itself."""
    assert opened.said == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [opened.page.url]


def test_slider_moves_through_the_steps(opened: Opened) -> None:
    """The keyboard moves the slider; sentence, cursor, live blocks, table row and details follow."""
    opened.page.focus("#step")
    opened.page.keyboard.press("Home")
    assert opened.text("#now").startswith("Step 0: conv 2d, conv_2d_0.")
    before = opened.page.get_attribute("#map-after .cursor", "y")
    opened.page.keyboard.press("ArrowRight")
    assert opened.text("#now").startswith("Step 1: depthwise conv 2d")
    assert float(opened.page.get_attribute("#map-after .cursor", "y")) > float(before or 0)
    assert opened.page.locator("#map-after .block.now").count() == 2
    assert opened.page.get_attribute("#table tr.current", "data-step") == "1"
    assert "DEPTHWISE_CONV_2D" in opened.text("#details h3")
    assert opened.page.locator("#overlap svg path.live").count() == 2


def test_the_peak_shows_what_it_shares(opened: Opened) -> None:
    """One click leads to the step that sets the peak, whose input and output share addresses."""
    opened.page.click("#peak")
    assert opened.text("#now").startswith("Step 2:")
    assert opened.page.locator("#overlap rect.shared").count() == 1


def test_hover_names_the_tensor(opened: Opened) -> None:
    """The pointer over a block shows its name and place, and nothing once it has left."""
    opened.page.locator("#map-after").scroll_into_view_if_needed()
    box = opened.page.locator("#map-after .block.made path.live").bounding_box()
    opened.page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.45 * box["height"])
    assert opened.page.is_visible(".tip")
    assert opened.text(".tip").startswith("conv_2d_2: bytes 0 to 65536")
    opened.page.locator("h1").hover()
    assert not opened.page.is_visible(".tip")


def test_a_click_tells_why_a_buffer_lies_there(opened: Opened) -> None:
    """The chain below it is listed and marked, down to the start of the arena."""
    opened.page.locator("#map-after .block > *").first.dispatch_event("click")
    links = opened.page.locator("#why .link").all_text_contents()
    assert links
    assert links[-1].startswith("0 B: ")
    assert opened.page.locator("#map-after .block.chain").count() == len(links)
    assert not opened.said


def test_table_sorts_searches_and_chooses(opened: Opened) -> None:
    """Headings sort and say so; the search narrows the table and marks blocks; a click shows the step."""
    page = opened.page
    page.click("#table th:has-text('MACs') button")
    sizes = [int(t.replace(",", "")) for t in page.locator("#table tbody td:nth-child(6)").all_text_contents()]
    assert sizes == sorted(sizes, reverse=True)
    assert page.get_attribute("#table th:has-text('MACs')", "aria-sort") == "descending"
    page.fill("#search", "softmax")
    assert page.locator("#table tbody tr:visible").count() == 1
    assert page.locator("#map-after .block.found").count() == 1
    page.click("#table tbody tr:visible button")
    assert ": softmax" in opened.text("#now")
    page.fill("#search", "")


def test_plan_can_be_downloaded(opened: Opened) -> None:
    """The download is the plan's JSON."""
    with opened.page.expect_download() as download:
        opened.page.click("#download")
    assert download.value.suggested_filename == "plan.json"
    saved = json.loads(Path(download.value.path()).read_text())
    assert saved == json.loads(json.dumps(pipeline.plan(MOBILENET, schedule="best").to_json()))


def test_dark_and_light(browser: Any, opened: Opened) -> None:
    """The page follows the reader's setting, and its button turns it over."""
    dark = Opened(browser, Path(opened.page.url.removeprefix("file://")), color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    assert dark.page.evaluate(colour) == "rgb(20, 23, 27)"
    dark.page.click("#theme")
    assert dark.page.evaluate(colour) == "rgb(255, 255, 255)"
    dark.page.emulate_media(media="print", color_scheme="dark")
    assert not dark.page.is_visible("#step")
    dark.page.close()


def test_hostile_names_do_no_harm(browser: Any, tmp_path: Path) -> None:
    """Names that are markup stay text while the page is used."""
    opened = Opened(browser, written(hostile_graph(), tmp_path))
    page = opened.page
    for step in range(6):
        page.evaluate(f"slider.value = {step}; slider.dispatchEvent(new Event('input'))")
    page.locator("#map-after .block path").first.dispatch_event("pointermove")
    assert opened.text(".tip").startswith("<script>")
    page.fill("#search", "<script>")
    assert page.evaluate("window.harmed") is None
    assert opened.said == []
    assert len(opened.requests) == 1
    assert "<script>window.harmed" in opened.text("#table")
    page.close()


@pytest.mark.deep
def test_a_thousand_operations_respond_at_once(browser: Any, tmp_path: Path) -> None:
    """A step of NASNet is shown within 100 ms, layout included: the median, since other work may come between."""
    opened = Opened(browser, written("zoo:nasnet_mobile", tmp_path))
    took = opened.page.evaluate(
        """() => [...Array(15).keys()].map((turn) => {
            const begin = performance.now();
            slider.value = 40 * turn;
            slider.dispatchEvent(new Event("input"));
            document.body.offsetHeight;
            return performance.now() - begin;
        })"""
    )
    assert sorted(took)[len(took) // 2] < MOST_MS
    assert opened.said == []
    opened.page.close()


@pytest.fixture(scope="module")
def by_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "report.html"
    made = pipeline.plan("zoo:kws_dscnn_int8", schedule="rows", input_rows=True)
    path.write_text(report_page(made), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For a chip that it does not fit."""
    graph = long_named(Source("zoo:vww_96_int8").graph)
    return written(graph, tmp_path_factory.mktemp("names"), target="STM32F030R8")


@pytest.mark.parametrize("width", [400, 1200, 2500])
@pytest.mark.parametrize("which", ["whole", "rows", "names"])
def test_nothing_is_wider_than_the_window(
    browser: Any, opened: Opened, by_rows: Path, long_names: Path, width: int, which: str
) -> None:
    """What is too wide scrolls in a box of its own."""
    paths = {"whole": Path(opened.page.url.removeprefix("file://")), "rows": by_rows, "names": long_names}
    shown = Opened(browser, paths[which])
    shown.page.set_viewport_size({"width": width, "height": 900})
    shown.page.evaluate("document.querySelector('details').open = true")
    assert shown.page.evaluate("document.documentElement.scrollWidth") == width
    boxes = "[...document.querySelectorAll('body *')].filter((e) => !e.closest('.wide, .map, .offscreen'))"
    assert shown.page.evaluate(f"Math.max(...{boxes}.map((e) => e.getBoundingClientRect().right))") <= width
    shown.page.close()


def test_steps_are_folded_by_op(browser: Any, by_rows: Path) -> None:
    """A row of the table for each op, and one for the rows of input, however many steps there are; the current step's
    is marked."""
    shown = Opened(browser, by_rows)
    made = pipeline.plan("zoo:kws_dscnn_int8", schedule="rows", input_rows=True)
    ops = dict.fromkeys(made.plan.schedule.ops)
    assert len(made.plan.schedule.ops) > 5 * len(ops)
    assert shown.page.locator("#table tbody tr").count() == len(ops)
    assert shown.page.evaluate("document.documentElement.scrollHeight") < 6000
    shown.page.evaluate("show(data.schedule.length - 1)")
    assert shown.page.get_attribute("#table tr.current", "data-op") == str(list(ops)[-1])
    shown.page.close()


def test_rows_can_be_looked_at_closely(browser: Any, by_rows: Path) -> None:
    """The whole run is in view with its axes; zoomed, it is higher than its box, has more labels, and follows the step.
    What is said of an op that runs by rows leaves out figures of whole tensors."""
    shown = Opened(browser, by_rows)
    page, height = shown.page, "document.querySelector('#map-after svg').clientHeight"
    assert page.is_checked("#fit")
    assert page.locator("#map-after .scale span:visible").count() > 2
    labels, whole = page.locator("#map-after .rows span:visible").count(), page.evaluate(height)
    assert labels > 5
    page.evaluate("slider.value = 0; byId('zoom').value = 5; byId('zoom').dispatchEvent(new Event('input'))")
    assert page.evaluate(height) == pytest.approx(5 * whole, rel=0.02)
    assert page.locator("#map-after .rows span").count() > 2 * labels
    first, last = (page.evaluate(f"show({step}), maps[1].box.scrollTop") for step in (0, "data.schedule.length - 1"))
    assert first < last
    page.evaluate("show(data.schedule.findIndex((op) => op >= 0 && data.ops[op][5]))")
    assert "row by row in" in shown.text("#details h3")
    assert "O_s" not in shown.text("#details")
    page.evaluate("byId('fit').click()")
    assert not page.is_visible("#map-after .scale")
    assert page.locator("#map-after svg text:visible").count() > 5
    assert shown.said == []
    page.close()

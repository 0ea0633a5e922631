"""`diagmem ui` in a real browser: as its user has it, from the drop of a file to C code that compiles."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.frontends.source import Source
from diagmem.frontends.tflite.writer import to_tflite
from tests.browsing import Opened
from tests.frontends.onnx import making as onnx
from tests.reports.hostile import hostile_graph, long_named, small_graph
from tests.serving import Served, served

DROP = """([name, base64]) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], name));
    for (const kind of ["dragenter", "dragover", "drop"]) {
        document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
    }
}"""


@pytest.fixture(scope="module")
def running() -> Iterator[Served]:
    with served() as found:
        yield found


class Desk(Opened):
    """The page, as a person has it before them."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        super().__init__(browser, address, accept_downloads=True, **options)
        # Other work may come between.
        self.page.set_default_timeout(30_000)

    def drop(self, name: str, content: bytes) -> None:
        self.page.evaluate(DROP, [name, base64.b64encode(content).decode()])

    def tried(self, count: int) -> list[str]:
        """The settings in the list, the largest arena first, once there are so many."""
        self.page.locator("#desk:not([aria-busy]) #ledger tbody tr").nth(count).wait_for()
        return [str(text) for text in self.page.locator("#ledger tbody button.link").all_text_contents()]

    def arena(self) -> int:
        """Of the plan shown."""
        return int(str(self.page.text_content("#ledger tr.current td:nth-child(3)")).replace(",", ""))

    def differences(self) -> dict[str, tuple[str, str]]:
        """Each figure of two plans side by side."""
        rows = self.page.locator("#differences tbody tr").all()
        cells = ([str(text) for text in row.locator("th, td").all_text_contents()] for row in rows)
        return {name: (left, right) for name, left, right, *_ in cells}

    def download(self, selector: str, place: Path) -> Path:
        with self.page.expect_download() as found:
            self.page.click(selector)
        path = place / str(found.value.suggested_filename)
        found.value.save_as(path)
        return path


@pytest.fixture
def desk(browser: Any, running: Served) -> Iterator[Desk]:
    """A tab, which says nothing on the console and asks nobody else, whatever is done with it."""
    opened = Desk(browser, running.address)
    yield opened
    assert opened.said == []
    elsewhere = [url for url in opened.requests if not url.startswith((running.address, "data:", "blob:"))]
    assert elsewhere == []
    opened.page.close()


def test_a_dropped_file_is_planned(desk: Desk) -> None:
    """Before, after, bound, peak and chips are there, with the pictures of the report, whose table and maps follow each
    other."""
    content = to_tflite(small_graph())
    desk.drop("small.tflite", content)
    desk.tried(1)
    made = pipeline.plan(content)
    page = desk.page
    assert desk.arena() == made.arena_bytes
    assert f"{made.arena_bytes:,} bytes" in desk.text(".is-after")
    assert f"{made.baseline_bytes:,} bytes" in desk.text(".is-before")
    assert "lower bound" in desk.text(".is-bound")
    assert page.locator("text=The peak is set by op").is_visible()
    page.click("text=See all.")
    assert page.locator("#chips").is_visible()
    assert "#chips" not in page.url
    page.click("#table tbody tr:nth-child(2) button")
    assert desk.text("#now").startswith("Step 1:")
    page.locator("#map-after .block").last.click(force=True, position={"x": 2, "y": 2})
    assert page.locator("#table tr.current").count() == 1
    page.fill("#search", "softmax")
    assert page.locator("#map-after .block.found").count() == 1
    assert page.title().startswith("small.tflite: ")


def test_switches_plan_anew_and_going_back_asks_nobody(desk: Desk) -> None:
    """Each setting is a line of the list; one that was tried is shown at once, without a request."""
    page = desk.page
    desk.drop("switched.tflite", Source("zoo:kws_dscnn_int8").content)
    desk.tried(1)
    whole = desk.arena()
    page.click("#switch-input_rows")
    assert desk.tried(2) == ["default", "streamed input"]
    assert page.input_value("#switch-schedule") == "auto"
    assert desk.arena() < whole
    page.click("#switch-skip")
    assert "streamed input, no removal" in desk.tried(3)
    before = len(desk.requests)
    for number in (0, 1, 2, 1):
        page.locator("#ledger button.link").nth(number).focus()
        page.keyboard.press("Enter")
        assert page.locator("#ledger button.link:focus[aria-current=true]").count() == 1
    page.click("#defaults")
    assert desk.arena() == whole
    assert not page.is_checked("#switch-input_rows")
    assert len(desk.requests) == before


def test_a_plan_can_be_cancelled(desk: Desk, running: Served) -> None:
    """Its process ends, what was seen before is still there, and the switches are as it was made."""
    page = desk.page
    desk.drop("small.tflite", to_tflite(small_graph()))
    desk.tried(1)
    page.select_option("#zoo", "zoo:nasnet_mobile")
    page.locator("#status").wait_for()
    assert page.locator("#progress").is_visible()
    page.keyboard.press("Escape")
    page.locator("#status").wait_for(state="hidden")
    assert desk.text("h1").endswith("small.tflite")
    page.select_option("#zoo", "zoo:nasnet_mobile")
    page.click("#cancel")
    page.locator("#status").wait_for(state="hidden")
    assert page.locator("#failure").is_hidden()


@pytest.mark.deep
def test_two_settings_stand_side_by_side(desk: Desk) -> None:
    """Their figures with the change, and both with all their pictures, each with a step of its own."""
    page = desk.page
    desk.drop("pair.tflite", to_tflite(small_graph()))
    desk.tried(1)
    page.click("#switch-overlap")
    desk.tried(2)
    page.click("#ledger button:text-is('Compare')")
    assert page.locator("#compared").is_visible()
    assert page.locator(".view:visible").count() == 2
    overlapped = pipeline.plan(to_tflite(small_graph())).arena_bytes
    apart = pipeline.plan(to_tflite(small_graph()), overlap=False).arena_bytes
    assert desk.differences()["RAM: arena"] == (f"{overlapped:,}", f"{apart:,}")
    assert "RAM: stack, up to" not in desk.differences()
    sliders = page.locator("#step:visible")
    sliders.first.focus()
    page.keyboard.press("Home")
    sliders.last.focus()
    page.keyboard.press("End")
    assert [slider.input_value() for slider in sliders.all()] == ["0", sliders.last.get_attribute("max")]
    page.click("#alone")
    assert page.locator(".view:visible").count() == 1


def test_a_chip_is_judged(desk: Desk) -> None:
    """Its verdict stands on top of the report, instructions are counted on its core, and two chips side by side have
    the figures of `diff`. One that is not known gets the nearest names."""
    page, content = desk.page, to_tflite(small_graph())
    desk.drop("chip.tflite", content)
    desk.tried(1)
    assert page.input_value("#core") == "cortex-m4"
    for number, chip in enumerate(("RP2040", "nRF52840"), 2):
        page.fill("#switch-target", chip)
        page.keyboard.press("Tab")
        desk.tried(number)
        page.locator(f".verdict:visible:has-text('{chip}')").wait_for()
        assert page.locator(".verdict:visible").inner_text().split("\n")[0].endswith(": fits")
    assert page.input_value("#core") == "cortex-m4"
    page.click("#ledger tr:has-text('RP2040') button.link")
    assert page.input_value("#core") == "cortex-m0"
    page.click("#ledger tr:has-text('nRF52840') button:text-is('Compare')")
    expected = pipeline.diff(content, content, target="nRF52840").before.values
    for figure, name in (("RAM: stack, up to", "stack_bytes"), ("flash: code, about", "code_bytes")):
        assert desk.differences()[figure][0] == f"{expected[name]:,}"
    page.fill("#switch-target", "nrf52480")
    page.keyboard.press("Tab")
    page.locator("#failure").wait_for()
    assert "did you mean nRF52840" in desk.text("#failure")


@pytest.mark.deep
def test_a_point_of_the_front_is_a_plan(desk: Desk) -> None:
    """Each plan of the front is drawn, and to press its point makes that plan."""
    page = desk.page
    desk.drop("front.tflite", Source("zoo:kws_dscnn_int8").content)
    desk.tried(1)
    page.click("#draw-front")
    page.locator(".point").first.wait_for()
    front = [made.arena_bytes for made in pipeline.pareto(Source("zoo:kws_dscnn_int8").content)]
    assert page.locator(".point").count() == len(front)
    page.locator(".point").last.focus()
    page.keyboard.press("Enter")
    page.locator(f"[data-point='{len(front) - 1}'][aria-pressed=true]:focus").wait_for()
    assert desk.arena() == front[-1]


@pytest.mark.deep
def test_what_is_taken_along(desk: Desk, tmp_path: Path) -> None:
    """C code that compiles without a warning, a planned file that carries its plan, the plan, the report."""
    page = desk.page
    content = Source("zoo:kws_dscnn_int8").content
    desk.drop("my model.tflite", content)
    desk.tried(1)
    packed = desk.download("[data-take=c]", tmp_path)
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path)
    sources = sorted((tmp_path / "my_model").glob("*.c"))
    assert sources
    if compiler := shutil.which("gcc"):
        flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only")
        subprocess.run([compiler, *flags, *map(str, sources)], check=True)
    planned = desk.download("[data-take=tflm]", tmp_path)
    assert planned.name == "my_model-planned.tflite"
    assert b"OfflineMemoryAllocation" in planned.read_bytes()
    plan = json.loads(desk.download("[data-take=json]", tmp_path).read_text())
    made = pipeline.plan(Source(content, title="my model"))
    assert plan == json.loads(json.dumps(made.to_json()))
    assert pipeline.check(content, plan) == []
    report = desk.download("[data-take=report]", tmp_path).read_text()
    assert report.startswith("<!doctype html>")
    lines = desk.text("#shell").split("\n")
    assert lines[0] == "diagmem plan 'my model.tflite' -o plan.json"
    page.select_option("#layout", "arduino")
    assert desk.text("#shell").endswith("--plan plan.json -o firmware --layout arduino")
    assert 'layout="arduino"' in desk.text("#python")
    with zipfile.ZipFile(desk.download("[data-take=c]", tmp_path)) as archive:
        assert any(name.endswith("library.properties") for name in archive.namelist())


@pytest.mark.parametrize(
    "content", [b"", b"no model", b"\x1c\x00\x00\x00TFL3" + b"\xff" * 4000, b"\x08\x07" + b"\xff" * 4000]
)
def test_a_hostile_file_gets_one_line(desk: Desk, content: bytes) -> None:
    """Under a hostile name: nothing of it is more than text."""
    name = "<img src=x onerror=window.harmed=1>.tflite"
    desk.drop(name, content)
    desk.page.locator("#failure").wait_for()
    line = desk.text("#failure")
    assert line.startswith("<img")
    assert "\n" not in line
    assert "Traceback" not in line
    assert desk.page.evaluate("window.harmed") is None
    assert desk.page.is_visible("#start")


def test_hostile_names_do_no_harm(desk: Desk) -> None:
    """Names of tensors that are markup stay text on the page, too."""
    graph = hostile_graph()
    # A file holds no half of a character.
    tensors = tuple(replace(t, name=t.name.replace("\ud800", "")) for t in graph.tensors)
    desk.drop("<b>bold.tflite", to_tflite(replace(graph, tensors=tensors)))
    desk.tried(1)
    desk.page.locator("#map-after .block path").first.dispatch_event("pointermove")
    assert "<script>window.harmed" in desk.text("#table")
    assert desk.page.evaluate("window.harmed") is None
    assert desk.text("h1").endswith("<b>bold.tflite")


@pytest.mark.deep
def test_a_second_tab_knows_what_was_tried(browser: Any, desk: Desk, running: Served) -> None:
    """It has a setting of its own, and what the first has made needs no new plan."""
    desk.drop("tabs.tflite", to_tflite(small_graph()))
    desk.tried(1)
    desk.page.click("#switch-overlap")
    desk.tried(2)
    second = Desk(browser, desk.page.url)
    assert second.tried(2) == ["no overlap", "default"]
    assert second.arena() == desk.arena()
    second.page.click("#switch-overlap")
    second.page.locator("#ledger tr.current:has-text('default')").wait_for()
    assert second.arena() < desk.arena()
    assert second.said == []
    second.page.close()


def test_a_killed_process_is_said_and_replaced(desk: Desk, running: Served) -> None:
    """The line says what happened; the next plan has a process again."""
    desk.page.select_option("#zoo", "zoo:nasnet_mobile")
    desk.page.locator("#status").wait_for()
    for pid in running.workers():
        os.kill(pid, signal.SIGKILL)
    desk.page.locator("#failure").wait_for()
    assert "signal 9" in desk.text("#failure")
    desk.drop("after.tflite", to_tflite(small_graph()))
    desk.tried(1)
    assert desk.page.locator("#failure").is_hidden()


def test_the_keyboard_alone_will_do(desk: Desk) -> None:
    """From the start to a plan, a switch and a hand-over, every control is reached by Tab, and none holds the focus."""
    page = desk.page
    page.keyboard.press("Tab")
    page.keyboard.type("resnet8")
    desk.tried(1)
    seen: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(str(page.evaluate("document.activeElement.id || document.activeElement.dataset.take || ''")))
        if seen[-1] == "switch-overlap":
            page.keyboard.press("Space")
            desk.tried(2)
        if seen[-1] == "python":
            break
    for wanted in ("file", "theme", "switch-schedule", "switch-recompute", "draw-front", "c", "tflm", "json", "report"):
        assert wanted in seen
    assert "no overlap" in desk.tried(2)


def test_every_control_has_a_name(desk: Desk) -> None:
    """A screen reader says what each button, box, slider and picture is, and where the parts of the page begin."""
    desk.drop("small.tflite", to_tflite(small_graph()))
    desk.tried(1)
    nameless = desk.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, summary, progress")].filter((one) => {
            const labels = [...(one.labels ?? [])].map((label) => label.textContent);
            return ![one.getAttribute("aria-label"), one.textContent, ...labels].some((words) => words && words.trim());
        }).map((one) => one.outerHTML)"""
    )
    assert nameless == []
    assert desk.page.locator("main").count() == 1
    assert desk.page.locator("#failure[role=alert]").count() == 1
    assert desk.page.locator("#doing[role=status]").count() == 1


@pytest.mark.parametrize("width", [400, 1200, 2500])
def test_nothing_is_wider_than_the_window(desk: Desk, width: int) -> None:
    """At the start, with one plan and with two; what is too wide scrolls in a box of its own."""
    page = desk.page
    page.set_viewport_size({"width": width, "height": 900})
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == width
    desk.drop(f"{'long_' * 30}name.tflite", to_tflite(long_named(Source("zoo:kws_dscnn_int8").graph)))
    desk.tried(1)
    assert page.evaluate(wide) == width
    page.evaluate("document.getElementById('panel').open = true")
    page.click("#switch-overlap")
    desk.tried(2)
    page.click("#ledger button:text-is('Compare')")
    assert page.evaluate(wide) == width


@pytest.mark.deep
def test_dark_and_light(browser: Any, running: Served) -> None:
    """The page follows the reader's setting, and its button turns it over, the pictures with it."""
    dark = Desk(browser, running.address, color_scheme="dark")
    dark.drop("small.tflite", to_tflite(small_graph()))
    dark.tried(1)
    colour = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.view').shadowRoot.querySelector('.figure .made')).fill"
    before = dark.page.evaluate(ink)
    assert dark.page.evaluate(colour) == "rgb(20, 23, 27)"
    dark.page.click("#theme")
    assert dark.page.evaluate(colour) == "rgb(255, 255, 255)"
    assert dark.page.evaluate(ink) != before
    dark.page.close()


@pytest.mark.deep
def test_memories_have_sliders(desk: Desk) -> None:
    """Those of a chip are set at once; a slider that is moved makes another plan, which says what lies where."""
    page = desk.page
    desk.drop("memories.tflite", to_tflite(small_graph()))
    desk.tried(1)
    page.select_option("#switch-pools", "STM32F407VG")
    assert "SRAM:128K + CCM:64K" in desk.tried(2)
    page.locator(".memories input[type=range]").first.focus()
    page.keyboard.press("Home")
    assert "SRAM:1K + CCM:64K" in desk.tried(3)
    assert "--pool SRAM:1K --pool CCM:64K" in desk.text("#shell")
    for name in ("CCM", "SRAM"):
        page.click(f"[aria-label='Without {name}']")
    page.locator("#ledger tr.current:has-text('default')").wait_for()


@pytest.mark.deep
def test_shapes_that_a_file_leaves_open_can_be_given(desk: Desk) -> None:
    """What is no shape gets one line; one that is makes a plan of its own."""
    page = desk.page
    desk.drop("shapes.tflite", to_tflite(small_graph()))
    desk.tried(1)
    page.fill("#switch-shapes", "no shape")
    page.keyboard.press("Tab")
    page.locator("#failure").wait_for()
    assert "is no name and shape" in desk.text("#failure")
    page.fill("#switch-shapes", "input=1x16x16x3")
    page.keyboard.press("Tab")
    assert "input=1x16x16x3" in desk.tried(2)
    assert page.locator("#failure").is_hidden()


@pytest.mark.skipif(
    shutil.which("arm-none-eabi-gcc") is None or shutil.which("qemu-system-arm") is None,
    reason="needs arm-none-eabi-gcc and qemu-system-arm",
)
def test_instructions_can_be_counted(desk: Desk) -> None:
    """The plan is run in an emulated core; the table of operations then has a column with what each takes."""
    desk.drop("counted.tflite", to_tflite(small_graph()))
    desk.tried(1)
    desk.page.click("#count")
    desk.page.locator("#counted:has-text('instructions on cortex-m4')").wait_for()
    column = desk.page.locator("#table tbody td:nth-child(10)").all_text_contents()
    assert min(int(text.replace(",", "")) for text in column) > 0


@pytest.mark.deep
def test_cores_share_a_run(desk: Desk) -> None:
    """A slider sets how many; the report then shows which of them touches what."""
    desk.drop("cores.tflite", to_tflite(small_graph()))
    desk.tried(1)
    desk.page.focus("#switch-cores")
    desk.page.keyboard.press("ArrowRight")
    assert "2 cores" in desk.tried(2)
    assert desk.page.locator("#cores").is_visible()
    assert "--cores 2" in desk.text("#shell")


@pytest.mark.deep
def test_tensors_are_named(desk: Desk) -> None:
    """Where an option is a list of names, they are written with semicolons between."""
    desk.drop("named.tflite", to_tflite(small_graph()))
    desk.tried(1)
    desk.page.fill("#switch-buffers", "conv_2d_0=keep; conv_2d_2=keep")
    desk.page.keyboard.press("Tab")
    assert "buffers of the firmware conv_2d_0=keep + conv_2d_2=keep" in desk.tried(2)
    assert "--buffer conv_2d_0=keep --buffer conv_2d_2=keep" in desk.text("#shell")
    desk.page.fill("#switch-buffers", "")
    desk.page.keyboard.press("Tab")
    desk.page.locator("#ledger tr.current:has-text('default')").wait_for()


@pytest.mark.deep
def test_an_onnx_file_tells_its_shapes_or_is_told_them(desk: Desk) -> None:
    """One whose size is open says in a line what to give; given, it is planned."""
    content = onnx.model([onnx.node("Relu", ["x"], ["y"])], {"x": (1, "length")}, {"y": (1, "length")})
    desk.drop("open.onnx", content)
    desk.page.locator("#failure").wait_for()
    assert "--shape" in desk.text("#failure")
    desk.page.click("[data-take=c]")
    assert desk.text("#failure").startswith("there is no plan yet")
    desk.page.fill("#switch-shapes", "x=1x4")
    desk.page.keyboard.press("Tab")
    assert desk.tried(1) == ["x=1x4"]
    assert "--shape x=1x4" in desk.text("#shell")

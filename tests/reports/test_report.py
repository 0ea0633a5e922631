"""The report page: one file, complete, safe to open whatever the model's names are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem import pipeline
from diagmem.costs import Costs, Fit
from diagmem.model.graph import Graph
from diagmem.reports.pages import as_json
from diagmem.reports.report import fits_of, report_page
from diagmem.targets import RESERVE_BYTES, chip_named
from tests.reports.hostile import NAMES, apart, hostile_graph
from tests.streams import stream


def page_of(model: str | Graph) -> str:
    return report_page(pipeline.plan(model))


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(hostile_graph())


class Elements(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)


def test_the_bound_says_how_far_the_plan_may_be_from_the_optimum() -> None:
    """In the words of the command line, beside the bound: proven, or at most so many bytes above."""
    made = pipeline.plan(hostile_graph())
    loose = replace(made, plan=replace(made.plan, lower_bound_bytes=made.plan.arena_bytes - 10))
    for planned, words in ((made, "proven optimal over all orders"), (loose, "above the optimum over all orders")):
        assert planned.plan.proof_text.endswith(words)
        beside = report_page(planned).split("lower bound<b>")[1].split("</div>")[0]
        assert planned.plan.proof_text in beside
        assert ('class="yes"' in beside) == planned.plan.optimal


def test_hostile_names_are_text(page: str) -> None:
    """Three scripts, all ours; no event handler, no image, no link to anywhere."""
    elements = Elements(page)
    assert [attributes.get("id") for tag, attributes in elements.found if tag == "script"] == ["data", "plan", None]
    assert not [tag for tag, _ in elements.found if tag in ("img", "iframe", "object", "embed", "base", "form")]
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    for _, attributes in elements.found:
        for name in ("src", "href"):
            assert re.fullmatch(r"#\w+|data:,", attributes.get(name) or "#none")


def test_names_are_shown(page: str) -> None:
    """The names are there for people to read: in the plan's JSON unchanged, in the page escaped."""
    plan = json.loads(Elements(page).scripts[1])
    assert plan["model"] == NAMES[1]
    assert any(t["name"].startswith(NAMES[0]) for t in plan["tensors"])
    assert "&lt;script&gt;window.harmed = 1&lt;/script&gt;" in page


def test_only_our_script_may_run(page: str) -> None:
    """The page's policy allows the one script by its digest, and loads nothing."""
    script = Elements(page).scripts[2]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(a["content"] for t, a in Elements(page).found if t == "meta" and "http-equiv" in a) or ""
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_page_is_the_same_every_time(page: str) -> None:
    assert page_of(hostile_graph()) == page


def test_page_has_a_row_for_each_step_and_a_block_for_each_buffer(page: str) -> None:
    """Nothing is left out."""
    plan = pipeline.plan(hostile_graph()).plan
    assert page.count("<tr data-step=") == len(plan.schedule.steps)
    assert page.count("data-block=") == 2 * len(plan.buffers)


def test_labels_belong_to_controls(page: str) -> None:
    """Every label names a control that exists, every region is labelled by a heading that exists."""
    elements = Elements(page).found
    ids = [a["id"] for _, a in elements if "id" in a]
    assert len(ids) == len(set(ids))
    named = [a[key] for _, a in elements for key in ("for", "aria-labelledby") if a.get(key)]
    assert set(named) <= set(ids)


@pytest.mark.parametrize("model", ["vww_96_int8", "kws_dscnn_int8", "resnet8_int8", "mobilenet_v1_0.25_128_int8"])
def test_pages_of_small_models_are_small(model: str) -> None:
    """Under 2 MB for models of micro-controllers."""
    assert len(page_of(f"zoo:{model}").encode()) < 2_000_000


def test_fit_leaves_room_for_a_stack() -> None:
    """An arena that takes all of a chip's RAM does not fit; the paper's example fits the paper's chip only after."""
    model = "zoo:mobilenet_v1_0.25_128_int8"
    chip = chip_named("STM32F103xF")
    fits = [Fit(chip, Costs.of(plan).on(chip)) for plan in (apart(model), pipeline.plan(model).plan)]
    assert fits[0].ram_left_bytes == -RESERVE_BYTES
    assert [fit.fits for fit in fits] == [False, True]


def chip_rows(page: str) -> dict[str, str]:
    """The table of chips as it is read."""
    rows = re.findall(r'<th scope="row">(\S+) <span class="soft">(.*?)</tr>', page, re.DOTALL)
    return {name: re.sub(r"<[^>]*>|\s+", " ", cells) for name, cells in rows}


def test_chips_are_judged_as_by_the_command() -> None:
    """Stack included, and beside what is left the memory that it is of; those that need other kernels are left out."""
    page = page_of("zoo:vww_96_int8")
    rows = chip_rows(page)
    costs = Costs.of(pipeline.plan("zoo:vww_96_int8"))
    for name in ("STM32F030R8", "STM32F091RC"):
        fit = Fit(chip_named(name), costs.on(chip_named(name)))
        short = f"short by {-fit.ram_left_bytes / 1024:.1f} KB"
        assert (short if fit.ram_left_bytes < 0 else f"{fit.ram_free_bytes / 1024:.1f} KB left") in rows[name]
    assert "of 128 KB DTCM" in " ".join(rows["STM32H743ZI"].split())
    assert "more chips are left out" not in page
    with_dsp = report_page(pipeline.plan("zoo:vww_96_int8", cpu="cortex-m4"))
    left_out = rows.keys() - chip_rows(with_dsp).keys()
    assert "STM32F030R8" in left_out
    assert not any(chip_named(name).core.has_dsp for name in left_out)
    assert f"{len(left_out)} more chips are left out: they need other kernels" in with_dsp


def test_a_split_arena_is_judged_in_its_own_memories() -> None:
    """On the target in all of them, on other chips in a single one."""
    made = pipeline.plan("zoo:vww_96_int8", target="STM32F407VG", all_memories=True)
    fits = {fit.chip.name: fit for fit in fits_of(Costs.of(made))}
    assert fits["STM32F407VG"].pools_missing == made.plan.pools.missing_bytes == 0
    assert fits["STM32F401RE"].ram_bytes == made.plan.pools.single_bytes


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_cannot_end_its_element(value: object) -> None:
    """It reads back as it was, and holds no character that means anything to HTML."""
    text = as_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_state_is_a_part_of_the_arena_by_itself(page: str) -> None:
    """Where a model has some: in the accounting, and in the pictures."""
    made = pipeline.plan(stream(3))
    with_state = report_page(made)
    words = "in it: state, kept from run to run"
    assert re.search(rf'{words}</td><td class="number">{made.plan.state_bytes}</td>', with_state)
    assert 'class="block state"' in with_state
    assert words not in page

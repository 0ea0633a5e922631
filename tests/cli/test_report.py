"""`diagmem report` and `diagmem paper` write what they say, or nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from diagmem import pipeline
from diagmem.cli import diagmem
from tests.cli.calling import call


def test_report_writes_a_page_and_pictures(tmp_path: Path) -> None:
    """A directory that was not there holds the page, the plan and the pictures."""
    place = tmp_path / "new" / "report"
    done = CliRunner().invoke(diagmem, ["report", "zoo:resnet8_int8", "-o", str(place), "--align", "16"])
    assert done.exit_code == 0, done.output
    assert "report.html" in done.output
    plan = json.loads((place / "plan.json").read_text())
    assert plan["align_bytes"] == 16
    assert (place / "report.html").read_text().startswith("<!doctype html>")
    assert {"arena.svg", "live.svg"} <= {path.name for path in place.iterdir()}


def test_report_writes_the_page_alone(tmp_path: Path) -> None:
    """A name that ends in .html is the page; what it shows lies inside it. A directory of such a name stays one."""
    page = tmp_path / "new" / "page.html"
    done = CliRunner().invoke(diagmem, ["report", "zoo:resnet8_int8", "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    assert page.read_text().startswith("<!doctype html>")
    assert "page.html" in done.output
    folder = tmp_path / "folder.html"
    folder.mkdir()
    assert CliRunner().invoke(diagmem, ["report", "zoo:resnet8_int8", "-o", str(folder)]).exit_code == 0
    assert (folder / "report.html").is_file()


def test_report_does_not_replace_a_file_by_a_directory(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = call("report", "zoo:resnet8_int8", "-o", str(tmp_path / "notes.txt"))
    assert done.returncode == 2
    assert "is a file: give a directory" in done.stderr


def test_report_of_rows_that_are_recomputed(tmp_path: Path) -> None:
    """A page about a plan that runs row by row, with the options that made it."""
    options = ["--schedule", "rows", "--recompute", "1.2", "--allocator", "greedy"]
    done = CliRunner().invoke(diagmem, ["report", "zoo:kws_dscnn_int8", "-o", str(tmp_path), *options])
    assert done.exit_code == 0, done.output
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert len(plan["rows"]) == len(plan["schedule"])
    assert 1 <= plan["recompute"] <= 1.2
    assert f"after   {plan['arena_bytes']:,} B" in done.output
    assert (tmp_path / "report.html").read_text().count("<tr data-step=") == len(set(plan["schedule"]))


@pytest.mark.parametrize("arguments", [["report", "zoo:resnet8_int8"], ["report", "-o", "x"]])
def test_report_needs_a_model_and_a_directory(arguments: list[str]) -> None:
    assert CliRunner().invoke(diagmem, arguments).exit_code == 2


def test_paper_prints_its_tables() -> None:
    """Without a directory the tables go to standard output."""
    done = CliRunner().invoke(diagmem, ["paper"])
    assert done.exit_code == 0, done.output
    for words in ("Table I:", "Table II:", "Table III:", "10079.1", "Section II-A"):
        assert words in done.output


def test_json_stands_alone() -> None:
    """`--json -` writes JSON and nothing else."""
    done = CliRunner().invoke(diagmem, ["paper", "--json", "-"])
    assert [len(table["rows"]) for table in json.loads(done.stdout)["tables"]] == [5, 3, 11, 3]


@pytest.mark.parametrize(
    "target",
    ["NUCLEO-L4R5ZI", *(pytest.param(chip, marks=pytest.mark.deep) for chip in ("STM32F030R8", "STM32H743ZI"))],
)
def test_the_page_says_whether_the_plan_fits_its_target(tmp_path: Path, target: str) -> None:
    """In the words and figures of `plan --target`: the verdict, and RAM and flash with their parts."""
    page = tmp_path / "page.html"
    assert call("report", "zoo:vww_96_int8", "--target", target, "-o", str(page)).returncode == 0
    verdict = page.read_text().split('class="verdict"')[1].split("</section>")[0].split(">", 1)[1]
    told = " ".join(re.sub("<[^>]*>", "", verdict).split())
    screen = call("plan", "zoo:vww_96_int8", "--target", target).stdout.split("how it runs")[0]
    assert told == " ".join(re.sub("[█▏▎▍▌▋▊▉]+", "", screen).split())


def test_the_accounting_is_that_of_the_json(tmp_path: Path) -> None:
    """RAM with the stack, flash with the code, and their totals; without a core neither is known."""
    told = call("report", "zoo:kws_dscnn_int8", "--cpu", "m4", "-o", str(tmp_path), "--json", "-")
    cost = json.loads(told.stdout)["cost"]
    assert json.loads((tmp_path / "plan.json").read_text())["cost"] == cost
    page = (tmp_path / "report.html").read_text()
    for name, size in (("stack up to", cost["ram"]["stack_bytes"]), ("code", cost["flash"]["code_bytes"])):
        assert f'<th scope="row">{name}</th><td class="number">{size:,}</td>' in page
    for part in ("ram", "flash"):
        assert f'<td>total</td><td class="number">{cost[part]["total_bytes"]:,}</td>' in page
    call("report", "zoo:kws_dscnn_int8", "-o", str(tmp_path))
    assert '<th scope="row">stack' not in (tmp_path / "report.html").read_text()


def profile_of(model: str) -> dict[str, Any]:
    """As `diagmem profile --json` writes it, with made-up instructions."""
    ops = pipeline.plan(model, cpu="m4").plan.graph.ops
    told = [{"index": op.number, "kind": op.kind, "instructions": 1_420_170 + op.number} for op in ops]
    return {"model": model.removeprefix("zoo:"), "on": "cortex-m4", "instructions": 20_000_001, "ops": told}


def test_a_profile_adds_a_column(tmp_path: Path) -> None:
    """Instructions that were counted stand beside each op, and in total in the page and the JSON. The plan is for the
    kernels that were profiled. What is no profile of this model is refused in one line."""
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(profile_of("zoo:kws_dscnn_int8")))
    report = ["report", "zoo:kws_dscnn_int8", "--profile", str(profile), "--json", str(tmp_path / "told.json"), "-o"]
    done = CliRunner().invoke(diagmem, [*report, str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert '<button type="button">instructions</button>' in page
    assert '<td class="number">1,420,172</td>' in page
    assert "20,000,001 instructions on cortex-m4" in page
    for path in (tmp_path / "told.json", tmp_path / "out" / "plan.json"):
        told = json.loads(path.read_text())
        assert told["cost"]["instructions"] == 20_000_001
        assert told["kernels"] == "diagmem-dsp"
    other_op = profile_of("zoo:kws_dscnn_int8")
    other_op["ops"][1]["kind"] = "CONV_2D"
    for other in (profile_of("zoo:resnet8_int8"), other_op):
        profile.write_text(json.dumps(other))
        refused = call(*report, str(tmp_path / "no"))
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert "is of another model, or was made with other options" in refused.stderr
    profile.write_text("[]")
    done = CliRunner().invoke(diagmem, [*report, str(tmp_path / "no")])
    assert "is not a profile" in str(done.exception)
    assert not (tmp_path / "no").exists()

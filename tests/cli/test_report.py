"""`diagmem report` and `diagmem paper` write what they say, or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

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


def test_report_of_rows_that_are_made_again(tmp_path: Path) -> None:
    """A page about a plan that runs row by row, with the options that made it."""
    options = ["--schedule", "rows", "--recompute", "1.2", "--allocator", "greedy"]
    done = CliRunner().invoke(diagmem, ["report", "zoo:kws_dscnn_int8", "-o", str(tmp_path), *options])
    assert done.exit_code == 0, done.output
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert len(plan["rows"]) == len(plan["schedule"])
    assert 1 <= plan["recompute"] <= 1.2
    assert f"after   {plan['arena_bytes']} B" in done.output
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


def test_a_profile_adds_a_column(tmp_path: Path) -> None:
    """Instructions that were counted stand beside each op; what is no profile is refused in one line."""
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"ops": [{"index": 2, "instructions": 1420179}]}))
    report = ["report", "zoo:kws_dscnn_int8", "--profile", str(profile), "-o"]
    done = CliRunner().invoke(diagmem, [*report, str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert '<button type="button">instructions</button>' in page
    assert '<td class="number">1,420,179</td>' in page
    profile.write_text("[]")
    done = CliRunner().invoke(diagmem, [*report, str(tmp_path / "no")])
    assert "is not a profile" in str(done.exception)
    assert not (tmp_path / "no").exists()

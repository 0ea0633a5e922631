"""What changed between two models or plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from diagmem import pipeline
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.errors import DiagmemError, PlanError
from diagmem.model.graph import DType, Graph
from diagmem.reports.difference import Growth, change_text, index_text, markdown
from tests.cli.calling import call


def network(*depths: int, prefix: str = "net") -> Graph:
    b = Builder(prefix, DType.INT8)
    x = b.input(1, 16, 16, 4)
    for depth in depths:
        x = b.conv(x, depth, 3)
    return b.graph(b.softmax(b.fully_connected(b.flatten(b.mean(x, True)), 4)))


def test_a_model_and_itself() -> None:
    found = pipeline.diff(network(8), network(8))
    assert found.changed == ()
    assert all(old == new for _, old, new in found.figures())
    assert "No op has changed." in markdown(found)


def test_a_wider_layer_is_found() -> None:
    """The op that grew is paired with itself, and sums are those of the plans."""
    before, after = network(8, 8), network(8, 16)
    found = pipeline.diff(before, after, schedule="best")
    values = found.before.values, found.after.values
    assert (found.before.arena_bytes, found.after.arena_bytes) == tuple(
        pipeline.plan(graph, schedule="best").arena_bytes for graph in (before, after)
    )
    assert (values[1]["macs"] or 0) > (values[0]["macs"] or 0)
    grown = [pair for pair in found.changed if pair.before and pair.before.values["macs"]]
    assert index_text(grown[0]) == "1"
    assert all(pair.before and pair.after for pair in found.ops)


def test_a_new_layer_is_new() -> None:
    """It has nothing to be compared with; the ops behind it have moved on by one."""
    found = pipeline.diff(network(8, 8), network(8, 8, 8))
    new = [pair for pair in found.ops if pair.before is None]
    assert [pair.after.kind for pair in new if pair.after] == ["CONV_2D"]
    assert not [pair for pair in found.ops if pair.after is None]


def test_two_plans(tmp_path: Path) -> None:
    """Plans from files are compared by index. They tell of flash and work what models do, though not op by op."""
    for name, overlap in (("a", True), ("b", False)):
        made = pipeline.plan(network(8, 8), schedule="best", overlap=overlap)
        (tmp_path / f"{name}.json").write_text(json.dumps(made.to_json()))
    found = pipeline.diff(tmp_path / "a.json", tmp_path / "b.json")
    assert found.after.arena_bytes > found.before.arena_bytes
    graphs = pipeline.diff(network(8, 8), network(8, 8), schedule="best")
    assert found.before.values == graphs.before.values
    assert [pair.before.index for pair in found.ops if pair.before] == made.to_json()["schedule"]
    with pytest.raises(DiagmemError, match="cannot be run"):
        pipeline.diff(tmp_path / "a.json", tmp_path / "b.json", on="cortex-m4")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 5000, '{"arena_bytes": 1, "schedule": [0], "pressure": []}'])
def test_files_that_are_no_plans(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(PlanError, match="not a plan"):
        pipeline.diff(tmp_path / "bad.json", tmp_path / "bad.json")


def test_names_stay_inside_their_cells() -> None:
    """Whatever a model is called, Markdown takes it for text."""
    hostile = network(8, prefix="a|b`<img src=x onerror=alert(1)>*")
    text = markdown(pipeline.diff(hostile, network(8)))
    assert "<img" not in text
    assert all(line.count("|") - line.count("\\|") == 5 for line in text.splitlines() if line.startswith("| RAM"))


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(100, 150, "+50 (+50.0 %)"), (4, 4, "="), (None, 4, ""), (0, 4, "+4"), (2048, 1024, "-1,024 (-50.0 %)")],
)
def test_changes_as_text(before: int | None, after: int, text: str) -> None:
    assert change_text(before, after) == text


def test_the_command_line() -> None:
    """JSON, Markdown and a table; a model that is not there is one line and status 2."""
    models = ("zoo:kws_dscnn_int8", "zoo:vww_96_int8")
    told = json.loads(call("diff", *models, "--json", "-").stdout)
    assert told["arena_bytes"] == {"before": 3866, "after": 27750}
    assert call("diff", *models, "--markdown").stdout.startswith("**kws")
    assert "RAM: arena" in call("diff", *models).stdout
    done = call("diff", models[0], "missing.tflite")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("limit", "figure", "after", "is_allowed"),
    [
        *(("2%", "macs", 1020, True), ("2%", "macs", 1021, False), ("0%", "arena_bytes", 1001, False)),
        *(("0.5 %", "arena_bytes", 1005, True), ("2%", "arena_bytes", 10, True)),
        *(
            ("512B", "arena_bytes", 1512, True),
            ("512B", "weights_bytes", 1513, False),
            ("1K", "arena_bytes", 2024, True),
        ),
        *(("512B", "macs", 10**6, True), ("0", "arena_bytes", 1001, False), ("0B", "arena_bytes", 1000, True)),
    ],
)
def test_how_much_growth_is_allowed(limit: str, figure: str, after: int, is_allowed: bool) -> None:
    """To the unit; bytes say nothing of figures that are none."""
    assert Growth.parsed(limit).allows(figure, 1000, after) == is_allowed


def test_too_much_growth_is_a_no() -> None:
    """Status 1, and the figures by name; what shrinks or stays within the limit is fine."""
    models = ("zoo:kws_dscnn_int8", "zoo:vww_96_int8")
    done = call("diff", *models, "--max-growth", "2%")
    assert done.returncode == 1
    assert "grown by more than 2%: RAM: arena, flash: weights, multiply-accumulates" in done.stdout
    told = call("diff", *models, "--max-growth", "23884B", "--json", "-")
    assert (told.returncode, json.loads(told.stdout)["grown"]) == (1, ["weights_bytes"])
    assert call("diff", *reversed(models), "--max-growth", "0").returncode == 0
    assert call("diff", *models).returncode == 0
    assert call("diff", *models, "--max-growth", "some").returncode == 2


def test_a_figure_that_one_side_lacks_is_not_judged() -> None:
    grown = pipeline.diff(network(8), network(16))
    unknown = replace(grown, before=replace(grown.before, cost={**grown.before.cost, "macs": None}))
    assert "macs" in grown.grown(Growth.parsed("1%"))
    assert "macs" not in unknown.grown(Growth.parsed("1%"))

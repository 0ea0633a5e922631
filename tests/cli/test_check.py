"""`diagmem check`, and the commands that take a plan from a file: they judge alike, and use what they are given."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import diagmem
from diagmem.backends.json import schema_text
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType
from tests.backends.c.models import compiler
from tests.cli.calling import call

Json = dict[str, Any]

KINDS = {
    "whole": ("--schedule", "best"),
    "rows": ("--schedule", "rows"),
    "streamed": ("--schedule", "rows", "--input-rows"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, another one, and plans of the first: KIND.json, and KIND-bad.json where something lies on something."""
    place = tmp_path_factory.mktemp("models")
    b = Builder("tall", DType.INT8)
    x = b.conv(b.input(1, 24, 6, 4), 8, 3)
    x = b.conv(b.add(x, b.depthwise(x, 3)), 8, 3, 2)
    graph = b.graph(b.softmax(b.fully_connected(b.flatten(b.mean(x, True)), 3)))
    (place / "model.tflite").write_bytes(to_tflite(graph))
    b = Builder("other", DType.INT8)
    (place / "other.tflite").write_bytes(to_tflite(b.graph(b.conv(b.input(1, 24, 6, 4), 8, 3))))
    for kind, options in KINDS.items():
        done = call("plan", str(place / "model.tflite"), *options, "--json", str(place / f"{kind}.json"))
        assert done.returncode == 0, done.stderr
        plan = json.loads((place / f"{kind}.json").read_text())
        (place / f"{kind}-bad.json").write_text(json.dumps(with_one_on_another(plan)))
    return place


def with_one_on_another(plan: Json) -> Json:
    """The plan with something moved onto something else that is read later."""
    rows = [row for row in plan["tensors"] if "rows" in row] or plan["tensors"]
    below, moved = next(
        (a, b)
        for a, b in itertools.permutations(rows, 2)
        if a["first_step"] < b["first_step"] < a["last_step"] and a["offset"] + b["bytes"] <= plan["arena_bytes"]
    )
    tensors = [{**row, "offset": below["offset"]} if row is moved else row for row in plan["tensors"]]
    # What the plan said of how rows lie holds no more.
    forms = {"storage": {**plan["storage"], str(moved["index"]): "table"}} if "storage" in plan else {}
    return {**plan, **forms, "tensors": tensors}


def check(place: Path, plan: str, *more: str, model: str = "model") -> Any:
    return call("check", str(place / f"{model}.tflite"), "--plan", str(place / f"{plan}.json"), *more)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_plan_is_safe(place: Path, kind: str) -> None:
    """Status 0, and a line that says what was replayed."""
    plan = json.loads((place / f"{kind}.json").read_text())
    done = check(place, kind)
    assert (done.returncode, done.stderr) == (0, "")
    steps = f"{len(plan['schedule'])} steps in {plan['arena_bytes']:,} bytes for kernels diagmem"
    assert done.stdout == f"safe: {steps}\n"


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_on_something_is_found(place: Path, kind: str) -> None:
    """Status 1, a line for each finding, and at last how many."""
    done = check(place, f"{kind}-bad")
    assert (done.returncode, done.stderr) == (1, "")
    *findings, verdict = done.stdout.splitlines()
    assert findings == [str(f) for f in diagmem.check(place / "model.tflite", place / f"{kind}-bad.json")]
    assert any("overwritten" in line for line in findings)
    assert verdict.startswith(f"NOT safe: {len(findings)} finding{'s' if len(findings) > 1 else ''}: ")


@pytest.mark.parametrize("plan", ["whole", "rows-bad"])
def test_json_holds_the_verdict(place: Path, plan: str) -> None:
    """Alone on standard output, with the same status."""
    done = check(place, plan, "--json", "-")
    found = json.loads(done.stdout)
    assert found.keys() == {"model", "plan", "ok", "findings"}
    assert found["ok"] is (plan == "whole")
    assert found["ok"] == (found["findings"] == []) == (done.returncode == 0)
    assert all(isinstance(line, str) for line in found["findings"])
    assert (found["model"], found["plan"]) == (str(place / "model.tflite"), str(place / f"{plan}.json"))


def written(place: Path, name: str, content: str) -> str:
    (place / f"{name}.json").write_text(content)
    return name


NO_PLANS: dict[str, tuple[Callable[[Path], str], str]] = {
    "a missing file": (lambda place: "missing", "No such file"),
    "no JSON": (lambda place: written(place, "text", "no plan"), "not JSON"),
    "an empty file": (lambda place: written(place, "empty", ""), "not JSON"),
    "something else": (lambda place: written(place, "list", "[1, 2]"), "is not an object"),
    "a plan of two models": (lambda place: written(place, "two", '{"plans": [{}, {}]}'), "holds 2 plans"),
}


@pytest.mark.parametrize("case", NO_PLANS)
@pytest.mark.parametrize("command", ["check", "emit c", "verify"])
def test_what_is_no_plan_is_bad_input(place: Path, case: str, command: str, tmp_path: Path) -> None:
    """Status 2 and one line, whichever command is to use it."""
    make, says = NO_PLANS[case]
    plan = str(place / f"{make(place)}.json")
    output = ("-o", str(tmp_path / "out")) if command == "emit c" else ()
    done = call(*command.split(), str(place / "model.tflite"), "--plan", plan, *output)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["check", "emit c", "verify"])
def test_another_model_s_plan_is_bad_input(place: Path, command: str, tmp_path: Path) -> None:
    output = ("-o", str(tmp_path / "out")) if command == "emit c" else ()
    done = call(*command.split(), str(place / "other.tflite"), "--plan", str(place / "whole.json"), *output)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is it another model's?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_plan_must_be_given(place: Path) -> None:
    done = call("check", str(place / "model.tflite"))
    assert done.returncode == 2
    assert "Missing option '--plan'" in done.stderr


# Commands that use a plan


@pytest.mark.parametrize("kind", KINDS)
def test_emit_uses_the_plan(place: Path, kind: str, tmp_path: Path) -> None:
    """The same code, file by file, as from the options that made the plan."""
    model = str(place / "model.tflite")
    fresh = call("emit", "c", model, *KINDS[kind], "-o", str(tmp_path / "fresh"))
    given = call("emit", "c", model, "--plan", str(place / f"{kind}.json"), "-o", str(tmp_path / "given"))
    assert (fresh.returncode, given.returncode) == (0, 0)
    files = {path.name: path.read_bytes() for path in (tmp_path / "fresh").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "given").iterdir()} == files
    assert len(files) > 4


def test_emit_uses_no_other_plan(place: Path, tmp_path: Path) -> None:
    """An arena that is larger than it need be stays so."""
    plan = json.loads((place / "whole.json").read_text())
    plan["arena_bytes"] += 64
    path = place / f"{written(place, 'larger', json.dumps(plan))}.json"
    call("emit", "c", str(place / "model.tflite"), "--plan", str(path), "-o", str(tmp_path))
    assert f"#define MODEL_ARENA_BYTES {plan['arena_bytes']}\n" in (tmp_path / "model.h").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_emit_refuses_what_check_refuses(place: Path, kind: str, tmp_path: Path) -> None:
    """Status 1, the first finding in one line, and nothing is written."""
    plan = place / f"{kind}-bad.json"
    done = call("emit", "c", str(place / "model.tflite"), "--plan", str(plan), "-o", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert str(diagmem.check(place / "model.tflite", plan)[0]) in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_verify_runs_the_plan(place: Path, kind: str) -> None:
    compiler("gcc")
    plan = place / f"{kind}.json"
    done = call("verify", str(place / "model.tflite"), "--plan", str(plan), "--inputs", "3", "--json", "-")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (0, True)
    assert found["runs"][0]["arena_bytes"] == json.loads(plan.read_text())["arena_bytes"]


@pytest.mark.parametrize("kind", KINDS)
def test_verify_refuses_what_check_refuses_unless_told_not_to(place: Path, kind: str) -> None:
    """Status 1 at once; with --no-check it is run, and fails."""
    compiler("gcc")
    arguments = ("verify", str(place / "model.tflite"), "--plan", str(place / f"{kind}-bad.json"), "--inputs", "4")
    refused = call(*arguments)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "overwritten" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    tried = call(*arguments, "--no-check")
    assert (tried.returncode, tried.stderr) == (1, "")
    assert "FAILED: input" in tried.stdout


@pytest.mark.parametrize(
    ("kind", "key", "says"),
    [
        *((kind, "tensors", "has no place for tensor 0 'input'") for kind in KINDS),
        *((kind, "scratch", "has no place for") for kind in ("rows", "streamed")),
    ],
)
def test_what_has_no_place_cannot_be_run_even_then(place: Path, kind: str, key: str, says: str) -> None:
    """With --no-check too, a plan without places for tensors, sums or the state of a run is refused in a line."""
    plan = {**json.loads((place / f"{kind}.json").read_text()), key: []}
    path = place / f"{written(place, f'{kind}-no-{key}', json.dumps(plan))}.json"
    assert check(place, path.stem).returncode == 1
    done = call("verify", str(place / "model.tflite"), "--plan", str(path), "--no-check")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_plan_that_does_nothing_can_be_run(place: Path) -> None:
    """With --no-check, no step at all: the run fails, and says where."""
    compiler("gcc")
    plan = {**json.loads((place / "whole.json").read_text()), "schedule": []}
    path = place / f"{written(place, 'idle', json.dumps(plan))}.json"
    assert check(place, path.stem).returncode == 1
    done = call("verify", str(place / "model.tflite"), "--plan", str(path), "--inputs", "2", "--no-check")
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAILED: input 0: output 0" in done.stdout


RUNNING_OPTIONS = (("--schedule", "rows"), ("--schedule", "best"), ("--input-rows",), ("--recompute", "2"))
OTHER_OPTIONS = (
    *(("--align", "4"), ("--keep-inputs",), ("--no-overlap",), ("--allocator", "best"), ("-O", "prefer=speed")),
    *(
        ("--skip", "all"),
        ("--skip", "remove-concat"),
    ),
)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *itertools.product(["emit c"], (*RUNNING_OPTIONS, *OTHER_OPTIONS)),
        *itertools.product(["verify"], RUNNING_OPTIONS),
    ],
)
def test_a_plan_leaves_nothing_to_choose(place: Path, command: str, option: tuple[str, ...], tmp_path: Path) -> None:
    """An option beside --plan is bad usage, even one that says nothing new; it is named as it was given."""
    output = ("-o", str(tmp_path / "out")) if command == "emit c" else ()
    done = call(*command.split(), str(place / "model.tflite"), "--plan", str(place / "whole.json"), *option, *output)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--plan already contains its options; leave out {option[0]}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_schema_is_printed(place: Path) -> None:
    """Word for word as it is shipped; plans that the command line writes fit it."""
    done = call("schema")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", schema_text())
    schema = Draft202012Validator(json.loads(done.stdout))
    for kind in KINDS:
        schema.validate(json.loads((place / f"{kind}.json").read_text()))
    limited = call("plan", str(place / "model.tflite"), "--budget", "100", "--json", "-")
    schema.validate(json.loads(limited.stdout))
    call("emit", "tflm", str(place / "model.tflite"), "-o", str(place / "planned.tflite"))
    schema.validate(json.loads(call("plan", str(place / "planned.tflite"), "--json", "-").stdout))

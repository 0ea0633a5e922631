"""`diagmem emit tflm` and `diagmem verify --on tflm` keep their contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from diagmem import emit_tflm
from diagmem.backends.tflm import metadata, planned_file
from diagmem.backends.tflm.greedy import ONLINE
from diagmem.cli import emit
from diagmem.frontends.source import Source
from diagmem.verification import tflm
from tests.backends.tflm import small_models
from tests.cli.calling import call

needs_tflm = pytest.mark.skipif(not tflm.is_installed(), reason="needs the package tflite-micro")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.branches())
    return path


@needs_tflm
def test_arena_is_printed_with_the_line_to_paste(model: Path) -> None:
    """Head, persistent part and slack add up to the arena, which stands in a line of C."""
    out, numbers = model.with_name("out.tflite"), model.with_name("out.json")
    done = call("emit", "tflm", str(model), "-o", str(out), "--json", str(numbers))
    assert done.returncode == 0, done.stderr
    arena = json.loads(numbers.read_text())["arena"]
    parts = ("head_bytes", "persistent_bytes", "planning_bytes", "slack_bytes")
    assert sum(arena[part] for part in parts) == arena["total_bytes"]
    assert f"constexpr int kTensorArenaSize = {arena['total_bytes']};" in done.stdout
    assert "measured" in done.stdout
    assert "moved" in done.stdout
    assert out.read_bytes().endswith(model.read_bytes())


def test_without_tflm_it_says_how_to_measure(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head is known all the same, and the line of C has a name for the rest."""
    monkeypatch.setattr(tflm, "is_installed", lambda: False)
    done = CliRunner().invoke(emit.emit_tflm, [str(model), "-o", str(model.with_name("out.tflite"))])
    assert done.exit_code == 0
    assert "not measured" in done.output
    assert "arena_used_bytes()" in done.output
    assert "constexpr int kTensorArenaSize = 5200 + 16 + kPersistent;" in done.output


@needs_tflm
@pytest.mark.parametrize("name", ["kws_hybrid", "mobilenet_v1_0.25_128_uint8"])
def test_a_model_that_tflm_does_not_run_is_refused(name: str, shared: Path, tmp_path: Path) -> None:
    """In one line, with TFLM's reason; --force writes it all the same."""
    given, out = shared / "models" / "wild" / f"{name}.tflite", tmp_path / "out.tflite"
    done = call("emit", "tflm", str(given), "-o", str(out))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Node CONV_2D (number 0) failed to prepare with status 1: Hybrid models are not supported" in done.stderr
    assert not out.exists()
    forced = call("emit", "tflm", str(given), "-o", str(out), "--force")
    assert forced.returncode == 0
    assert forced.stdout.startswith("warning: TFLM does not run the model")
    assert "not measured: TFLM does not run the model" in forced.stdout
    assert out.exists()


def test_default_is_safe_and_reference_is_warned_of(model: Path) -> None:
    """The default names no kernels; who names the reference ones is told what CMSIS-NN does with such a file."""
    out = model.with_name("out.tflite")
    safe = call("emit", "tflm", str(model), "-o", str(out))
    note = metadata.origin(out.read_bytes())
    assert note is not None
    assert note.kernels == "tflm"
    assert safe.stderr == ""
    risky = call("emit", "tflm", str(model), "-o", str(out), "--kernels", "tflm-reference")
    assert "CMSIS-NN" in risky.stderr
    assert risky.returncode == 0


def test_every_library_can_be_chosen() -> None:
    """The command knows them without loading them."""
    assert emit.LIBRARIES == planned_file.LIBRARIES


def test_emitting_twice_changes_nothing(model: Path) -> None:
    """A file that has a plan gets the new one in its place, not on top."""
    first, second = model.with_name("first.tflite"), model.with_name("second.tflite")
    call("emit", "tflm", str(model), "-o", str(first), "--kernels", "cmsis-nn")
    done = call("emit", "tflm", str(first), "-o", str(second), "--kernels", "cmsis-nn")
    assert "in place of an older one" in done.stdout
    assert first.read_bytes() == second.read_bytes()


def test_zoo_models_are_written_first(tmp_path: Path) -> None:
    """They have no file of their own."""
    out = tmp_path / "out.tflite"
    done = call("emit", "tflm", "zoo:resnet8_int8", "-o", str(out), "--json", "-")
    assert json.loads(done.stdout)["kernels"] == "tflm"
    assert Source(out).graph.ops


def test_models_keep_their_whole_name(tmp_path: Path) -> None:
    """Dots in a name of the zoo do not start a suffix."""
    name = "mobilenet_v1_0.25_128_int8"
    made = emit_tflm(f"zoo:{name}")
    assert (made.plan.graph.name, made.graph.name) == (name, name)
    out = tmp_path / f"{name}.tflite"
    done = call("emit", "tflm", f"zoo:{name}", "-o", str(out), "--json", "-")
    assert json.loads(done.stdout)["model"] == f"zoo:{name}"
    assert out.read_bytes() == made.data
    assert Source(out).graph.name == name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--kernels", "diagmem"), "Invalid value for '--kernels'"),
        (("--align", "3"), "power of two"),
        ((), "Missing option '-o'"),
    ],
)
def test_bad_usage_is_one_line(model: Path, arguments: tuple[str, ...], says: str) -> None:
    """Status 2, and nothing is written."""
    out = model.with_name("out.tflite")
    done = call("emit", "tflm", str(model), *(("-o", str(out)) if arguments else ()), *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not out.exists()


@needs_tflm
def test_verify_shows_before_and_after(model: Path) -> None:
    """Status 0 and both arenas, for a file without a plan and for one that carries it."""
    planned = model.with_name("planned.tflite")
    call("emit", "tflm", str(model), "-o", str(planned))
    for path in (model, planned):
        done = call("verify", str(path), "--on", "tflm", "--inputs", "8", "--json", "-")
        assert done.returncode == 0, done.stderr
        [row] = json.loads(done.stdout)["runs"]
        assert (row["on"], row["ok"], row["inputs"]) == ("tflm", True, 8)
        assert row["arena_bytes"] < row["arena_bytes_before"]


@needs_tflm
def test_verify_says_no_to_a_plan_that_corrupts(model: Path) -> None:
    """Everything in one place: status 1, and what is overwritten, before anything runs."""
    graph = Source(model).graph
    offsets = [ONLINE if t.is_constant else 0 for t in graph.tensors]
    model.write_bytes(metadata.with_plan(model.read_bytes(), graph, offsets, "tflm-reference"))
    done = call("verify", str(model), "--on", "tflm", "--inputs", "8")
    assert done.returncode == 1
    assert "the plan in the file is not safe" in done.stderr


def test_verify_does_not_judge_other_kernels(model: Path) -> None:
    """TFLM's interpreter has reference kernels only: one line, status 2."""
    planned = model.with_name("planned.tflite")
    call("emit", "tflm", str(model), "-o", str(planned), "--kernels", "cmsis-nn-mve")
    done = call("verify", str(planned), "--on", "tflm")
    assert done.returncode == 2
    assert "the plan is for kernels cmsis-nn-mve" in done.stderr
    assert done.stderr.count("\n") == 1


def test_nothing_gained_is_said_plainly(tmp_path: Path) -> None:
    """The autoencoder has nothing to overlap, whatever the kernels: no advice to name them."""
    done = call("emit", "tflm", "zoo:autoencoder_int8", "-o", str(tmp_path / "out.tflite"))
    assert "Nothing is gained" in done.stdout
    assert "would not save more" in done.stdout
    assert "with --kernels saves more" not in done.stdout


def test_each_library_s_own_plan_stands_beside(tmp_path: Path) -> None:
    """What a file for these kernels alone would give is what one gives, and a file for others is called unsafe."""
    out = tmp_path / "out.tflite"
    found = json.loads(call("emit", "tflm", "zoo:kws_dscnn_int8", "-o", str(out), "--json", "-").stdout)
    rows = found["head_bytes_by_kernels"]
    for name in planned_file.LIBRARIES[1:]:
        assert rows[name]["own_plan"] == emit_tflm("zoo:kws_dscnn_int8", kernels=name).heads[name][1]
    own = call("emit", "tflm", "zoo:kws_dscnn_int8", "-o", str(out), "--kernels", "cmsis-nn").stdout
    assert "unsafe" in own


def test_the_head_of_the_safe_library_is_explained(tmp_path: Path) -> None:
    """It is none of those below it: there is room for what any of them needs."""
    for kernels, note in (("tflm", "any library below"), ("cmsis-nn", "cmsis-nn")):
        words = ("zoo:kws_dscnn_int8", "-o", str(tmp_path / "out.tflite"), "--kernels", kernels)
        assert f"   tensors and scratch, for {note}\n" in call("emit", "tflm", *words).stdout


def test_a_plan_that_is_there_is_put_into_the_file(model: Path) -> None:
    """As it is, with the kernels and the target it was made for; nothing else may be chosen."""
    out, plan = str(model.with_name("out.tflite")), str(model.with_name("plan.json"))
    asked = ("--kernels", "cmsis-nn", "--target", "NUCLEO-L4R5ZI")
    assert call("plan", str(model), *asked, "--schedule", "file", "-o", plan).returncode == 0
    done = call("emit", "tflm", str(model), "--plan", plan, "-o", out)
    assert done.returncode == 0, done.stderr
    assert "plan       for kernels cmsis-nn\n" in done.stdout
    assert "on NUCLEO-L4R5ZI: fits" in done.stdout or "STM32L4R5ZI: fits" in done.stdout
    made = json.loads(Path(plan).read_text())
    offsets = metadata.offsets_in(Path(out).read_bytes(), Source(out).graph)
    assert offsets is not None
    assert {t["index"]: t["offset"] for t in made["tensors"]}.items() <= dict(enumerate(offsets)).items()
    twice = call("emit", "tflm", str(model), "--plan", plan, "-o", out, "--kernels", "cmsis-nn")
    assert (twice.returncode, twice.stdout) == (2, "")
    assert "--plan already contains its options; leave out --kernels." in twice.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "the plan is for kernels diagmem; plan with --kernels tflm"),
        (("--kernels", "tflm", "--external-io"), "a file for TFLM holds offsets in one arena only"),
        (("--kernels", "tflm", "--pool", "a:2K", "--pool", "b:64K"), "a file for TFLM holds offsets in one arena only"),
    ],
)
def test_a_plan_that_no_file_can_hold_is_refused(model: Path, options: tuple[str, ...], said: str) -> None:
    out, plan = model.with_name("out.tflite"), str(model.with_name("plan.json"))
    assert call("plan", str(model), *options, "-o", plan).returncode == 0
    done = call("emit", "tflm", str(model), "--plan", plan, "-o", str(out))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    assert not out.exists()

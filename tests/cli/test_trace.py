"""`diagmem trace`: kernels in ELF files, models, pictures, JSON that a planner takes, and refusals in one line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from diagmem.cli import diagmem
from diagmem.frontends import zoo
from diagmem.model.errors import DiagmemError
from tests.tracing.conftest import compiled, require_cortex_m, require_native

RELU = "relu(input int8[64], output int8[64], int32 64)"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(diagmem, [str(a) for a in arguments], catch_exceptions=True)


def refusal(*arguments: str | Path) -> str:
    """The message of a run that must fail because of its input."""
    error = run(*arguments).exception
    assert isinstance(error, DiagmemError | SystemExit)
    return str(error) if isinstance(error, DiagmemError) else run(*arguments).output


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels compiled for Cortex-M4."""
    require_cortex_m()
    return compiled("cortex-m4", tmp_path_factory.mktemp("kernels"))


def test_a_call_on_the_command_line(kernels: Path, tmp_path: Path) -> None:
    """Table, JSON and picture of a kernel that diagmem knows nothing about."""
    done = run("trace", "--elf", kernels, "--call", RELU, "--json", tmp_path / "t.json", "--svg", tmp_path / "t.svg")
    assert done.exit_code == 0, done.output
    assert "relu" in done.output
    found = json.loads((tmp_path / "t.json").read_text())
    (row,) = found["rows"]
    assert found["on"] == "cortex-m4"
    assert (row["traced"], row["traced_largest"], row["loads"], row["stores"]) == (64, 64, 64, 64)
    assert {"op", "kind", "input", "output", "input_bytes", "output_bytes", "exact"} <= set(row)
    svg = (tmp_path / "t.svg").read_text()
    assert "time, in instructions" in svg
    assert "data:image/png;base64," in svg


def test_a_file_of_calls_becomes_a_library(kernels: Path, tmp_path: Path) -> None:
    """A kernel traced for an op of a model lets the planner overlap that op, and no other."""
    graph = zoo.build("kws_dscnn_int8")
    op = next(node for node in graph.nodes if node.op.kind == "CONV_2D" and node.input(0).shape[-1] == 64)
    source, target = op.input(0), op.output
    call = (
        f"channels_outermost(input int8[{source.size_bytes}], output int8[{target.size_bytes}], "
        f"constant int8[64, 64], int32 {source.elems // 64}, int32 64, int32 64)"
    )
    calls, traced = tmp_path / "calls.toml", tmp_path / "traced.json"
    calls.write_text(f'model = "zoo:kws_dscnn_int8"\n\n[[calls]]\ncall = "{call}"\nop = {op.op.index}\n')
    done = run("trace", "--elf", kernels, "--call", calls, "--json", traced)
    assert done.exit_code == 0, done.output
    plan = run("plan", "zoo:kws_dscnn_int8", "--kernels", f"traced:{traced}", "--json", "-")
    assert plan.exit_code == 0, plan.output
    found = json.loads(plan.output)
    assert found["kernels"] == f"traced:{traced}"
    same = {n.op.index for n in graph.nodes if n.op.kind == "CONV_2D" and n.input(0).shape == source.shape}
    reshapes = {n.op.index for n in graph.nodes if n.op.kind == "RESHAPE"}
    assert {o["op"] for o in found["overlaps"]} <= same | reshapes
    assert all(o["bytes"] <= 1 for o in found["overlaps"] if o["op"] in same)


def test_one_op_of_a_model(tmp_path: Path) -> None:
    """`--op` traces it alone and agrees with the closed form; PNG where resvg is there."""
    require_native()
    pytest.importorskip("resvg_py", reason="PNG needs resvg_py")
    png = tmp_path / "op.png"
    done = run("trace", "zoo:kws_dscnn_int8", "--op", "1", "--json", tmp_path / "t.json", "--png", png)
    assert done.exit_code == 0, done.output
    (row,) = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert row["op"] == 1
    assert row["traced"] == row["exact"]
    assert png.read_bytes().startswith(b"\x89PNG")


def test_overlap_has_the_method_traced() -> None:
    """`diagmem overlap --method traced` shows it beside the exact one; reshapes are not run, so they have none."""
    require_native()
    done = run("overlap", "zoo:kws_dscnn_int8", "--method", "traced", "--json", "-")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output)["rows"]
    assert all(row["traced"] == (None if row["kind"] == "RESHAPE" else row["exact"]) for row in rows)
    assert "own kernels" in refusal("overlap", "zoo:kws_dscnn_int8", "--method", "traced", "--kernels", "cmsis-nn")


@pytest.mark.deep
def test_a_whole_model_plans_itself(tmp_path: Path) -> None:
    """A model's own trace, used as a library, gives the plan of our kernels again."""
    require_native()
    traced = tmp_path / "kws.json"
    done = run("trace", "zoo:kws_dscnn_int8", "--json", traced, "--svg", tmp_path / "kws.svg")
    assert done.exit_code == 0, done.output
    assert "all by no more than was traced" in done.output
    found = json.loads(traced.read_text())
    assert found["pairs"]
    assert all(pair["distance"] >= pair["separation"] for pair in found["pairs"])
    assert not found["lost"]
    assert found["traced_peak_bytes"] == found["arena_bytes"] < found["baseline_bytes"]
    plan = json.loads(run("plan", "zoo:kws_dscnn_int8", "--kernels", f"traced:{traced}", "--json", "-").output)
    assert plan["arena_bytes"] == found["arena_bytes"]
    svg = (tmp_path / "kws.svg").read_text()
    assert "before overlap: " in svg
    assert "after overlap: " in svg


@pytest.mark.parametrize("streamed", [pytest.param((), marks=pytest.mark.deep), ("--input-rows",)])
def test_a_whole_model_row_by_row(streamed: tuple[str, ...], tmp_path: Path) -> None:
    """`--schedule rows` traces every row of the plan that `diagmem plan` makes with the same options."""
    require_native()
    options = ("zoo:kws_dscnn_int8", "--schedule", "rows", *streamed)
    done = run("trace", *options, "--json", tmp_path / "t.json", "--svg", tmp_path / "t.svg")
    assert done.exit_code == 0, done.output
    assert "all by no more than was traced" in done.output
    found = json.loads((tmp_path / "t.json").read_text())
    plan = json.loads(run("plan", *options, "--json", "-").output)
    assert found["traced_peak_bytes"] == found["arena_bytes"] == plan["arena_bytes"] < found["baseline_bytes"]
    assert sum(op["turns"] for op in found["turns"]) == sum(
        row is not None and op >= 0 for op, row in zip(plan["schedule"], plan["rows"], strict=True)
    )
    assert not any(op["differing"] for op in found["turns"])
    assert not found["lost"]
    assert f"row by row{', input streamed' if streamed else ''}: " in (tmp_path / "t.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("zoo:kws_dscnn_int8", "--op", "1", "--schedule", "rows"), "for a whole MODEL"),
        (("zoo:kws_dscnn_int8", "--schedule", "best", "--input-rows"), "need schedule 'rows'"),
        ((), "Give a MODEL, or --elf FILE and --call CALL."),
        (("zoo:kws_dscnn_int8", "--on", "z80"), "'z80' is not one of x86, cortex-m0"),
        (("zoo:kws_dscnn_int8", "--op", "99"), "the model's ops are 0 to"),
        (("--elf", __file__, "--call", RELU), "not a little-endian ELF file"),
        (("--elf", __file__, "--call", "relu("), "an argument"),
        (("--elf", __file__), "Give a MODEL"),
    ],
)
def test_bad_usage_is_told(arguments: tuple[str, ...], said: str) -> None:
    """Each mistake gives its own message."""
    assert said in refusal("trace", *arguments)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("calls = 3", "at least one"),
        ("[[calls]]\nop = 1", "call is missing"),
        (f'[[calls]]\ncall = "{RELU}"\nop = 1', "needs a model"),
        (f'[[calls]]\ncall = "{RELU}"\nsize = 1', "unknown key size"),
        (f'model = "zoo:kws_dscnn_int8"\n[[calls]]\ncall = "{RELU}"\nop = 1', "inputs of [64] bytes"),
        (f'model = "zoo:kws_dscnn_int8"\n[[calls]]\ncall = "{RELU}"\nop = 77', "the model's ops are"),
        ("[[", "calls.toml"),
    ],
)
def test_bad_files_of_calls_are_told(text: str, said: str, tmp_path: Path) -> None:
    """The message names the file, the call and what is wrong with it."""
    calls = tmp_path / "calls.toml"
    calls.write_text(text)
    assert said in refusal("trace", "--elf", __file__, "--call", calls)


def test_other_machines_are_refused(tmp_path: Path) -> None:
    """An object of this machine does not run on a Cortex-M4."""
    require_native()
    subprocess.run(["gcc", "-xc", "-", "-c", "-o", tmp_path / "a.o"], input=b"void f(void) {}", check=True)
    assert "does not run on cortex-m4" in refusal(
        "trace", "--elf", tmp_path / "a.o", "--call", "f()", "--on", "cortex-m4"
    )

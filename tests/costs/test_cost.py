"""What a plan costs: as the emitted C and the firmware that is built of it do, in sum and layer by layer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import diagmem
from diagmem.backends.c.kernels import sources
from diagmem.backends.c.program import Program
from diagmem.backends.c.steps import sequence_bytes
from diagmem.costs import Costs, Fit, code_sizes
from diagmem.frontends.source import Source
from diagmem.frontends.zoo.networks import Builder
from diagmem.kernels import kernels_for
from diagmem.model.graph import DType
from diagmem.targets import chip_named, core_named
from diagmem.verification.cortex_m import CORES, run_on_core
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, with_weights
from tests.networks import Net

KEYS = {
    *("target", "core", "ram", "flash", "macs"),
    *("instructions", "cycles", "flash_wait_cycles", "ms", "uj", "error_percent"),
}


def test_json_has_all_keys_and_null_for_what_is_not_known() -> None:
    """Code and stack are those of a core; cycles are nowhere yet."""
    made = diagmem.plan(Source("zoo:kws_dscnn_int8").runnable)
    told = Costs.of(made).on().to_json()
    assert set(told) == KEYS
    assert set(told["ram"]) == {"arena_bytes", "stack_bytes", "static_bytes", "total_bytes"}
    assert set(told["flash"]) == {"weights_bytes", "tables_bytes", "code_bytes", "total_bytes"}
    assert (told["target"], told["core"], told["cycles"]) == (None, None, None)
    assert (told["ram"]["stack_bytes"], told["flash"]["code_bytes"]) == (None, None)
    on_chip = Costs.of(made).on(chip_named("nRF52840")).to_json()
    assert (on_chip["target"], on_chip["core"]) == ("nRF52840", "cortex-m4f")
    assert on_chip["ram"]["total_bytes"] == made.arena_bytes + on_chip["ram"]["stack_bytes"]
    assert on_chip["flash"]["total_bytes"] == told["flash"]["total_bytes"] + on_chip["flash"]["code_bytes"]


def test_weights_that_nobody_loaded_are_not_known() -> None:
    """A built-in model has shapes alone unless its weights are asked for."""
    made = diagmem.plan("zoo:kws_dscnn_int8")
    assert Costs.of(made).on().flash.weights_bytes is None
    assert {layer.weights_bytes for layer in Costs.of(made).layers()} == {None}
    assert Costs.of(made).on().flash.total_bytes is None
    assert Fit(chip_named("nRF52840"), Costs.of(made).on()).flash_left_bytes is None


def test_a_constant_without_elements_is_known(shared: Path) -> None:
    """Its file has no bytes for it."""
    source = Source(str(shared / "models" / "wild" / "planestrike_dynamic_signature.tflite"))
    weights = Costs.of(diagmem.plan(source)).on(chip_named("nRF52840")).flash.weights_bytes
    assert weights is not None
    assert 51_904 <= weights <= 52_100


def test_a_larger_window_takes_more_stack() -> None:
    """A kernel that gathers the pixels of a window has a place for each of them on the stack, and for each row."""
    said = {}
    for side in (3, 9):
        net = Builder("window", DType.INT8)
        graph = net.graph(net.conv(net.input(1, 12, 12, 4), 4, side))
        made = diagmem.plan(with_weights(graph), schedule="best")
        said[side] = Costs.of(made).on(core=core_named("m0")).ram.stack_bytes or 0
    assert said[9] - said[3] == 8 * (81 - 9) + 4 * (9 - 3)


def test_cores_without_an_fpu_take_more_stack_for_floats() -> None:
    """The C library's routines for floats have frames of their own."""
    made = diagmem.plan(Source("zoo:mobilenet_v1_0.25_224").runnable)
    with_fpu, without, of_m3 = (
        Costs.of(made).on(core=core_named(name)).ram.stack_bytes or 0 for name in ("m4f", "cortex-m4", "m3")
    )
    assert with_fpu < without == of_m3


@pytest.mark.parametrize("schedule", ["best", "rows"])
def test_layers_add_up(schedule: str) -> None:
    """To the weights, the multiply-accumulates, and the whole."""
    made = diagmem.plan(Source("zoo:resnet8_int8").runnable, schedule=schedule, kernels="diagmem-dsp")
    found, cost = Costs.of(made).layers(), Costs.of(made).on()
    assert sum(layer.weights_bytes or 0 for layer in found) == cost.flash.weights_bytes
    assert sum(layer.macs for layer in found) == cost.macs
    assert sum(layer.share for layer in found) == pytest.approx(1)
    assert max(layer.live_bytes for layer in found) == max(made.plan.pressure)


def test_rows_that_are_recomputed_count_again() -> None:
    """Of a wide tensor between narrow ones, whose rows cost little to recompute."""
    net = Net()
    x = net.input(1, 30, 4, 2)
    for _ in range(2):
        x = net.conv(net.depthwise(net.conv(x, 16, kernel=1)), 2, kernel=1)
    graph = net.graph(net.mean(x))
    once, again = (diagmem.plan(graph, schedule="rows", input_rows=True, recompute=most).plan for most in (1.0, 2.0))
    assert again.recompute > 1.1
    assert Costs.of(again).on().macs == pytest.approx(again.recompute * Costs.of(once).on().macs, rel=1e-3)
    assert sum(layer.macs for layer in Costs.of(again).layers()) == Costs.of(again).on().macs


def test_instructions_give_the_shares_where_they_were_counted() -> None:
    made = diagmem.plan(Source("zoo:kws_dscnn_int8").runnable)
    counted = {op.number: 1 + op.number for op in made.plan.graph.ops}
    found = Costs.of(made).layers(counted)
    assert {layer.index: layer.instructions for layer in found} == counted
    assert found[1].share == pytest.approx(counted[found[1].index] / sum(counted.values()))


@pytest.mark.parametrize(
    ("kernels", "shares"), [("diagmem", {"plain C"}), ("diagmem-dsp", {"dsp"}), ("tflm-reference", {"tflm-reference"})]
)
def test_shares_say_which_kernels_do_the_work(kernels: str, shares: set[str]) -> None:
    found = Costs.of(diagmem.plan(Source("zoo:autoencoder_int8").runnable, kernels=kernels)).on().shares
    assert set(found) == shares
    assert sum(found.values()) == pytest.approx(1)


def test_float32_without_a_floating_point_unit_is_told() -> None:
    made = diagmem.plan(Source("zoo:mobilenet_v1_0.25_224").runnable)
    assert "soft-float" in Costs.of(made).on(core=core_named("cortex-m3")).notes[0]
    assert not Costs.of(made).on(core=core_named("cortex-m4f")).notes


def test_every_kernel_was_measured() -> None:
    """A new one makes this fail until tools/measure-kernels has run."""
    assert {name.removesuffix("/once") for name in code_sizes()["kernels"]} == {
        name for name in sources() if name.endswith(".c")
    }


@pytest.mark.parametrize("model", ["kws_dscnn_int8", "resnet8_int8", "autoencoder_int8"])
def test_code_is_about_as_large_as_said(model: str, tmp_path: Path) -> None:
    """Compiled, it takes no more than was said, and no less than half of that."""
    gcc = compiler("arm-none-eabi-gcc")
    made = diagmem.plan(Source(f"zoo:{model}").runnable)
    for name, content in diagmem.emit_c(f"zoo:{model}", name="model").files.items():
        (tmp_path / name).write_bytes(content)
    flags = ["-mthumb", "-mcpu=cortex-m4", "-std=c99", "-O2", "-DMODEL_NO_STATIC_ARENA"]
    subprocess.run([gcc, *flags, "-c", "model.c", "-o", "model.o"], cwd=tmp_path, check=True)
    listed = subprocess.run(["arm-none-eabi-size", "model.o"], cwd=tmp_path, check=True, capture_output=True, text=True)
    built_bytes = int(listed.stdout.splitlines()[1].split()[0])
    said = Costs.of(made).on(core=core_named("cortex-m4f")).flash.code_bytes
    assert said is not None
    assert built_bytes <= said <= 2 * built_bytes


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m4", "cortex-m55", "riscv32"])
@pytest.mark.parametrize("schedule", ["best", "rows"])
def test_flash_and_stack_are_about_those_of_the_firmware(core: str, schedule: str) -> None:
    """Weights but for padding, code up to two fifths too large, and a stack that holds what a run takes of it."""
    made = diagmem.plan(Source("zoo:kws_dscnn_int8").runnable, kernels=kernels_for(core), schedule=schedule)
    program, said = Program.of(made), Costs.of(made).on(core=core_named(core))
    built = run_on_core(program, sample_inputs(program.graph, 1, 0), CORES[core])
    assert built.code_bytes
    assert built.stack_bytes
    assert built.weights_bytes
    weights, padding = said.flash.weights_bytes or 0, program.align_bytes * len(program.calls)
    assert weights <= built.weights_bytes <= weights + padding
    assert said.ram.static_bytes == built.static_bytes
    assert 1.0 <= ((said.flash.total_bytes or 0) - weights) / built.code_bytes <= 1.4
    assert 1.0 <= (said.ram.stack_bytes or 0) / built.stack_bytes <= 2.75


def test_steps_of_rows_are_tables() -> None:
    """Whole layers have none."""
    model = Source("zoo:kws_dscnn_int8").runnable
    whole, rows = (Costs.of(diagmem.plan(model, schedule=s)) for s in ("best", "rows"))
    assert whole.on().flash.tables_bytes == 0
    assert rows.on().flash.tables_bytes == sequence_bytes(rows.firmware) > 0

"""The four files of MLPerf Tiny as C: the same bytes as TensorFlow Lite Micro's reference kernels."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import tflite as schema

from diagmem.backends.c.program import Program
from diagmem.frontends import tflite
from diagmem.frontends.source import Source
from diagmem.verification import reference, tflm
from diagmem.verification.cortex_m import CORES, run_on_core
from diagmem.verification.host import run_on_host
from diagmem.verification.oracles import Opinion, second_opinion
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, program
from tests.profiles import some

MODELS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
TFLM_INSTRUCTIONS = (1_953_790, 43_113_132, 107_484_994, 100_478_972)
"""Of TFLM's reference kernels on a Cortex-M4."""
AMPLE_ARENA_BYTES = 2**20


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.deep
def test_on_the_host(name: str, shared: Path) -> None:
    """A hundred inputs, in a quick run some of them, layer by layer, every operation, under sanitizers; the outputs are
    TFLM's."""
    compiler("gcc")
    path = shared / "models" / "mlperf_tiny" / f"{name}.tflite"
    graph = Source(path).graph
    inputs = sample_inputs(graph, some(100))
    assert run_on_host(program(graph, schedule="best"), inputs).failure is None
    if not tflm.is_installed():
        pytest.skip("needs tflite-micro to compare with")
    assert second_opinion(Source(path), graph, inputs) == Opinion("tflm", ops=len(graph.ops))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.deep
def test_every_tensor_is_tflm_s(name: str, shared: Path) -> None:
    """Not only what comes out: with each operation's output as the model's, TFLM gives the same bytes."""
    interpreters = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")
    content = (shared / "models" / "mlperf_tiny" / f"{name}.tflite").read_bytes()
    graph = tflite.parse(content, name)
    inputs = sample_inputs(graph, 8)
    wanted = [reference.run(graph, values) for values in inputs]
    for node in graph.nodes:
        index = node.output.index
        interpreter = interpreters.Interpreter.from_bytes(_with_output(content, index), arena_size=AMPLE_ARENA_BYTES)
        for (values,), computed in zip(inputs, wanted, strict=True):
            interpreter.set_input(values, 0)
            interpreter.invoke()
            assert interpreter.get_output(0).tobytes() == computed[index].tobytes(), node.label


CORTEX_M4 = {
    "ad01_int8": 330_000,
    "kws_ref_model": 3_600_000,
    "pretrainedResnet_quant": 14_800_000,
    "vww_96_int8": 10_600_000,
}
"""Instructions at the most, of kernels that use the DSP extension."""


@pytest.mark.parametrize("name", MODELS)
def test_with_the_kernels_of_the_core(name: str, shared: Path) -> None:
    """Less than half of what plain C takes, in little code and stack; row by row hardly more."""
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm", "gcc"):
        compiler(tool)
    graph = Source(shared / "models" / "mlperf_tiny" / f"{name}.tflite").graph
    made = program(graph, kernels="diagmem-dsp", schedule="best")
    whole = run_on_core(made, sample_inputs(graph, 3), CORES["cortex-m4"])
    assert whole.failure is None
    assert (whole.instructions or 0) <= CORTEX_M4[name]
    assert (whole.code_bytes or 0) <= 12 * 1024
    assert (whole.stack_bytes or 0) <= 1024
    if name == "kws_ref_model":
        made = program(graph, kernels="diagmem-dsp", schedule="rows")
        rows = run_on_core(made, sample_inputs(graph, 3), CORES["cortex-m4"])
        assert rows.failure is None
        assert (rows.instructions or 0) <= 1.035 * (whole.instructions or 0)


def _with_output(content: bytes, index: int) -> bytes:
    """The file with another tensor as its only output: one number changes."""
    changed = bytearray(content)
    table = schema.Model.GetRootAs(changed, 0).Subgraphs(0)._tab
    start = table.Vector(table.Offset(8))
    changed[start : start + 4] = index.to_bytes(4, "little")
    return bytes(changed)


@cache
def planned(path: Path) -> Program:
    return program(Source(path).graph)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(("name", "tflm"), list(zip(MODELS, TFLM_INSTRUCTIONS, strict=True)))
def test_on_cores(name: str, tflm: int, core: str, shared: Path) -> None:
    """Plain C on every core, in no more than half of the instructions that TFLM's reference kernels take."""
    made_by = CORES[core].made_by
    for tool in (f"{made_by.prefix}gcc", made_by.emulator, "gcc"):
        compiler(tool)
    made = planned(shared / "models" / "mlperf_tiny" / f"{name}.tflite")
    run = run_on_core(made, sample_inputs(made.graph, 3), CORES[core])
    assert run.failure is None
    # TFLM's are those of a Cortex-M4; cores that cannot multiply to 64 bits, or shift for nothing, take more.
    assert (run.instructions or 0) < tflm / (1 if core in ("cortex-m0", "riscv32") else 2)
    assert (run.code_bytes or 0) < 24 * 1024

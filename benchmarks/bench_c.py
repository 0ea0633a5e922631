"""Instructions that the emitted C takes on a Cortex-M4, beside TensorFlow Lite Micro's, and its RAM and flash.

All counted the same way: one run, -O2, in QEMU, from the call to its return. The figures for TFLM are of its reference
kernels, and of CMSIS-NN's. They are of the MLPerf Tiny files; without these beside the project, the zoo's models of the
same shapes stand in.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.verification.cortex_m import CORES, run_on_core
from diagmem.verification.reference import sample_inputs

SHARED = Path(os.environ.get("DIAGMEM_SHARED", Path(__file__).parents[2] / "shared")) / "models" / "mlperf_tiny"
VWW_CODE_LIMIT_BYTES = 24 * 1024


class Reference(NamedTuple):
    """A model of MLPerf Tiny, the zoo's of the same shapes, and instructions that were measured for it."""

    name: str
    zoo: str
    tflm: int
    cmsis_nn: int


REFERENCES = (
    Reference("ad01_int8", "autoencoder_int8", 1_953_790, 582_687),
    Reference("kws_ref_model", "kws_dscnn_int8", 43_113_132, 7_657_349),
    Reference("pretrainedResnet_quant", "resnet8_int8", 107_484_994, 29_182_382),
    Reference("vww_96_int8", "vww_96_int8", 100_478_972, 23_969_151),
)


def main() -> None:
    if not shutil.which("arm-none-eabi-gcc") or not shutil.which("qemu-system-arm"):
        print("C on Cortex-M4: skipped, for arm-none-eabi-gcc or qemu-system-arm is not installed")
        return
    print("C on Cortex-M4, one run, -O2")
    headings = ("arena", "stack", "code", "weights", "instructions", "TFLM ref.", "of it", "CMSIS-NN", "of it")
    print(f"{'model':<24}" + "".join(f"{heading:>14}" for heading in headings))
    for known in REFERENCES:
        print(_line(known))


def _line(known: Reference) -> str:
    path = SHARED / f"{known.name}.tflite"
    model = str(path) if path.exists() else f"zoo:{known.zoo}"
    graph = Source(model).runnable
    program = Program.of(pipeline.plan(graph, schedule="best"))
    run = run_on_core(program, sample_inputs(graph, 1), CORES["cortex-m4"])
    if run.failure or run.instructions is None:
        return f"{known.name:<24}{run.failure or 'instructions were not counted'}"
    cells = (
        *(f"{size:,}" for size in (run.arena_bytes, run.stack_bytes, run.code_bytes, run.weights_bytes)),
        f"{run.instructions:,}",
        *(f"{known.tflm:,}", f"{run.instructions / known.tflm:.0%}"),
        *(f"{known.cmsis_nn:,}", f"{run.instructions / known.cmsis_nn:.0%}"),
    )
    note = "" if path.exists() else "  (the zoo's)"
    if known.name == "vww_96_int8" and (run.code_bytes or 0) > VWW_CODE_LIMIT_BYTES:
        note += f"  code is over {VWW_CODE_LIMIT_BYTES} bytes"
    return f"{known.name:<24}" + "".join(f"{cell:>14}" for cell in cells) + note


if __name__ == "__main__":
    main()

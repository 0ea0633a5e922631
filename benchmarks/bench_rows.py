"""Networks run row by row: bytes of RAM, time to plan, and instructions on a Cortex-M4 beside layer by layer.

The MLPerf Tiny files are used where they lie beside the project, else models of the zoo of the same shapes. The last
one is too large for the board, and only planned.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from diagmem import models, pipeline
from diagmem.backends.c.program import Program
from diagmem.backends.c.row_program import RowProgram
from diagmem.backends.c.row_source import sequence_bytes
from diagmem.backends.inputs import sample_inputs
from diagmem.frontends import tflite
from diagmem.verification.cortex_m import CORES, run_on_core

SHARED = Path(os.environ.get("DIAGMEM_SHARED", Path(__file__).parents[2] / "shared")) / "models" / "mlperf_tiny"
MODELS = {
    "ad01_int8": "autoencoder_int8",
    "kws_ref_model": "kws_dscnn_int8",
    "pretrainedResnet_quant": "resnet8_int8",
    "vww_96_int8": "vww_96_int8",
    "mobilenet_v1_0.25_128_int8": "mobilenet_v1_0.25_128_int8",
}
ONLY_PLANNED = "mobilenet_v2_1.0_224"
MODES = {
    "layer by layer": {},
    "rows": {"schedule": "rows"},
    "rows, streamed": {"schedule": "rows", "input_rows": True},
}


def main() -> None:
    has_core = bool(shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"))
    headings = ("arena", "bound", "planned in", "steps", "tables", "stack", "instructions", "")
    print(f"{'model':<28}{'how':<16}" + "".join(f"{heading:>13}" for heading in headings))
    for name, zoo in MODELS.items():
        path = SHARED / f"{name}.tflite"
        _compare(name, str(path) if path.exists() else f"zoo:{zoo}", has_core)
    _compare(ONLY_PLANNED, f"zoo:{ONLY_PLANNED}", has_core=False)


def _compare(name: str, model: str, has_core: bool) -> None:
    graph = tflite.parse(models.content(model), models.name_of(model))
    whole: int | None = None
    for how, options in MODES.items():
        begin = time.process_time()
        plan = pipeline.plan(graph, **options)  # type: ignore[arg-type]
        seconds = time.process_time() - begin
        program = Program.of(plan)
        tables = f"{sequence_bytes(program):,}" if isinstance(program, RowProgram) else "-"
        cells = [f"{plan.arena_bytes:,}", f"{plan.lower_bound_bytes:,}", f"{seconds:.1f} s"]
        cells += [f"{len(plan.schedule.steps):,}", tables]
        if has_core:
            run = run_on_core(program, sample_inputs(graph, 1), CORES["cortex-m4"])
            whole = whole or run.instructions
            ratio = f"{run.instructions / whole:.1%}" if run.instructions and whole else "-"
            cells += [f"{run.stack_bytes:,}", f"{run.instructions:,}", run.failure or ratio]
        print(f"{name:<28}{how:<16}" + "".join(f"{cell:>13}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()

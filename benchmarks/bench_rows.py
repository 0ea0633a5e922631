"""Networks run row by row: bytes of RAM, time to plan, and instructions on a Cortex-M4 beside layer by layer.

The MLPerf Tiny files are used where they lie beside the project, else models of the zoo of the same shapes. The last
one is too large for the board, and only planned.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.backends.c.steps import sequence_bytes
from diagmem.frontends.source import Source
from diagmem.verification.cortex_m import CORES, run_on_core
from diagmem.verification.reference import sample_inputs

SHARED = Path(os.environ.get("DIAGMEM_SHARED", Path(__file__).parents[2] / "shared")) / "models" / "mlperf_tiny"
MODELS = {
    "ad01_int8": "autoencoder_int8",
    "kws_ref_model": "kws_dscnn_int8",
    "pretrainedResnet_quant": "resnet8_int8",
    "vww_96_int8": "vww_96_int8",
    "mobilenet_v1_0.25_128_int8": "mobilenet_v1_0.25_128_int8",
}
ONLY_PLANNED = "mobilenet_v2_1.0_224"
MODES: dict[str, dict[str, Any]] = {
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
    graph = Source(model).runnable
    whole: int | None = None
    for how, options in MODES.items():
        begin = time.process_time()
        made = pipeline.plan(graph, **options)
        seconds = time.process_time() - begin
        program = Program.of(made)
        tables = f"{sequence_bytes(program):,}" if program.visits else "-"
        cells = [f"{made.arena_bytes:,}", f"{made.lower_bound_bytes:,}", f"{seconds:.1f} s"]
        cells += [f"{len(program.steps):,}", tables]
        if has_core:
            run = run_on_core(program, sample_inputs(graph, 1), CORES["cortex-m4"])
            whole = whole or run.instructions
            ratio = f"{run.instructions / whole:.1%}" if run.instructions and whole else "-"
            cells += [f"{run.stack_bytes:,}", f"{run.instructions:,}", run.failure or ratio]
        print(f"{name:<28}{how:<16}" + "".join(f"{cell:>13}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()

"""The names of cores, for options. A test holds them against the kernels and the emulated machines."""

from __future__ import annotations

CORES = ("cortex-m0", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "riscv32")
CPUS = ("generic", *CORES)
TWO_CORES = "cortex-m33x2"
PLACES = ("host", *CORES, TWO_CORES, "tflm")

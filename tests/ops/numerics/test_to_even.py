"""Products in single precision by integers alone: as a floating-point unit computes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from diagmem.backends.c.kernels import joined
from diagmem.ops.numerics.quantised import TO_EVEN

MAIN = """
#include <stdio.h>
int main(void) {
    int32_t row[4];
    while (fread(row, sizeof row, 1, stdin) == 1) {
        const int32_t found = diagmem_scaled_to_even(row[0], row[1], row[2], row[3]);
        fwrite(&found, sizeof found, 1, stdout);
    }
    return 0;
}
"""


def test_products_are_those_of_singles(tmp_path: Path) -> None:
    """A million sums and multipliers, most near halves: rounded, clamped, and never off by one."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    source = tmp_path / "to_even.c"
    source.write_text("\n".join(joined(["_to_even.h"], {TO_EVEN})) + MAIN)
    command = [compiler, "-O2", "-std=c99", "-fsanitize=undefined", "-fno-sanitize-recover"]
    subprocess.run([*command, str(source), "-o", str(tmp_path / "to_even")], check=True)
    rng = np.random.default_rng(0)
    count = 1_000_000
    singles = (2.0 ** rng.uniform(-24, 3, count)).astype(np.float32)
    singles[: count // 10] = (2.0 ** rng.integers(-12, 2, count // 10)).astype(np.float32)
    halves = rng.integers(-400, 400, count) + 0.5
    near = np.rint(halves / singles) + rng.integers(-1, 2, count)
    anywhere = rng.integers(-(2**31), 2**31, count)
    sums = np.where(rng.random(count) < 0.7, np.clip(near, -(2**31), 2**31 - 1), anywhere).astype(np.int32)
    low = rng.integers(-256, 1, count).astype(np.int32)
    high = low + rng.integers(0, 256, count).astype(np.int32)
    rows = np.stack([sums, singles.view(np.int32), low, high], axis=1)
    done = subprocess.run([str(tmp_path / "to_even")], input=rows.tobytes(), capture_output=True, check=True)
    expected = np.rint(np.clip(sums.astype(np.float32) * singles, low, high)).astype(np.int32)
    assert np.array_equal(np.frombuffer(done.stdout, np.int32), expected)

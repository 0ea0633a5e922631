"""The scripts that docs/quantise.md shows quantise a network, and what they print is what it says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.backends.c.models import compiler
from tests.cli.calling import call

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(script: str, *arguments: str) -> dict[str, list[float]]:
    """The rows of the table that a script ends with: accuracy in percent, largest error, RAM, flash, milliseconds."""
    compiler("gcc")
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    found = subprocess.run(command, capture_output=True, text=True, timeout=900, env=quiet, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    table = found.stdout[found.stdout.index("accuracy") :].splitlines()[1:]
    rows = (re.split(r" +", line.replace(",", "").replace("%", "")) for line in table)
    return {name: [float(word) for word in words] for name, *words in rows}


def check(rows: dict[str, list[float]], real: str) -> None:
    """8 bits are nearly as good as float32, and cost about half, and a quarter of what is stored."""
    accuracy, _, ram, flash, ms = rows.pop(real)
    assert rows
    assert accuracy > 80
    for name, (right, error, less_ram, less_flash, less_ms) in rows.items():
        assert right > accuracy - 5, name
        assert error > 0
        assert less_ram < 0.6 * ram, name
        assert less_flash < 0.6 * flash, name
        assert less_ms < 0.5 * ms, name


@pytest.mark.deep
def test_the_table_of_files_that_are_there(tmp_path: Path) -> None:
    """The first file is what the others are compared with; here it is the same one twice."""
    pytest.importorskip("unicorn", reason="needs an emulated core")
    model = tmp_path / "kws.tflite"
    assert call("zoo", "write", "kws_dscnn_int8", "-o", str(model)).returncode == 0
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(6, 49, 10, 1)).astype(np.float32))
    np.save(tmp_path / "y.npy", np.zeros(6, int))
    data = str(tmp_path / "x.npy"), str(tmp_path / "y.npy")
    rows = printed("side_by_side.py", *data, "NUCLEO-L4R5ZI", str(model), str(model))
    (row,) = rows.values()
    assert row[1] == 0 < row[4]
    assert 0 <= row[0] <= 100


def test_from_pytorch(tmp_path: Path) -> None:
    for package in ("torch", "onnxscript", "onnxruntime", "sympy"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: an optional job")
    check(printed("quantise_pytorch.py", str(tmp_path)), "float32.onnx")


def test_from_keras(tmp_path: Path) -> None:
    for package in ("tensorflow", "ai_edge_quantizer"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: an optional job")
    check(printed("quantise_keras.py", str(tmp_path)), "float32.tflite")

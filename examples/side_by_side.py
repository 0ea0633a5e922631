"""What networks get right on given data, and what they cost on a chip, side by side.

python examples/side_by_side.py images.npy labels.npy NUCLEO-L4R5ZI float32.onnx int8.onnx int8.tflite
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import diagmem


def show(models: Sequence[Path], inputs: Any, labels: Any, chip: str) -> None:
    """The first network is the one that the others are compared with. Its C code runs here, as firmware would; time is
    that of the chip's core, emulated."""
    first = None
    print(f"{'':<22}{'accuracy':>9}{'largest error':>15}{'RAM':>9}{'flash':>9}{'ms':>8}")
    for path in models:
        outputs = next(iter(diagmem.run(path, inputs, target=chip).values())).reshape(len(labels), -1)
        first = outputs if first is None else first
        right, error = (outputs.argmax(1) == labels).mean(), np.abs(outputs - first).max()
        cost = diagmem.profile(path, target=chip).cost
        sizes = f"{cost.ram.total_bytes:>9,}{cost.flash.total_bytes:>9,}"
        print(f"{path.name:<22}{right:>9.1%}{error:>15.3f}{sizes}{cost.ms:>8.2f}")


if __name__ == "__main__":
    data, classes, chip, *paths = sys.argv[1:]
    show([Path(path) for path in paths], np.load(data), np.load(classes), chip)

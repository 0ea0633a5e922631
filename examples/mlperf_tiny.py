"""The quality that MLPerf Tiny asks for, of models of your own, on its own evaluation data.

    python examples/mlperf_tiny.py datasets/kws01 kws_ref_model.tflite my_kws.tflite

The folder is one of those that MLPerf Tiny's runner sends to boards (benchmark/evaluation/datasets in the repository
mlcommons/tiny, whose training folders say how to make the files): `y_labels.csv` with `file,classes,class` and, for
anomaly detection, the bytes of a window and its stride; and the files, of which the name of the folder says what they
hold. Models run as C on this machine, so figures are those that the firmware would reach.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import diagmem

Array = npt.NDArray[Any]

KWS_SCALE, KWS_ZERO = 0.5847029, 83
"""Features of keywords are stored as the reference model takes them."""


class Task(NamedTuple):
    """`read`: the bytes of a file -> real numbers. `target`: accuracy, or area under the ROC curve, to reach."""

    read: Callable[[bytes], Array]
    shape: tuple[int, ...]
    target: float


TASKS = {
    "ad01": Task(lambda data: np.frombuffer(data, "<f4"), (640,), 0.85),
    "ic01": Task(lambda data: np.frombuffer(data, np.uint8).astype(np.float32), (32, 32, 3), 0.85),
    "kws01": Task(lambda data: KWS_SCALE * (np.frombuffer(data, np.int8).astype(np.float32) - KWS_ZERO), (49, 10), 0.9),
    "vww01": Task(lambda data: np.frombuffer(data, np.uint8).astype(np.float32) / 255, (96, 96, 3), 0.8),
}


class Sample(NamedTuple):
    """`runs`: one input, or one for each window of a sound."""

    runs: Array
    label: int


def samples(folder: Path, task: Task) -> list[Sample]:
    """What the list in a folder names."""
    found = []
    with (folder / "y_labels.csv").open(newline="") as file:
        for name, _, label, *window in csv.reader(file, skipinitialspace=True):
            data = (folder / name).read_bytes()
            width, stride = map(int, window) if window else (len(data), len(data))
            parts = [data[at : at + width] for at in range(0, len(data) - width + 1, stride)]
            found.append(Sample(np.stack([task.read(part).reshape(task.shape) for part in parts]), int(label)))
    return found


def quality(model: str, data: Sequence[Sample]) -> float:
    """Accuracy; or, of a model that draws its input again, the area under the ROC curve, where the mean squared error
    of all windows says how odd a sound is."""
    with diagmem.running(model) as net:
        made = [next(iter(net(sample.runs).values())).reshape(len(sample.runs), -1) for sample in data]
    labels = np.array([sample.label for sample in data])
    if made[0].shape[1] != data[0].runs[0].size:
        return float(np.mean([values[0].argmax() for values in made] == labels))
    errors = np.array([np.mean((y - s.runs.reshape(y.shape)) ** 2) for y, s in zip(made, data, strict=True)])
    odd, usual = errors[labels == 1], errors[labels == 0]
    return float(np.mean(np.sign(odd[:, None] - usual[None, :]) + 1) / 2)


def main(folder: str, *models: str) -> None:
    name = Path(folder).resolve().name
    if name not in TASKS or not models:
        raise SystemExit(f"give a folder that is called {', '.join(TASKS)}, and models")
    task, what = TASKS[name], "AUC" if name == "ad01" else "accuracy"
    data = samples(Path(folder), task)
    for model in models:
        found = quality(model, data)
        verdict = "reached" if found >= task.target else "MISSED"
        print(f"{name}  {what} {found:.4f} on {len(data)} samples, target {task.target}: {verdict}  {model}")


if __name__ == "__main__":
    main(*sys.argv[1:])

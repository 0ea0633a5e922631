"""How well a model does on data: against labels, and against another model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph
from diagmem.ops.kind import Array
from diagmem.verification.recordings import DataError, Recording
from diagmem.verification.running import real

TOP = 5

Made = Sequence[Sequence[Sequence[Array]]]
"""For each recording and run of it, what stands in each output."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How far an output is from another model's, as real numbers. `snr_db`: signal over error, None without error;
    `cosine`: None where one of both is all 0."""

    name: str
    largest: float
    mean: float
    cosine: float | None
    snr_db: float | None


@dataclass(frozen=True, slots=True)
class Score:
    """`runs`: how many there were; `labelled`: how many of them, or of files, have a label. `accuracy`, `top_5`: shares
    of these that have their class first, or among the first five. `confusion`: for each class, how often it was taken
    for each. `auc`: area under the ROC curve, for two classes told apart by one number. `error`: of each output."""

    runs: int
    labelled: int | None = None
    accuracy: float | None = None
    top_5: float | None = None
    auc: float | None = None
    confusion: tuple[tuple[int, ...], ...] = ()
    error: tuple[Difference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judged(graph: Graph, data: Sequence[Recording], made: Made, labels: Sequence[int]) -> Score:
    """Against labels: of each recording, for which its last run counts, or of each run. A model whose first output is
    one number is judged by it; one whose output has the shape of its input, by the mean squared error between both,
    which is averaged over the runs of a recording, as for MLPerf Tiny's anomaly detection."""
    output, given = graph.tensors[graph.outputs[0]], graph.tensors[graph.inputs[0]]
    truth, is_each, count = np.asarray(labels), len(labels) != len(data), sum(map(len, made))
    if output.elems == 1 or output.shape == given.shape:
        if set(labels) != {0, 1}:
            raise DataError("the model's output is no list of classes: its labels must be 0 and 1, and both there")
        values: list[list[float]] = []
        for one, runs in zip(data, made, strict=True):
            numbers = [real(run[0], output).astype(np.float64) for run in runs]
            if output.elems > 1:
                wanted = one.reals if one.reals is not None else [real(run[0], given) for run in one.runs]
                numbers = [np.mean((a - b) ** 2, keepdims=True) for a, b in zip(numbers, wanted, strict=True)]
            values.append([float(number.reshape(-1)[0]) for number in numbers])
        told = [v for each in values for v in each] if is_each else [float(np.mean(each)) for each in values]
        return Score(count, len(labels), auc=_auc(np.asarray(told), truth == 1))
    kept = [run[0] for runs in made for run in (runs if is_each else runs[-1:])]
    scores = np.stack(kept).astype(np.float64).reshape(len(kept), -1)
    classes = scores.shape[1]
    if truth.max() >= classes:
        raise DataError(f"label {truth.max()}: the output '{one_line(output.name)}' has {classes} classes, from 0")
    # Of equal ones the first, as every firmware takes it.
    first = np.argsort(-scores, axis=1, kind="stable")
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (truth, first[:, 0]), 1)
    top = float(np.mean((first[:, :TOP] == truth[:, None]).any(axis=1))) if classes > TOP else None
    right = float(np.mean(first[:, 0] == truth))
    return Score(count, len(labels), right, top, confusion=tuple(map(tuple, confusion.tolist())))


def _auc(scores: Array, is_one: Array) -> float:
    """How often a number of class 1 is above one of class 0; equal ones count half."""
    order = np.sort(scores[~is_one])
    below = np.searchsorted(order, scores[is_one], "left")
    not_above = np.searchsorted(order, scores[is_one], "right")
    return float(np.mean((below + not_above) / 2) / len(order))


def compared(graph: Graph, made: Made, other: Graph, wanted: Made) -> tuple[Difference, ...]:
    """Each output beside that of another model, in their order."""
    ours, theirs = ([g.tensors[t] for t in g.outputs] for g in (graph, other))
    if [t.elems for t in ours] != [t.elems for t in theirs]:
        raise PlanError(f"their outputs are not alike: {_shapes(ours)}, and {_shapes(theirs)}")
    found = []
    for number, (tensor, its) in enumerate(zip(ours, theirs, strict=True)):
        got, want = (
            np.concatenate([real(run[number], t).astype(np.float64).ravel() for runs in all_runs for run in runs])
            for t, all_runs in ((tensor, made), (its, wanted))
        )
        if len(got) != len(want):
            raise PlanError("they do not run equally often on this data")
        error, lengths = got - want, float(np.linalg.norm(got) * np.linalg.norm(want))
        noise, signal = float(error @ error), float(want @ want)
        cosine = float(got @ want) / lengths if lengths else None
        snr = 10 * float(np.log10(signal / noise)) if noise and signal else None
        largest, mean = float(np.abs(error).max(initial=0)), float(np.abs(error).mean()) if error.size else 0.0
        found.append(Difference(tensor.name, largest, mean, cosine, snr))
    return tuple(found)


def _shapes(tensors: Sequence[Any]) -> str:
    return ", ".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in tensors)

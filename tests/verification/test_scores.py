"""Scores, beside their definitions worked out one by one."""

from __future__ import annotations

import numpy as np
import pytest

from diagmem.model.graph import DType, Graph
from diagmem.ops.kind import Array
from diagmem.verification.recordings import DataError, Recording
from diagmem.verification.scores import compared, judged
from tests.networks import Net


def model(inputs: int, outputs: int) -> Graph:
    """Only its inputs and outputs matter."""
    net = Net(DType.FLOAT32)
    net.input(1, inputs)
    return net.graph(net.tensor((1, outputs)))


def data_of(values: Array) -> tuple[list[Recording], list[list[list[Array]]]]:
    """A recording for each row."""
    return [Recording(str(n), [[row[None]]]) for n, row in enumerate(values)], [[[row[None]]] for row in values]


def test_classes() -> None:
    """Accuracy, top 5 and confusion; of equal values the first class is the answer."""
    rng = np.random.default_rng(0)
    values, labels = rng.integers(0, 4, (60, 8)).astype(np.float32), rng.integers(0, 8, 60).tolist()
    found = judged(model(8, 9), *data_of(values), labels)
    best = [max(range(8), key=lambda n: (row[n], -n)) for row in values]
    assert found.accuracy == np.mean([a == b for a, b in zip(best, labels, strict=True)])
    in_five = [
        sum((row[n], -n) > (row[label], -label) for n in range(8)) < 5
        for row, label in zip(values, labels, strict=True)
    ]
    assert found.top_5 == np.mean(in_five)
    assert sum(map(sum, found.confusion)) == 60
    assert found.confusion[labels[0]][best[0]] >= 1
    assert np.trace(np.asarray(found.confusion)) == sum(a == b for a, b in zip(best, labels, strict=True))


def test_two_classes_by_one_number() -> None:
    """The area under the curve is the share of pairs in the right order, equal ones half."""
    rng = np.random.default_rng(1)
    values, labels = rng.integers(0, 6, (40, 1)).astype(np.float32), [0, 1, *rng.integers(0, 2, 38).tolist()]
    found = judged(model(3, 1), *data_of(values), labels)
    ones = [float(v[0]) for v, label in zip(values, labels, strict=True) if label]
    zeros = [float(v[0]) for v, label in zip(values, labels, strict=True) if not label]
    pairs = [(a > b) + (a == b) / 2 for a in ones for b in zeros]
    assert found.auc == pytest.approx(np.mean(pairs))
    assert found.accuracy is None


def test_a_model_that_draws_its_input_again() -> None:
    """The mean of the squared errors over all runs of a recording is its number, as for MLPerf Tiny's."""
    rng = np.random.default_rng(2)
    given, drawn = rng.normal(0, 1, (6, 4, 1, 5)).astype(np.float32), rng.normal(0, 1, (6, 4, 1, 5)).astype(np.float32)
    drawn[::2] = given[::2] + drawn[::2] / 10
    data = [Recording(str(n), [[run] for run in runs]) for n, runs in enumerate(given)]
    found = judged(model(5, 5), data, [[[run] for run in runs] for runs in drawn], [0, 1] * 3)
    assert found.auc == 1.0


def test_a_label_that_is_no_class() -> None:
    """It is refused with the number of classes; so are classes for one number."""
    values = np.zeros((2, 3), np.float32)
    with pytest.raises(DataError, match="has 3 classes"):
        judged(model(4, 3), *data_of(values), [0, 3])
    with pytest.raises(DataError, match="must be 0 and 1"):
        judged(model(4, 1), *data_of(values[:, :1]), [0, 2])


def test_against_another_model() -> None:
    """Largest and mean difference, cosine, and noise in decibels."""
    graph = model(4, 2)
    ours, theirs = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([[1.0, 2.5], [3.0, 4.0]], np.float32)
    (found,) = compared(graph, data_of(ours)[1], graph, data_of(theirs)[1])
    assert (found.largest, found.mean) == (0.5, 0.125)
    a, b = ours.ravel(), theirs.ravel()
    assert found.cosine == pytest.approx(float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b)))
    assert found.snr_db == pytest.approx(10 * np.log10(float(b @ b) / 0.25))
    (same,) = compared(graph, data_of(ours)[1], graph, data_of(ours)[1])
    assert (same.largest, same.snr_db) == (0, None)

"""The numpy reference of a whole model."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import diagmem
from diagmem.ops import kinds
from diagmem.verification import reference
from tests.backends.c.models import compiler
from tests.ops.drawing import CASES, runnable
from tests.ops.fitting import input_values
from tests.tflite_files import graph_of


@pytest.mark.parametrize("case", CASES)
def test_what_operations_compute_for_others_is_as_good_as_constant(case: str) -> None:
    """Sizes, paddings, axes, weights: every kind makes of computed operands what it makes of the same constants."""
    for number, node in enumerate(itertools.islice(runnable(case), 2 * len(CASES[case].names))):
        kind = kinds()[node.op.kind]
        if kind.states(node):
            continue
        values = input_values(node, np.random.default_rng(number))
        loose = tuple(t and replace(t, is_constant=False, data=None) for t in node.inputs)
        graph = graph_of(replace(node, inputs=loose))
        with np.errstate(all="ignore"):
            found = reference.run(graph, [v for v in values if v is not None])
            wanted = kind.reference(node, values)
        for t, right in zip(graph.outputs, wanted, strict=True):
            assert np.array_equal(found[t], right, equal_nan=right.dtype.kind == "f"), node


def test_paddings_that_folded_operations_compute(shared: Path) -> None:
    """A dilated convolution as some converters write it: 20 operations compute the paddings of the next one."""
    compiler("gcc")
    (verdict,) = diagmem.verify(shared / "models" / "more" / "dilated_conv.tflite", inputs=3)
    assert verdict.ok, verdict.failure

"""What a kind encodes into a .tflite file, it decodes again."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from diagmem.frontends import tflite
from tests.ops.cases import case_modules
from tests.ops.fitting import fitted
from tests.ops.single_op import to_tflite
from tests.profiles import examples

CASES = case_modules()


@pytest.mark.parametrize("case", CASES)
@examples(100, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_options_are_read_back(case: str, data: st.DataObject) -> None:
    """A file of one node holds its kind, its attributes, its types and its shapes."""
    node = fitted(data.draw(CASES[case]), data.draw(st.integers(0, 1000)))
    # Files do not hold empty tensors: an empty buffer says that a tensor is not constant.
    assume(all(t.elems for t in node.inputs if t is not None))
    (found,) = tflite.parse(to_tflite(node), "one").nodes
    assert (found.op.kind, found.attributes) == (node.op.kind, node.attributes)
    assert [(t.shape, t.dtype) for t in found.outputs] == [(t.shape, t.dtype) for t in node.outputs]

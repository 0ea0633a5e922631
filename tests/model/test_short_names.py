"""Names of tensors, short enough for a line and still different."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import DType, Graph, Tensor


def named(names: list[str], constants: tuple[str, ...] = ()) -> Graph:
    tensors = [Tensor(n, name, (1,), DType.INT8) for n, name in enumerate(names)]
    zero = np.zeros(1, np.int8)
    more = [
        Tensor(n, name, (1,), DType.INT8, is_constant=True, data=zero) for n, name in enumerate(constants, len(names))
    ]
    return Graph("net", (*tensors, *more), (), (), ())


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["in", "m/relu_1/Relu;m/bn_1/FusedBatchNormV3", "m/relu_2/Relu"], ["in", "relu_1/Relu", "relu_2/Relu"]),
        (["a/b/c", "a/b/d/e"], ["c", "d/e"]),
        (["a/b", "a/b;a/c"], ["a/b", "a/b;a/c"]),
        (["x/Relu", "y/Relu"], ["x/Relu", "y/Relu"]),
        (["", "only/one"], ["tensor 0", "one"]),
        (["a\n/b", "a\n/c"], ["b", "c"]),
        (["b", "a/b"], ["b", "a/b"]),
        (["p/q", "p/q;z", "p/p/q"], ["p/q", "p/q;z", "p/p/q"]),
    ],
)
def test_what_tells_layers_apart_is_left(names: list[str], short: list[str]) -> None:
    """The first name of a fused layer, without the path that all layers share; the whole name where that is not one
    tensor's alone."""
    assert list(named(names).short_names) == short


def test_constants_do_not_count() -> None:
    """Neither for the shared path nor as names to be told from: nobody asks where weights lie."""
    assert named(["m/a", "m/b"], ("w/a", "a")).short_names[:2] == ("a", "b")


@given(st.lists(st.text("ab/;\n", max_size=8), max_size=6))
def test_different_tensors_look_different(names: list[str]) -> None:
    """Whatever the names: two tensors look alike only if their whole names do, and each fits a line."""
    graph = named(names)
    for one in graph.tensors:
        assert graph.short_names[one.index].isprintable()
        for other in graph.tensors[one.index + 1 :]:
            if one.label != other.label:
                assert graph.short_names[one.index] != graph.short_names[other.index], (one.label, other.label)

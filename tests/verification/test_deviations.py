"""A runtime that computes something else as documented is no failure; one that does so in another way is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diagmem import pipeline
from diagmem.frontends.source import Source
from diagmem.model.graph import DType, Graph, Node, Quantisation
from diagmem.ops import kinds
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.kind import Array, Values
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.verification import oracles, reference, tflm
from diagmem.verification.places import CVerdict
from diagmem.verification.reference import differing
from tests.backends.c.models import compiler
from tests.cli.calling import call
from tests.networks import Net
from tests.ops.sampling import activation, ints, node_of
from tests.ops.single_op import ask, is_installed, to_tflite


@pytest.fixture
def rescaling_relu6() -> bytes:
    """A file with a RELU6 that TFLM does not rescale."""
    if not tflm.is_installed():
        pytest.skip("needs tflite-micro")
    compiler("gcc")
    given, made = Quantisation((0.05,), (-10,)), Quantisation((0.03,), (7,))
    data = replace(activation((1, 16)), quantisation=given)
    node = node_of(kinds()["RELU6"], "RELU6", Unary(), [data])
    return to_tflite(replace(node, outputs=(replace(node.output, quantisation=made),)))


def verdict(content: bytes) -> CVerdict:
    (found,) = pipeline.verify(Source(content), inputs=8)
    assert isinstance(found, CVerdict)
    return found


def test_a_documented_difference_is_told(rescaling_relu6: bytes) -> None:
    found = verdict(rescaling_relu6)
    assert found.ok
    assert found.compared_with == ("numpy",)
    (told,) = found.deviations
    assert told.startswith("tflm differs as documented: op 0")
    assert "rescale" in told
    assert found.to_json()["deviations"] == [told]


def test_a_difference_that_nobody_documented_is_a_failure(
    rescaling_relu6: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one at an op that is known to differ, but not like this."""

    def otherwise(node: Node, inputs: Values) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (inputs[0],)

    known = oracles.DEVIATIONS
    changed = tuple(replace(d, theirs=otherwise) if d.kinds == ("RELU6",) else d for d in known)
    for listed in ((), changed):
        monkeypatch.setattr(oracles, "DEVIATIONS", listed)
        failure = verdict(rescaling_relu6).failure
        assert failure is not None
        assert "tflm disagrees" in failure


def slice_of(attributes: StridedSlice, begin: list[int], end: list[int], *shape: int) -> Node:
    inputs = [activation(shape), ints(begin), ints(end), ints([1] * len(begin))]
    return node_of(kinds()["STRIDED_SLICE"], "STRIDED_SLICE", attributes, inputs)


@pytest.mark.parametrize(
    ("node", "is_known"),
    [
        (slice_of(StridedSlice(), [1, 0], [2, 3], 4, 3), False),
        (slice_of(StridedSlice(begin_mask=1, end_mask=2, shrink_axis_mask=1), [0, 0], [1, 2], 4, 3), False),
        (slice_of(StridedSlice(ellipsis_mask=1), [0, 1], [0, 2], 4, 3), True),
        (slice_of(StridedSlice(new_axis_mask=1), [0, 1, 1], [1, 2, 2], 4, 3), True),
        (slice_of(StridedSlice(offset=True), [1, 1], [2, 2], 4, 3), True),
        (slice_of(StridedSlice(), [1], [2], 4, 3), True),
    ],
)
def test_slices_that_tflm_takes_for_others_are_known(node: Node, is_known: bool) -> None:
    assert (oracles.deviation(oracles.TFLM, node) is not None) == is_known


def test_tflm_takes_a_new_axis_for_a_slice() -> None:
    """Element 2 of a list, as a list of one: TFLM reads what stands for the new axis as where to begin."""
    if not is_installed(oracles.TFLM):
        pytest.skip("needs tflite-micro")
    node = slice_of(StridedSlice(new_axis_mask=1, shrink_axis_mask=2), [0, 2], [1, 3], 3)
    values = [np.array([5, 6, 7], np.int8), *(np.asarray(t.data) for t in node.inputs[1:] if t is not None)]
    assert kinds()["STRIDED_SLICE"].reference(node, values)[0].tolist() == [7]
    assert [np.asarray(made).tolist() for answer in ask(oracles.TFLM, [node], [values]) for made in answer] == [[5]]


def test_what_is_not_known_spreads_to_what_depends_on_it() -> None:
    """Outputs behind an op of which nobody can say what the runtime computes may differ, others not."""
    net = Net(DType.FLOAT32)
    x = net.input(1, 2, 2, 1)
    first, beside = net.relu(x), net.relu(x)
    behind = net.relu(net.relu(first))
    graph = net.graph(behind, beside)
    unclear = oracles._behind(graph, [graph.nodes[0]])
    assert behind in unclear
    assert beside not in unclear


def test_the_command_line_says_so(rescaling_relu6: bytes, tmp_path: Path) -> None:
    path = tmp_path / "relu6.tflite"
    path.write_bytes(rescaling_relu6)
    done = call("verify", str(path), "--inputs", "6")
    assert done.returncode == 0, done.stderr
    assert "OK: 6 inputs, every operation matches numpy bit for bit" in done.stdout
    assert "tflm differs as documented: op 0" in done.stdout


def test_what_is_no_number_is_equal_to_what_is_none() -> None:
    """Whatever its bits are; 0 and -0 differ, and so do a number and none."""
    quiet, other = np.array([0x7FC00000, 0xFFC12345], np.uint32).view(np.float32)
    got = np.array([quiet, quiet, 0.0, 1.0, np.inf], np.float32)
    wanted = np.array([other, 1.0, -0.0, 1.0, -np.inf], np.float32)
    assert differing(got, wanted).tolist() == [False, True, True, False, True]


def test_numbers_that_are_none_are_no_failure() -> None:
    """Square roots of negative numbers, added up: the sign of a NaN is the processor's."""
    compiler("gcc")
    net = Net(DType.FLOAT32)
    x = net.input(1, 4, 4, 2)
    root = net.op("SQRT", Unary(), x)
    graph = net.graph(net.add(root, net.op("NEG", Unary(), root)))
    (found,) = pipeline.verify(Source(graph), inputs=6)
    assert found.ok, found.failure


def test_infinities_do_not_widen_the_tolerance() -> None:
    """What is finite beside them is still compared."""
    ours = np.array([np.inf, np.nan, 1.0], np.float32)
    theirs = np.array([np.inf, np.nan, 2.0], np.float32)
    assert not oracles._agrees(ours, theirs, oracles._largest(theirs))
    assert oracles._agrees(ours, ours, 1.0)


def test_one_run_close_to_zero_is_no_failure() -> None:
    """A sigmoid that reaches 1 in another run is held to fractions of 1, and no network to more than that."""
    net = Net(DType.FLOAT32)
    x = net.input(1, 1)
    graph = net.graph(net.relu(x))
    end = graph.outputs[0]

    def differs(small: float, error: float, large: float) -> bool:
        both = [np.array([small], np.float32), np.array([large], np.float32)]
        ours = [{end: both[0] + np.float32(error)}, {end: both[1]}]
        return oracles._difference(graph, ours, [[values] for values in both]) is not None

    assert not differs(1e-5, 1e-6, 1.0)
    assert differs(1e-5, 1e-6, 1e-4)
    assert differs(1.0, 1e-3, 1e9)


def with_dead_op(is_read: bool) -> Graph:
    """An op that nobody knows, on which no output depends unless it `is_read`."""
    net = Net(DType.FLOAT32)
    x = net.input(1, 4, 4, 2)
    end = net.relu(x)
    dead = net.relu(net.opaque(x))
    return net.graph(dead if is_read else end)


def test_a_dead_op_that_nobody_knows_does_not_stand_in_the_way() -> None:
    compiler("gcc")
    (found,) = pipeline.verify(Source(with_dead_op(is_read=False)), inputs=3)
    assert found.ok, found.failure
    values = reference.run(with_dead_op(is_read=False), [np.ones((1, 4, 4, 2), np.float32)])
    assert set(values) == {0, 1}


def test_an_op_that_an_output_needs_cannot_be_passed_over() -> None:
    with pytest.raises(Exception, match="cannot be verified"):
        reference.run(with_dead_op(is_read=True), [np.ones((1, 4, 4, 2), np.float32)])

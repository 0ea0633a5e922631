"""The validator on plans of whole tensors: it finds every fault, and none where there is none."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem import plan
from diagmem.kernels import library
from diagmem.model.graph import DType, Graph
from diagmem.model.schedule import Schedule
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.plan import Plan
from diagmem.transforms import TRANSFORMS, transformed
from diagmem.validation import Fault, Finding, Rules, replay
from diagmem.validation.replay import NO_MORE
from tests.networks import Net, chain, nets, random_net
from tests.profiles import examples
from tests.validation.plans import DIAGMEM, LARGE
from tests.validation.shadow_memory import Shadow


def findings(graph: Graph, offsets: Mapping[int, int], ops: tuple[int, ...] | None = None) -> list[Finding]:
    """Findings in an arena that is large enough, in file order if no other is given."""
    return judged(graph, offsets, Schedule.whole(range(len(graph.ops)) if ops is None else ops))


def judged(
    graph: Graph,
    offsets: Mapping[int, int],
    order: Schedule,
    *,
    kernels: str = "diagmem",
    arena_bytes: int = LARGE,
    scratch: Mapping[int, int] | None = None,
    rules: Rules = NO_MORE,
) -> list[Finding]:
    """Findings about tensors in one piece each."""
    return replay(graph, library(kernels), order, in_rows(graph, offsets), scratch or {}, arena_bytes, rules)


def in_rows(graph: Graph, offsets: Mapping[int, int]) -> dict[int, list[int]]:
    """The address of each row of tensors in one piece; of views, that of their first element."""
    counts = {t: graph.tensors[t].rows if graph.tensors[t].view is None else 1 for t in offsets}
    return {t: [at + row * graph.tensors[t].row_bytes for row in range(counts[t])] for t, at in offsets.items()}


def faults(found: list[Finding]) -> set[Fault]:
    return {finding.fault for finding in found}


def loses_bytes(graph: Graph, order: Schedule, offsets: Mapping[int, int]) -> bool:
    return Shadow(graph, DIAGMEM, in_rows(graph, offsets), {}).loses_bytes(order)


def apart(graph: Graph) -> dict[int, int]:
    """Every tensor at a place of its own."""
    return {t.index: 256 * t.index for t in graph.tensors if not t.is_constant}


@given(nets(one_output_each=True), st.randoms(use_true_random=False))
@examples(100)
def test_it_agrees_with_byte_by_byte_shadow_memory(graph: Graph, chance: random.Random) -> None:
    """A plan whose tensors are shifted about, with or without views, loses bytes if and only if the validator says
    so."""
    graph = transformed(graph, TRANSFORMS)[0] if chance.random() < 0.5 else graph
    made = plan(graph, schedule="best", skip="all").plan
    for shift in ([-1, 1], [-4, 4], list(range(-20, 20))):
        offsets = dict(made.offsets)
        for tensor in chance.sample(sorted(offsets), chance.randint(1, min(2, len(offsets)))):
            by, base = chance.choice(shift), graph.tensors[tensor].base
            by = max(by, -offsets[base])
            offsets.update((t, at + by) for t, at in offsets.items() if graph.tensors[t].base == base)
        found = faults(findings(graph, offsets, made.schedule.ops)) - {Fault.MISALIGNED}
        assert loses_bytes(graph, made.schedule, offsets) == bool(found)


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations((DType.INT8, DType.INT16, DType.FLOAT32), 2)])
def test_elements_of_different_size_at_any_offset(before: DType, after: DType) -> None:
    """It agrees with shadow memory for every distance of a conversion's input and output, aligned or not."""
    net = Net(before)
    x = net.input(5)
    graph = net.graph(net.cast(x, after))
    order = Schedule.whole((0,))
    verdicts = set()
    for distance in range(-24, 25):
        offsets = {x: 24 + distance, graph.outputs[0]: 24}
        found = faults(findings(graph, offsets)) - {Fault.MISALIGNED}
        assert loses_bytes(graph, order, offsets) == bool(found)
        verdicts.add(bool(found))
    assert verdicts == {True, False}


@pytest.mark.parametrize("kernels", ["diagmem", "tflm-reference", "cmsis-nn-mve"])
def test_one_byte_closer_is_caught(kernels: str) -> None:
    """A convolution in the smallest arena there is, which its input and output fill: move either one towards the other,
    and the finding names both."""
    made = plan(chain(8), schedule="best", kernels=kernels, align=1).plan
    (used,) = made.overlaps
    order, scratch = made.schedule, made.scratch
    for tensor, shift in ((used.input, -1), (used.output, 1)):
        offsets = {**made.offsets, tensor: made.offsets[tensor] + shift}
        found = judged(made.graph, offsets, order, kernels=kernels, scratch=scratch)
        assert (Fault.OVERWRITTEN, "t0", "t2") in [(f.fault, f.tensor, f.writer) for f in found]


def test_one_byte_closer_is_caught_in_every_tight_pair() -> None:
    """Over random networks: of each pair that its op keeps exactly at its separation, one byte less is found."""
    tight = 0
    for seed in range(150):
        made = plan(random_net(seed, one_output_each=True), schedule="best", skip="all").plan
        for output, tensor in _exact_pairs(made):
            found = findings(made.graph, {**made.offsets, tensor: made.offsets[tensor] - 1}, made.schedule.ops)
            assert any(f.writer == made.graph.tensors[output].label for f in found)
            tight += 1
    assert tight > 20


def _exact_pairs(made: Plan) -> list[tuple[int, int]]:
    """Pairs (output, input) of plain convolutions whose input starts exactly as low as it may."""
    problem = build_problem(footprint(made.graph, made.options), made.schedule)
    offsets = made.buffer_offsets
    pairs = [(a, b) for (a, b), apart in problem.overlaps.items() if 0 < offsets[b] - offsets[a] == apart]
    reached = [(problem.buffers[a].tensors[0], problem.buffers[b].tensors[0]) for a, b in pairs]
    return [(a, b) for a, b in reached if made.graph.ops[made.graph.producer[a]].kind == "CONV_2D"]


def test_a_plan_without_faults_has_no_findings() -> None:
    """Everything apart is safe, in any order that respects the graph."""
    graph = chain(2, 3)
    assert findings(graph, apart(graph)) == []


def test_faults_of_the_schedule() -> None:
    """An op left out, run twice, unknown, or run before its input is made."""
    graph = chain(2, 3, 2)
    places = apart(graph)
    assert faults(findings(graph, places, (0, 1))) == {Fault.OP_MISSING}
    assert faults(findings(graph, places, (0, 1, 1, 2))) == {Fault.OP_REPEATED}
    assert faults(findings(graph, places, (0, 1, 2, 3))) == {Fault.OP_UNKNOWN}
    (early,) = findings(graph, places, (0, 2, 1))
    assert (early.fault, early.step, early.op, early.tensor) == (Fault.OP_TOO_EARLY, 1, 2, "t4")


def test_faults_of_places() -> None:
    """A tensor without a place, outside the arena, or misaligned."""
    graph = chain(2)
    order = Schedule.whole((0,))
    assert faults(judged(graph, {0: 0}, order)) == {Fault.NO_PLACE}
    assert faults(judged(graph, {0: 0, 2: 200}, order, arena_bytes=250)) == {Fault.OUTSIDE}
    assert Fault.OUTSIDE in faults(judged(graph, {0: 200, 2: -1}, order))
    assert faults(judged(graph, {0: 0, 2: 200}, order, rules=Rules(align_bytes=16))) == {Fault.MISALIGNED}


def test_floats_are_aligned_even_if_not_asked_for() -> None:
    """A float32 at an odd offset is misaligned at --align 1."""
    graph = chain(2, dtype=DType.FLOAT32)
    assert faults(findings(graph, {0: 0, 2: 1026})) == {Fault.MISALIGNED}


def test_inputs_with_the_caller_need_no_place() -> None:
    """With external_io graph inputs, outputs and what reshapes tie to them may lie elsewhere; others may not."""
    net = Net()
    flat = net.reshape(net.input(1, 2, 2, 3), 12)
    middle = net.relu(flat)
    graph = net.graph(net.reshape(net.relu(middle), 3, 4))
    order = Schedule.whole(range(4))
    external = Rules(external_io=True)
    assert judged(graph, {middle: 0}, order, arena_bytes=12, rules=external) == []
    assert faults(judged(graph, {}, order, arena_bytes=12, rules=external)) == {Fault.NO_PLACE}
    assert len(judged(graph, {middle: 0}, order, arena_bytes=12)) == 4


def test_a_tensor_that_is_read_again_later() -> None:
    """The second reader finds the bytes of the first reader's output, and the finding says all about it."""
    net = Net()
    x = net.relu(net.input(8))
    y = net.relu(x)
    z = net.add(x, y)
    graph = net.graph(z)
    (found,) = findings(graph, {**apart(graph), y: 256 * x})
    assert found == Finding(Fault.OVERWRITTEN, 2, 2, f"t{x}", 256 * x, f"t{y}", 1, number=2)
    assert str(found) == (
        "step 2, op 2: an op reads a byte that something else has overwritten; 't1'; byte 256; "
        "overwritten by 't2' at step 1"
    )


def test_a_graph_output_is_not_overwritten() -> None:
    """What the caller reads after the run is lost if a later op writes over it."""
    net = Net()
    x = net.relu(net.input(8))
    y = net.relu(x)
    graph = net.graph(x, y)
    (found,) = findings(graph, {**apart(graph), y: 256 * x})
    assert (found.fault, found.tensor, found.op) == (Fault.RESULT_LOST, "t1", None)
    assert str(found).startswith("after the run: ")


def test_kept_inputs_and_variables_survive() -> None:
    """Neither may be overwritten, even after its last reader."""
    net = Net()
    x, state = net.input(8), net.variable(8)
    y = net.opaque(x, state)
    graph = net.graph(net.relu(net.relu(y)))
    order = Schedule.whole(range(3))
    places = {**apart(graph), graph.outputs[0]: 0}
    assert judged(graph, places, order) == []
    assert faults(judged(graph, places, order, rules=Rules(keep_inputs=True))) == {Fault.RESULT_LOST}
    places = {**apart(graph), graph.outputs[0]: 256 * state}
    assert faults(judged(graph, places, order)) == {Fault.RESULT_LOST, Fault.OVERWRITTEN}


def test_two_outputs_of_one_op_stay_apart() -> None:
    """One byte shared by both is a finding, whichever is written last."""
    net = Net()
    left, right = net.split(net.input(1, 2, 2, 4), 2)
    graph = net.graph(left, right)
    assert Fault.RESULT_LOST in faults(findings(graph, {**apart(graph), right: 256 * left + 7}))
    assert findings(graph, {**apart(graph), right: 256 * left + 8}) == []


def test_two_inputs_stay_apart() -> None:
    """The caller fills both before the run."""
    net = Net()
    a, b = net.input(8), net.input(8)
    graph = net.graph(net.add(a, b))
    assert Fault.OVERWRITTEN in faults(findings(graph, {**apart(graph), b: 4}))


def test_unknown_ops_may_not_overlap() -> None:
    """An op of unknown order is taken to read to its end and to write from its start."""
    net = Net()
    x = net.relu(net.input(8))
    y = net.opaque(x)
    graph = net.graph(y)
    assert Fault.OVERWRITTEN in faults(findings(graph, {**apart(graph), y: 256 * x - 7}))
    assert findings(graph, {**apart(graph), y: 256 * x - 8}) == []


def test_a_reshape_stays_or_moves_as_a_whole() -> None:
    """At its source's address nothing moves, and both names stay valid; elsewhere it is a copy that may not overlap."""
    net = Net()
    x = net.relu(net.input(8))
    flat = net.reshape(x, 2, 4)
    graph = net.graph(net.add(net.relu(flat), net.reshape(net.relu(x), 2, 4)))
    places = {**apart(graph), flat: 256 * x}
    assert findings(graph, places) == []
    assert findings(graph, {**places, flat: 256 * x + 8}) == []
    assert Fault.OVERWRITTEN in faults(findings(graph, {**places, flat: 256 * x + 4}))


def test_a_reshape_does_not_bring_lost_bytes_back() -> None:
    """A tensor that was overwritten before its reshape is still lost."""
    net = Net()
    x = net.relu(net.input(8))
    other = net.relu(net.inputs[0])
    flat = net.reshape(x, 2, 4)
    graph = net.graph(net.relu(flat), other)
    places = {**apart(graph), flat: 256 * x, other: 256 * x + 4}
    assert faults(findings(graph, places)) == {Fault.OVERWRITTEN}


def test_scratch_stays_clear_of_what_its_op_touches() -> None:
    """Scratch over the op's input, or without a place, is found; over a tensor that is dead it is not."""
    net = Net()
    x = net.relu(net.input(1, 4, 4, 4))
    y = net.mean(x)
    graph = net.graph(y)
    order, places = Schedule.whole((0, 1)), apart(graph)

    def found(scratch: dict[int, int], align_bytes: int = 16) -> set[Fault]:
        rules = Rules(align_bytes)
        return faults(judged(graph, places, order, kernels="tflm-reference", scratch=scratch, rules=rules))

    assert found({}) == {Fault.NO_PLACE}
    assert found({1: 4}) == {Fault.MISALIGNED}
    assert (found({1: 4}, 1), found({1: 2}, 1)) == (set(), {Fault.MISALIGNED})
    assert found({1: 256 * x}) == {Fault.OVERWRITTEN}
    assert found({1: 256 * y}) == {Fault.OVERWRITTEN, Fault.RESULT_LOST}
    assert found({1: 0}) == set()
    assert found({1: LARGE}) == {Fault.OUTSIDE}


def side_by_side() -> Graph:
    """Two results that are written straight into one tensor, and read from there."""
    net = Net()
    x = net.input(1, 2, 2, 2)
    whole = net.concat(net.relu(x), net.relu(net.relu(x)))
    return transformed(net.graph(net.relu(whole)), ["remove-concat"])[0]


def placed(graph: Graph) -> dict[int, int]:
    """Every tensor at a place of its own, views inside theirs."""
    return {t: graph.tensors[t].offset_bytes + 256 * graph.tensors[t].base for t in apart(graph)}


def test_parts_of_a_tensor_do_not_harm_each_other() -> None:
    """Their bytes lie between each other, and none is the other's."""
    graph = side_by_side()
    assert findings(graph, placed(graph)) == []


def test_a_view_lies_where_its_tensor_has_it() -> None:
    graph = side_by_side()
    view = next(t for t in graph.tensors if t.view is not None)
    offsets = placed(graph)
    assert Fault.VIEW_ASTRAY in faults(findings(graph, {**offsets, view.index: offsets[view.index] + 1}))


def test_all_parts_are_written_before_the_whole_is_read() -> None:
    """An op that runs too early, and a part that nobody writes."""
    graph = side_by_side()
    reader = graph.consumers[next(iter(graph.families))][0]
    early = (reader, *(op for op in range(len(graph.ops)) if op != reader))
    assert Fault.OP_TOO_EARLY in faults(findings(graph, placed(graph), early))
    part = next(t for t in graph.tensors if t.view is not None)
    less = replace(part, shape=(1, 2, 2, 1))
    torn = replace(graph, tensors=tuple(less if t.index == part.index else t for t in graph.tensors))
    assert Fault.NOT_WRITTEN in faults(findings(torn, placed(torn)))


def test_a_part_is_not_overwritten_before_the_whole_is_read() -> None:
    """What lies over one byte of one part only, between its making and the last look at the whole, destroys it."""
    graph = side_by_side()
    first = next(t for t in graph.tensors if t.view is not None)
    other = graph.tensors[graph.ops[1].outputs[0]]
    offsets = placed(graph)
    assert other.view is None
    found = findings(graph, {**offsets, other.index: offsets[first.index] + first.span_bytes - 1})
    assert any((f.fault, f.tensor, f.writer) == (Fault.OVERWRITTEN, first.label, other.label) for f in found)
    # Just behind the first part lies the second, which is not written yet.
    behind = {**offsets, other.index: offsets[first.index] + first.span_bytes}
    assert faults(findings(graph, behind)) <= {Fault.OVERWRITTEN}
    assert not any(f.tensor == first.label for f in findings(graph, behind))

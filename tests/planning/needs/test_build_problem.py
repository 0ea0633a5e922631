"""Separations of rows and tensors in any order of steps, held against the validator: as near as they may be, and no
nearer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest

from diagmem.kernels.rows import RowGraph
from diagmem.model.graph import DType, Graph
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.planning.needs.build_problem import build_problem, moments, rows_made, rows_read
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.needs.problem import Buffer, Problem
from diagmem.planning.options import Options
from diagmem.planning.place import optimal
from diagmem.planning.plan import Plan
from diagmem.transforms import TRANSFORMS, transformed
from diagmem.validation import Fault, Rules, replay
from tests.networks import Net, random_net
from tests.row_networks import has_image_input, image_net
from tests.streams import stream
from tests.validation.test_rows import folded

FAR = 1 << 13
"""Between things that are to have nothing to do with each other."""


def by_turns(rows: RowGraph, chance: random.Random, again_share: float) -> Schedule:
    """Turns, each as soon or as late as chance will have it, some of them again; now and then the input comes row by
    row between them."""
    graph = rows.graph
    is_streamed = len(graph.inputs) == 1 and has_image_input(graph) and chance.random() < 0.5
    made = {(t, row) for t in graph.inputs[is_streamed:] for row in range(rows.rows[t])}
    given = range(rows.rows[graph.inputs[0]] if is_streamed else 0)
    left = {PUSH: list(given), **{op.index: list(range(op.turns)) for op in rows.ops}}
    done: list[tuple[int, int]] = []
    while any(left.values()):
        again = [(op, turn) for op, turn in done if op != PUSH and rows.ops[op].makes_rows]
        ready = [(op, turns[0]) for op, turns in left.items() if turns]
        step = chance.choice([step for step in ready if set(rows_read(rows, step)) <= made])
        if again and chance.random() < again_share:
            step = chance.choice(again)
        else:
            left[step[0]].pop(0)
        done.append(step)
        made.update(rows_made(rows, step))
    return Schedule(tuple(Step(op, None if op != PUSH and rows.ops[op].is_whole else turn) for op, turn in done))


def whole(needs: Footprint, chance: random.Random) -> Schedule:
    """Ops, each as soon or as late as chance will have it."""
    left, order = set(range(len(needs.graph.ops))), list[int]()
    while left:
        order.append(chance.choice(sorted(op for op in left if not left & set(needs.after[op]))))
        left.remove(order[-1])
    return Schedule.whole(tuple(order))


class BuiltProblem:
    """A network in an order, and the problem of placing it."""

    def __init__(self, needs: Footprint, schedule: Schedule) -> None:
        self.needs, self.schedule = needs, schedule
        self.problem: Problem = build_problem(needs, schedule)
        self.buffers: tuple[Buffer, ...] = self.problem.buffers

    @classmethod
    def rows(
        cls, graph: Graph, chance: random.Random, again_share: float = 0.0, options: Options | None = None
    ) -> BuiltProblem:
        needs = footprint(graph, options or Options(align=chance.choice([1, 4])))
        return cls(needs, by_turns(needs.rows, chance, again_share))

    def pairs(self, chance: random.Random, most: int) -> list[tuple[int, int]]:
        """Some that meet, the one that is to lie below first: of those that may overlap, and of the others."""
        numbers = range(len(self.buffers))
        found = [(a, b) for a in numbers for b, *_ in self.problem.neighbours(a)]
        chance.shuffle(found)
        near = [pair for pair in found if pair in self.problem.overlaps]
        return near[:most] + [pair for pair in found if pair not in self.problem.overlaps][: most // 3]

    def is_safe(self, below: int, above: int) -> bool:
        """Whether no byte is lost with the two as near as they may be, and all others far away."""
        return self.is_right(self._beside(below, above, 0))

    def may_be_nearer(self, below: int, above: int) -> bool:
        """Whether none is lost with the two a step of alignment nearer; which they may be if that is on the other
        side."""
        offsets = self._beside(below, above, 1)
        is_beyond = offsets[below] - offsets[above] >= self.problem.separation(above, below)
        return not is_beyond and self.is_right(offsets)

    def _beside(self, below: int, above: int, nearer: int) -> list[int]:
        offsets = [FAR * (n + 1) for n in range(len(self.buffers))]
        align = self.buffers[above].align_bytes
        least = offsets[below] + self.problem.separation(below, above)
        offsets[above] = (-(-least // align) - nearer) * align
        return offsets

    def is_right(self, offsets: Sequence[int]) -> bool:
        made = Plan.of(self.needs.graph, self.needs.options, self.schedule, self.problem, offsets)
        places, rules = (made.row_offsets, made.scratch, 1 << 24), Rules(recompute=1e9)
        found = replay(self.needs.graph, self.needs.options.library, self.schedule, *places, rules)
        return not [finding for finding in found if finding.fault is not Fault.MISALIGNED]

    def named(self, *pair: int) -> str:
        return " below ".join(f"{self.buffers[n].name} {self.buffers[n]}" for n in pair)


def check_safety(built: BuiltProblem, chance: random.Random) -> None:
    """Any two that meet may start as far apart as is said, with nothing else around."""
    assert all(below != above for below, above in built.problem.overlaps)
    for below, above in built.pairs(chance, 9):
        assert built.is_safe(below, above), built.named(below, above)


@pytest.mark.parametrize("seed", range(18))
def test_rows_as_near_as_they_may_be_are_safe(seed: int) -> None:
    """Rows, tensors, reshapes, sums and the state of a run, in networks of any kind, with rows recomputed."""
    chance = random.Random(seed)
    graph = (image_net(seed), random_net(seed, most_ops=5), folded(chance))[seed % 3]
    check_safety(BuiltProblem.rows(graph, chance, again_share=0.1), chance)


@pytest.mark.parametrize("seed", range(18))
def test_tensors_as_near_as_they_may_be_are_safe(seed: int) -> None:
    """Whole tensors, views of them that several ops write, and state, in any order of ops."""
    chance = random.Random(seed)
    graph = random_net(seed, most_ops=8) if seed % 2 else stream(seed)
    needs = footprint(transformed(graph, TRANSFORMS)[0], Options(align=chance.choice([1, 4])))
    check_safety(BuiltProblem(needs, whole(needs, chance)), chance)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (3, 1, 2, 0, 4)])
def test_what_several_ops_write_is_there_from_the_first_of_them_on(order: tuple[int, ...]) -> None:
    """Parts of a whole, either of them first, with something beside them that lives between."""
    net = Net()
    x = net.input(1, 2, 2, 2)
    one = net.conv(x, 3, kernel=1)
    beside = net.relu(x)
    end = net.relu(beside)
    both = net.concat(one, net.conv(x, 2, kernel=1))
    graph, _ = transformed(net.graph(net.relu(both), end), ["remove-concat"])
    built = BuiltProblem(footprint(graph, Options()), Schedule.whole(order))
    found = {name: n for n, buffer in enumerate(built.buffers) for name in buffer.tensors}
    assert (built.buffers[found[both]].first_step, built.buffers[found[both]].end_step) == (0, 5)
    assert found[beside] in {other for other, *_ in built.problem.neighbours(found[both])}
    check_safety(built, random.Random(0))


def dense(chance: random.Random, most_rows: int = 7) -> Graph:
    """Every element that is made is read, by something that makes the next rows of it, in order. Of the input the
    first rows may be left out."""
    net = Net(chance.choice([DType.INT8, DType.INT16]))
    height, width, depth = chance.randint(4, most_rows), chance.randint(3, 4), chance.randint(1, 3)
    left = chance.choice([0, 0, 1, 2])
    x = net.input(1, height + left, width, depth)
    if left:
        begin, size = net.constant(4, values=[0, left, 0, 0]), net.constant(4, values=[1, height, width, depth])
        x = net.op("SLICE", None, x, begin, size)
    for _ in range(chance.randint(2, 4)):
        match chance.choice(["conv", "depthwise", "point", "relu"]):
            case "conv":
                x = net.conv(x, chance.randint(1, 4))
            case "depthwise":
                x = net.depthwise(x)
            case "point":
                x = net.conv(x, 2, kernel=1)
            case _:
                x = net.relu(x)
    return net.graph(net.mean(x) if chance.random() < 0.4 else x)


@pytest.mark.parametrize("seed", range(16))
def test_nothing_may_be_nearer(seed: int) -> None:
    """Where every byte matters, and rows come and go in order, one step of alignment nearer loses one."""
    chance = random.Random(seed)
    built = BuiltProblem.rows(dense(chance), chance)
    pairs = built.pairs(chance, 12)
    assert len(pairs) > 3
    for below, above in pairs:
        assert built.is_safe(below, above), built.named(below, above)
        assert not built.may_be_nearer(below, above), built.named(below, above)


@pytest.mark.parametrize("seed", range(10))
def test_no_row_that_is_recomputed_may_be_nearer(seed: int) -> None:
    """Others may lie there between its lives, and no longer."""
    chance = random.Random(seed)
    options = Options(kernels=chance.choice(["diagmem", "diagmem-dsp"]))
    built = BuiltProblem.rows(dense(chance), chance, again_share=0.3, options=options)
    for below, above in built.pairs(chance, 20):
        assert built.is_safe(below, above), built.named(below, above)
        if all(b.rows is not None or b.scratch_of is not None for b in (built.buffers[below], built.buffers[above])):
            assert not built.may_be_nearer(below, above), built.named(below, above)


def test_rows_that_nobody_reads_are_free_from_the_first_step_on() -> None:
    """What is made first may lie where the caller has put them, also if all other rows are read again."""
    net = Net()
    x = net.input(1, 5, 3, 2)
    begin, size = net.constant(4, values=[0, 2, 0, 0]), net.constant(4, values=[1, 3, 3, 2])
    twice = [net.op("SLICE", None, x, begin, size) for _ in range(2)]
    needs = footprint(net.graph(net.add(*twice)), Options())
    built = BuiltProblem(needs, Schedule(tuple(Step(op, turn) for op in range(3) for turn in range(3))))
    given, first = (next(n for n, b in enumerate(built.buffers) if b.tensors == (t,)) for t in (x, twice[0]))
    assert built.problem.separation(first, given) == 6 - 2 * 6
    for row in (n for n, buffer in enumerate(built.buffers) if buffer.rows is not None):
        assert built.is_safe(row, given)
        assert not built.may_be_nearer(row, given)


@pytest.mark.parametrize("channels", [(4, 1), (1, 4), (3, 2)])
def test_rows_that_are_made_stay_clear_of_those_that_die_later(channels: tuple[int, int]) -> None:
    """Rows that are all there before the first row of the output is made, which lies in one piece: each against it."""
    net = Net()
    x = net.relu(net.input(1, 4, 3, channels[0]))
    needs = footprint(net.graph(net.conv(x, channels[1], kernel=1)), Options())
    built = BuiltProblem(needs, Schedule(tuple(Step(op, turn) for op in range(2) for turn in range(4))))
    made = next(n for n, buffer in enumerate(built.buffers) if buffer.tensors == (needs.graph.outputs[0],))
    rows = [n for n, buffer in enumerate(built.buffers) if buffer.rows is not None]
    for pair in [*((made, row) for row in rows), *((row, made) for row in rows)]:
        assert built.is_safe(*pair), built.named(*pair)
        assert not built.may_be_nearer(*pair), built.named(*pair)


def test_scratch_is_there_at_turns_and_not_between_them() -> None:
    """Of a kernel that runs row by row: from the first turn to the last, and safe as near to rows as it may be."""
    net = Net()
    x = net.conv(net.input(1, 5, 4, 8), 8)
    needs = footprint(net.graph(net.conv(x, 8)), Options(kernels="diagmem-dsp"))
    built = BuiltProblem(needs, by_turns(needs.rows, random.Random(1), 0.0))
    held = [n for n, b in enumerate(built.buffers) if b.scratch_of is not None and b.scratch_of >= 0]
    assert len(held) == 2
    for n in held:
        turns = [at for at, step in enumerate(built.schedule.steps) if step.op == built.buffers[n].scratch_of]
        assert (built.buffers[n].first_step, built.buffers[n].end_step) == (turns[0], turns[-1] + 1)
        for other, *_ in built.problem.neighbours(n):
            assert built.is_safe(n, other)
            assert built.is_safe(other, n)
            assert built.buffers[other].rows is None or not built.may_be_nearer(n, other)


@pytest.mark.parametrize("align", [1, 4])
def test_the_best_placement_takes_what_its_worst_step_does(align: int) -> None:
    """No placement stays below the bound, which is the pressure of a step; nearly always one meets it."""
    met = 0
    for seed in range(11):
        built = BuiltProblem.rows(
            dense(random.Random(seed), most_rows=4), random.Random(seed), options=Options(align=align)
        )
        placed = optimal(Problem(built.buffers, built.problem.overlaps, built.problem.unit_bytes))
        assert built.is_right(placed.offsets)
        assert max(built.problem.pressure) <= built.problem.lower_bound_bytes <= placed.arena_bytes
        met += built.problem.lower_bound_bytes == placed.arena_bytes
    assert met == 10


@pytest.mark.parametrize(("seed", "align"), [*product(range(6), (1, 4))])
def test_moments_are_what_pressure_is_made_of(seed: int, align: int) -> None:
    """What lives at a step, less what may be shared: no more than the pressure, and just that where two rows meet."""
    built = BuiltProblem.rows(dense(random.Random(seed)), random.Random(seed), options=Options(align=align))
    found = moments(built.needs, built.schedule)
    assert len(found) == len(built.schedule.steps) + 2
    for at, moment in enumerate(found):
        alive = {n for n, b in enumerate(built.buffers) if b.first_step < at <= b.end_step}
        assert alive == moment.live.keys()
        assert all(size % align == 0 for size in (*moment.live.values(), *moment.shared.values()))
    for moment, pressure in zip(found[1:-1], built.problem.pressure, strict=True):
        least = sum(moment.live.values()) - sum(moment.shared.values())
        are_rows = all(built.buffers[n].rows is not None for pair in moment.shared for n in pair)
        is_simple = align == 1 and are_rows and len(moment.shared) <= 1
        assert least == pressure if is_simple else least <= pressure
    outside = max(sum(found[0].live.values()), sum(found[-1].live.values()))
    assert built.problem.lower_bound_bytes == max(outside, *built.problem.pressure)

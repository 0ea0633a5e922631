"""Separations of rows and tensors in any order of steps, held against the validator: as near as they may be, and no
nearer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from diagmem.model.graph import DType, Graph
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.planning.allocators import optimal
from diagmem.planning.footprint import Footprint, footprint
from diagmem.planning.options import Options
from diagmem.planning.plan import scratch_of, stored
from diagmem.planning.posing import problem
from diagmem.planning.problem import Buffer, Problem
from diagmem.planning.rows import RowGraph
from diagmem.planning.schedulers.lives import rows_made, rows_read
from tests.networks import Net, random_net
from tests.row_networks import has_image_input, image_net
from tests.validation.plans import Laid

FAR = 1 << 13
"""Between things that are to have nothing to do with each other."""


def any_order(rows: RowGraph, chance: random.Random, is_streamed: bool, again_share: float) -> Schedule:
    """Turns, each as soon or as late as chance will have it, some of them again; the caller's rows between them."""
    graph = rows.graph
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


class Posed:
    """A network in an order made at random, and the problem of placing it."""

    def __init__(self, graph: Graph, chance: random.Random, again_share: float = 0.0, align: int = 1) -> None:
        self.needs: Footprint = footprint(graph, Options(align=align))
        is_streamed = len(graph.inputs) == 1 and has_image_input(graph) and chance.random() < 0.5
        self.schedule = any_order(self.needs.rows, chance, is_streamed, again_share)
        self.problem: Problem = problem(self.needs, self.schedule)
        self.buffers: tuple[Buffer, ...] = self.problem.buffers

    def pairs(self, chance: random.Random, most: int) -> list[tuple[int, int]]:
        """Some that meet, the one that is to lie below first: of those that may overlap, and of the others."""
        numbers = range(len(self.buffers))
        found = [(a, b) for a in numbers for b, *_ in self.problem.neighbours(a)]
        chance.shuffle(found)
        near = [pair for pair in found if pair in self.problem.overlaps]
        return near[:most] + [pair for pair in found if pair not in self.problem.overlaps][: most // 3]

    def is_safe(self, below: int, above: int, nearer: int) -> bool:
        """Whether no byte is lost with the two so many steps of alignment nearer than they may be, and all others far
        away."""
        offsets = [FAR * (n + 1) for n in range(len(self.buffers))]
        align = self.buffers[above].align_bytes
        least = offsets[below] + self.problem.separation(below, above)
        offsets[above] = (-(-least // align) - nearer) * align
        return not self.laid(offsets).faults()

    def laid(self, offsets: Sequence[int]) -> Laid:
        storage = stored(self.needs.graph, self.buffers, offsets)
        rows = {t: how.offsets for t, how in storage.items()}
        return Laid(self.needs.graph, self.schedule, rows, scratch_of(self.buffers, offsets))


@pytest.mark.parametrize("seed", range(14))
def test_what_is_as_near_as_it_may_be_is_safe(seed: int) -> None:
    """Rows, tensors, sums and the state of a run, in networks of any kind, with rows made again: any two that meet may
    start as far apart as is said, with nothing else around."""
    chance = random.Random(seed)
    graph = image_net(seed) if seed % 2 else random_net(seed, most_ops=5)
    posed = Posed(graph, chance, again_share=0.1, align=chance.choice([1, 4]))
    for below, above in posed.pairs(chance, 9):
        assert posed.is_safe(below, above, nearer=0), (posed.buffers[below], posed.buffers[above])


def dense(chance: random.Random, most_rows: int = 7) -> Graph:
    """Every element that is made is read, by something that makes the next rows of it, in order."""
    net = Net(chance.choice([DType.INT8, DType.INT16]))
    x = net.input(1, chance.randint(4, most_rows), chance.randint(3, 4), chance.randint(1, 3))
    for _ in range(chance.randint(2, 4)):
        ways = {"conv": lambda x=x: net.conv(x, chance.randint(1, 4)), "relu": lambda x=x: net.relu(x)}
        ways |= {"depthwise": lambda x=x: net.depthwise(x), "point": lambda x=x: net.conv(x, 2, kernel=1)}
        x = ways[chance.choice(sorted(ways))]()
    return net.graph(net.mean(x) if chance.random() < 0.4 else x)


@pytest.mark.parametrize("seed", range(16))
def test_nothing_may_be_nearer(seed: int) -> None:
    """Where every byte matters, and rows come and go in order, one step of alignment nearer loses one."""
    chance = random.Random(seed)
    posed = Posed(dense(chance), chance, align=chance.choice([1, 1, 4]))
    tried = 0
    for below, above in posed.pairs(chance, 12):
        assert posed.is_safe(below, above, nearer=0), (posed.buffers[below], posed.buffers[above])
        assert not posed.is_safe(below, above, nearer=1), (posed.buffers[below], posed.buffers[above])
        tried += 1
    assert tried > 3


def test_the_best_placement_takes_what_its_worst_step_does() -> None:
    """No placement stays below the bound, which is the pressure of a step; nearly always one meets it."""
    met = 0
    for seed in range(11):
        posed = Posed(dense(random.Random(seed), most_rows=4), random.Random(seed))
        placed = optimal(Problem(posed.buffers, posed.problem.overlaps, posed.problem.unit_bytes))
        assert not posed.laid(placed.offsets).faults()
        assert posed.problem.lower_bound_bytes == max(posed.problem.pressure) <= placed.arena_bytes
        met += posed.problem.lower_bound_bytes == placed.arena_bytes
    assert met == 10

"""One arena's size, and the tree search for a placement within it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from diagmem.planning.compiled import Machine
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.fit import Offsets
from diagmem.planning.place.repair_loops import LEHMER, PRIME
from diagmem.planning.place.tree import FIRST_NODES, GROWTH, Start, TreeSearch
from diagmem.planning.place.tree_loops import FAILED, SOLVED

LEAST_NODES = 50
"""What a run counts at the least: one that ends at once costs about as much."""

APART = (("WAT", 2), ("TWA", 8), ("WAT", 2), ("TSZ", 16))
"""For buffers that may not overlap: orders, with their pulls in 32nds, each shaken a little. How long a search takes is
a matter of luck, and what differs a little soon differs wholly: of several the luckiest counts."""

SHARING = (("WAT", 2), ("TWA", 2), ("EW", 2), ("WAT", 2), ("TZ", 2))
"""The same for buffers that may overlap, after the order of the present offsets."""

RENEWED_NODES = 25_000
"""After so many nodes that brought nothing such an order is shaken anew, and what it has learned forgotten."""

SHAKES = 100
"""Of one attempt, at the most: numbers of the next one's begin so much further on."""


@dataclass
class Attempt:
    """`shake`: the number of the last shake of an order that brought nothing; None: all go on. `taken`: nodes by start.
    `is_impossible`: the search has shown that nothing fits. `nodes`: of one run, in hundredths."""

    tree: TreeSearch
    capacity: int
    starts: list[Start]
    is_exact: bool
    exact: Start
    shake: int | None
    taken: list[int] = field(init=False)
    exact_nodes: int = field(default=0, init=False)
    is_impossible: bool = field(default=False, init=False)
    nodes: int = field(default=100 * FIRST_NODES, init=False)
    runs: int = field(default=0, init=False)

    @classmethod
    def of(
        cls,
        problem: Problem,
        members: Sequence[int],
        capacity: int,
        offsets: Offsets,
        machine: Machine,
        seed: int = 0,
    ) -> Attempt:
        """`offsets`: of a larger arena, whose order is one to begin with. `seed`: of how other orders are shaken."""
        tree = TreeSearch.of(problem, members, machine)
        links = tree.links
        is_exact = all(below > 0 and above > 0 for below, above in zip(links.below, links.above, strict=True))
        if not problem.overlaps:
            starts = [tree.start(shaken(tree.sorted_by(k), number), pull) for number, (k, pull) in enumerate(APART)]
        else:
            own = sorted(range(len(members)), key=lambda place: (offsets[members[place]], place))
            starts = [tree.start(own, 1, by_rank=True)]
            for number, (keys, pull) in enumerate(SHARING, len(SHARING) * seed):
                starts.append(tree.start(shaken(tree.sorted_by(keys), number), pull))
        shake = 10 * SHAKES + SHAKES * seed if problem.overlaps else None
        found = cls(tree, capacity, starts, is_exact, tree.start(tree.sorted_by("TWA"), 2), shake)
        found.is_impossible = is_exact and max(tree.load, default=0) > capacity
        return found

    def __post_init__(self) -> None:
        self.taken = [0] * len(self.starts)

    def run(self, most_nodes: int) -> tuple[dict[int, int] | None, int]:
        """Offsets of the members if the next run finds any; and the nodes it took."""
        at = self.runs % len(self.starts)
        self._renew(at)
        placed, nodes = self._run(self.starts[at], most_nodes)
        self.taken[at] += nodes
        return placed, nodes

    def _renew(self, at: int) -> None:
        """The first start goes by offsets, which nothing is to shake."""
        if self.shake is None or not at or self.taken[at] <= RENEWED_NODES:
            return
        self.shake += 1
        keys, pull = SHARING[at - 1]
        self.starts[at] = self.tree.start(shaken(self.tree.sorted_by(keys), self.shake), pull)
        self.taken[at] = 0

    def _run(self, start: Start, most_nodes: int) -> tuple[dict[int, int] | None, int]:
        self.runs += 1
        before, budget = self.tree.nodes, min(self.nodes // 100, most_nodes)
        self.nodes += self.nodes // GROWTH
        outcome, placed = self.tree.run(start, self.capacity, budget)
        if outcome == FAILED and self.is_exact and 4 * self.exact_nodes <= self.tree.nodes:
            # The tree has ended, but with leaps: without them its end is a proof.
            so_far = self.tree.nodes
            outcome, placed = self.tree.run(self.exact, self.capacity, budget, jumps=False)
            self.exact_nodes += self.tree.nodes - so_far
            self.is_impossible = outcome == FAILED
        return placed if outcome == SOLVED else None, max(LEAST_NODES, self.tree.nodes - before)


def shaken(order: Sequence[int], seed: int) -> list[int]:
    """The order with each moved by up to one in fifty places; as it is for seed 0."""
    chance, key = seed, {}
    for place, buffer in enumerate(order):
        chance = chance * LEHMER % PRIME
        key[buffer] = 50 * place + chance % len(order)
    return sorted(order, key=lambda buffer: key[buffer])

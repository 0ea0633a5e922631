"""How hard to look for a plan. Work is counted, so that the answer is the same on every machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from diagmem.model.errors import PlanError

LARGE = 400
"""Buffers, or ops: beyond so many, nodes and states take longer, and there are fewer of them."""

MANY = 4_000
"""Buffers: beyond so many a fit takes longer, and there are fewer of them."""

MOST_PLACES = 128
"""Tried in one move of a buffer: all there are, but for one that lives with hundreds of others."""

HALVED_AFTER = 3_000
"""Times that weights of conflicts were raised: then all are halved, so that old conflicts do not count for ever."""


@dataclass
class SharedBudget:
    """What all placements of one plan share: CP-SAT's deterministic time that is left, for them and for orders, and a
    clock, which starts now.

    `seconds`: ends all searches by the clock, whatever is left; the answer then depends on the machine and on what else
    it does.
    """

    proof: float
    seconds: float | None = None
    order_proof: float = 0.0
    begin: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float | None:
        return None if self.seconds is None else max(0.0, self.begin + self.seconds - time.monotonic())

    @property
    def is_late(self) -> bool:
        return self.seconds_left == 0.0

    def share(self, most: float) -> float:
        """What the next proof may take: half of what is left at the most, so that there is always some."""
        return min(most, self.proof / 2)

    def spend(self, proof: float) -> None:
        self.proof -= proof


@dataclass(frozen=True, slots=True)
class Effort:
    """What a search may spend on one problem.

    `fits`: how many times first fit may place a buffer, for each buffer that there is, up to `most_fits` for all of
    them. `nodes`: of the search tree; `nodes_apart`: where no two buffers may overlap, so that the tree does all the
    work. `proof`: CP-SAT's deterministic time for one component, about seconds, but the same work on any machine.
    `order_proof`: the same for orders and placements at once. `states`: sets of ops that the search for an order looks
    at. `moves`: how many times a buffer may move to where it is least in the way, for each buffer that there is, up to
    `most_moves`. `budget`: what is shared with other problems, if there are any.
    """

    fits: int
    most_fits: int
    nodes: int
    nodes_apart: int
    proof: float
    order_proof: float = 0.4
    states: int = 20_000
    moves: int = 0
    most_moves: int = 0
    budget: SharedBudget | None = None

    def times(self, share: float) -> Effort:
        """A share of the work on a placement; the budget is the same."""
        return replace(
            self,
            fits=int(self.fits * share),
            most_fits=int(self.most_fits * share),
            nodes=int(self.nodes * share),
            nodes_apart=int(self.nodes_apart * share),
            proof=self.proof * share,
            moves=int(self.moves * share),
            most_moves=int(self.most_moves * share),
        )

    @property
    def for_whole_tensors(self) -> Effort:
        """Of these there are few, nearly all are proven at once, and several orders are tried: less for each."""
        fits, most_fits, moves = self.fits // 10, self.most_fits // 10, self.moves // 10
        return replace(self, fits=fits, most_fits=most_fits, moves=moves, nodes_apart=self.nodes_apart // 50)

    @property
    def for_comparison(self) -> Effort:
        """Of what nobody needs proven."""
        return replace(self, proof=0.0)

    def fits_for(self, buffers: int) -> int:
        """How many times first fit may place a buffer of so many."""
        return min(self.fits * buffers, self.most_fits if buffers <= MANY else self.most_fits * MANY // buffers)

    def moves_for(self, buffers: int) -> int:
        """How many times one of so many buffers may be moved. Of very many a move looks at many."""
        most = _fewer(self.most_moves, buffers)
        return min(self.moves * buffers, most if buffers <= 2 * LARGE else _fewer(most, buffers))

    def nodes_for(self, buffers: int, may_overlap: bool) -> int:
        """Nodes of the search tree for so many buffers."""
        return _fewer(self.nodes if may_overlap else self.nodes_apart, buffers)

    def states_for(self, ops: int) -> int:
        """Sets of so many ops that the search for an order may look at."""
        return _fewer(self.states, ops)

    @property
    def order_proof_left(self) -> float:
        """What the next search for orders and placements at once may take."""
        return self.order_proof if self.budget is None else min(self.order_proof, self.budget.order_proof / 2)

    @property
    def is_late(self) -> bool:
        return self.budget is not None and self.budget.is_late

    @classmethod
    def named(cls, name: str, time_limit_seconds: float | None = None) -> Effort:
        """One of EFFORTS with a budget of its own, ended by the clock if there is a limit."""
        if name not in EFFORTS:
            raise PlanError(f"effort '{name}' is not known; known: {', '.join(EFFORTS)}")
        if time_limit_seconds is not None and not time_limit_seconds > 0:
            raise PlanError(f"time_limit is {time_limit_seconds} s: it must be above 0")
        chosen = EFFORTS[name]
        return replace(chosen, budget=SharedBudget(2 * chosen.proof, time_limit_seconds, 2 * chosen.order_proof))


def _fewer(count: int, size: int) -> int:
    return count if size <= LARGE else count * LARGE // size


QUICK = Effort(fits=50, most_fits=50_000, nodes=0, nodes_apart=10_000, proof=0.5, order_proof=0.1, states=2_000)
NORMAL = Effort(fits=1_000, most_fits=2_000_000, nodes=0, nodes_apart=200_000, proof=1.0, states=30_000)
THOROUGH = Effort(
    fits=25_000,
    most_fits=8_000_000,
    nodes=1_600_000,
    nodes_apart=6_000_000,
    proof=20.0,
    order_proof=3.0,
    states=200_000,
    moves=5_000,
    most_moves=2_000_000,
)

EFFORTS: Mapping[str, Effort] = {"quick": QUICK, "normal": NORMAL, "thorough": THOROUGH}


@dataclass
class Meter:
    """What is left of an effort's nodes, and the clock of its plan."""

    nodes: int
    budget: SharedBudget | None = None

    @property
    def is_late(self) -> bool:
        return self.budget is not None and self.budget.is_late

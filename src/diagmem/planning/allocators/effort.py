"""How hard to look for a placement. Work is counted, so that the answer is the same on every machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from diagmem.model.errors import PlanError


@dataclass(frozen=True, slots=True)
class Effort:
    """What a search may spend on one problem.

    `fits`: how many times first fit may place a buffer, for each buffer that there is, up to `most_fits` for all of
    them. `nodes`: of the search tree; `nodes_apart`: where no two buffers may overlap, so that the tree does all the
    work. `proof`: CP-SAT's deterministic time for one component,
    about seconds, but the same work on any machine. `seconds`: ends the search by the clock, whatever is left; the
    answer then depends on the machine and on what else it does.
    """

    fits: int
    most_fits: int
    nodes: int
    nodes_apart: int
    proof: float
    seconds: float | None = None

    def times(self, share: float) -> Effort:
        """A share of the work; the clock is not changed."""
        fits, most, nodes, apart = (int(n * share) for n in (self.fits, self.most_fits, self.nodes, self.nodes_apart))
        return Effort(fits, most, nodes, apart, self.proof * share, self.seconds)

    def fits_for(self, buffers: int) -> int:
        """How many times first fit may place a buffer of so many."""
        return min(self.fits * buffers, self.most_fits)

    @classmethod
    def named(cls, name: str, time_limit_seconds: float | None = None) -> Effort:
        """One of EFFORTS, ended by the clock if there is a limit."""
        if name not in EFFORTS:
            raise PlanError(f"effort '{name}' is not known; known: {', '.join(EFFORTS)}")
        if time_limit_seconds is not None and not time_limit_seconds > 0:
            raise PlanError(f"a time limit of {time_limit_seconds} s leaves no time; give a number above 0")
        return replace(EFFORTS[name], seconds=time_limit_seconds)

    @property
    def is_reproducible(self) -> bool:
        """Whether the same problem gets the same placement every time."""
        return self.seconds is None


QUICK = Effort(fits=50, most_fits=50_000, nodes=0, nodes_apart=10_000, proof=0.5)
NORMAL = Effort(fits=1_000, most_fits=2_000_000, nodes=0, nodes_apart=200_000, proof=5.0)
THOROUGH = Effort(fits=50_000, most_fits=16_000_000, nodes=600_000, nodes_apart=1_500_000, proof=20.0)

EFFORTS: Mapping[str, Effort] = {"quick": QUICK, "normal": NORMAL, "thorough": THOROUGH}


@dataclass
class Meter:
    """What is left of an effort's nodes, and its clock, which starts now."""

    nodes: int
    seconds: float | None
    begin: float = field(default_factory=time.monotonic)

    @property
    def is_late(self) -> bool:
        return self.seconds is not None and time.monotonic() - self.begin >= self.seconds

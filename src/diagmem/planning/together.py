"""Several models in one arena, of which one runs at a time.

Each is planned by itself. The arena is as large as the largest needs; what must outlive the runs of the others, state
and, if asked for, outputs, lies beside it, one model's behind the other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagmem.model.errors import PlanError
from diagmem.planning.owned import KEPT
from diagmem.planning.planner import Planned


@dataclass(frozen=True)
class Together:
    """Plans that were all made with the same option `together`."""

    plans: tuple[Planned, ...]

    @classmethod
    def of(cls, plans: Sequence[Planned]) -> Together:
        asked = {made.plan.options.together for made in plans}
        if len(asked) != 1 or asked == {""}:
            raise PlanError("models share an arena whose plans were all made for that: plan them with one `together`")
        return cls(tuple(plans))

    @property
    def shared_bytes(self) -> int:
        """The arena: what the largest needs."""
        return max((made.arena_bytes - kept_bytes(made) for made in self.plans), default=0)

    @property
    def kept_bytes(self) -> int:
        """What lies beside it, of all models."""
        return sum(kept_bytes(made) for made in self.plans)

    @property
    def total_bytes(self) -> int:
        return self.shared_bytes + self.kept_bytes

    @property
    def apart_bytes(self) -> int:
        """What they take with an arena each."""
        return sum(made.arena_bytes for made in self.plans)


def kept_bytes(made: Planned) -> int:
    """What must outlive the runs of other models."""
    return sum(use.used_bytes for use in made.plan.pools.uses if use.pool.name == KEPT)

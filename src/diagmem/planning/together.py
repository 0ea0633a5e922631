"""Several models in one arena, of which one runs at a time.

Each is planned by itself. The arena is as large as the largest needs, in each memory if there are several; what must
outlive the runs of the others, state and, if asked for, outputs, lies beside it, one model's behind the other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagmem.model.errors import PlanError
from diagmem.planning.memories import in_shared_memories
from diagmem.planning.owned import KEPT, kept_bytes
from diagmem.planning.worth import Planned


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
    def pools_bytes(self) -> Mapping[str, int]:
        """What all models share in each memory: as much as any of them needs."""
        found: dict[str, int] = {}
        for use in (use for made in self.plans for use in made.plan.pools.uses):
            if use.pool.name != KEPT and not use.pool.is_external:
                found[use.pool.name] = max(use.used_bytes, found.get(use.pool.name, 0))
        return found

    @property
    def shared_bytes(self) -> int:
        """The arena: what the largest needs."""
        return sum(self.pools_bytes.values())

    @property
    def kept_bytes(self) -> int:
        """What lies beside it, of all models."""
        return sum(kept_bytes(made.plan) for made in self.plans)

    @property
    def total_bytes(self) -> int:
        return self.shared_bytes + self.kept_bytes

    @property
    def apart_bytes(self) -> int:
        """What they take with an arena each."""
        return sum(made.arena_bytes for made in self.plans)


def beside_each_other(plans: Sequence[Planned]) -> list[Planned]:
    """The plans of models that share memories, with room in the last of these for what all of them keep. Where there is
    one arena, that lies outside it."""
    kept = sum(kept_bytes(made.plan) for made in plans)
    return [
        in_shared_memories(made, kept) if made.plan.options.pools and kept > kept_bytes(made.plan) else made
        for made in plans
    ]

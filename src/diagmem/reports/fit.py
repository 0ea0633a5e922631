"""Whether a plan fits a chip: RAM and flash, each with what is left or missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from diagmem.planning.plan import Plan
from diagmem.targets import RESERVE_BYTES, Chip


@dataclass(frozen=True, slots=True)
class Need:
    """`ram_bytes`: the arena, with what a runtime keeps beside it as far as that is known. `flash`: what lies there, by
    name. `notes`: what is not counted."""

    ram_bytes: int
    flash: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def flash_bytes(self) -> int:
        return sum(self.flash.values())


@dataclass(frozen=True, slots=True)
class Fit:
    """A need against what a chip has. Part of its RAM must stay free for stack and data. `pools_missing`: bytes that
    its memories lack where the arena is split over several; None where it is in one."""

    chip: Chip
    need: Need
    pools_missing: int | None = None

    @classmethod
    def of(cls, chip: Chip, plan: Plan, weights_bytes: int) -> Fit:
        """Of a plan by itself: its arena, and the weights."""
        return cls(chip, Need(plan.arena_bytes, {"weights": weights_bytes}))

    @property
    def ram_left_bytes(self) -> int:
        """Negative: so many are missing."""
        if self.pools_missing is not None:
            return -self.pools_missing
        return self.chip.arena_limit_bytes - self.need.ram_bytes

    @property
    def flash_left_bytes(self) -> int | None:
        """None where flash is external, so that its size is the board's."""
        return self.chip.flash_bytes - self.need.flash_bytes if self.chip.flash_bytes else None

    @property
    def fits(self) -> bool:
        return self.ram_left_bytes >= 0 and (self.flash_left_bytes is None or self.flash_left_bytes >= 0)

    def missing(self) -> Iterator[tuple[str, int]]:
        """What there is too little of, and by how many bytes."""
        for name, left in (("RAM", self.ram_left_bytes), ("flash", self.flash_left_bytes)):
            if left is not None and left < 0:
                yield name, -left

    @property
    def ram_kept_bytes(self) -> int:
        """What the region has beside the largest arena that is allowed."""
        return min(RESERVE_BYTES, self.chip.largest_region[1])

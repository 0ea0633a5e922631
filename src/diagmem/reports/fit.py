"""Whether a plan fits a chip: RAM and flash, each with what is left or missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from diagmem.costs import Cost
from diagmem.targets import RESERVE_BYTES, Chip


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost against what a chip has. Part of its RAM must stay free for stack and data. `pools_missing`: bytes that
    its memories lack where the arena is split over several; None where it is in one."""

    chip: Chip
    cost: Cost
    pools_missing: int | None = None

    @property
    def ram_bytes(self) -> int:
        """The arena, with what a runtime keeps for itself as far as that is known."""
        return self.cost.ram.arena_bytes + (self.cost.ram.static_bytes or 0)

    @property
    def ram_kept_bytes(self) -> int:
        """What the region must have beside it: for the stack of a run, and at least what any firmware needs."""
        return min(max(RESERVE_BYTES, self.cost.ram.stack_bytes or 0), self.chip.largest_region[1])

    @property
    def region(self) -> tuple[str, int]:
        """Name and bytes of the memory that the arena goes into."""
        return self.chip.region_for(self.ram_bytes + self.ram_kept_bytes)

    @property
    def ram_left_bytes(self) -> int:
        """Negative: so many are missing."""
        if self.pools_missing is not None:
            return -self.pools_missing
        return self.region[1] - self.ram_kept_bytes - self.ram_bytes

    @property
    def flash_left_bytes(self) -> int | None:
        """None where flash is external, so that its size is the board's."""
        return self.chip.flash_bytes - self.cost.flash.total_bytes if self.chip.flash_bytes else None

    @property
    def fits(self) -> bool:
        return self.ram_left_bytes >= 0 and (self.flash_left_bytes is None or self.flash_left_bytes >= 0)

    def missing(self) -> Iterator[tuple[str, int]]:
        """What there is too little of, and by how many bytes."""
        for name, left in (("RAM", self.ram_left_bytes), ("flash", self.flash_left_bytes)):
            if left is not None and left < 0:
                yield name, -left

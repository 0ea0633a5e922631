"""Weights that are copied to RAM before an op reads them over and over, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpWeights:
    """The constants of an op, `size_bytes` of them as its kernel stores them, of which a run reads `read_bytes`. A copy
    of them in RAM begins on a multiple of `align_bytes`."""

    op: int
    size_bytes: int
    align_bytes: int
    read_bytes: int

    @property
    def times(self) -> float:
        """How often a run reads each byte."""
        return self.read_bytes / self.size_bytes

    def flash_cost(self, flash_cost: float) -> float:
        """Of a run that reads them where they lie."""
        return self.read_bytes * flash_cost

    def copied_cost(self, pool_cost: float, flash_cost: float) -> float:
        """Of a run that copies them first: each is read and written once more."""
        return self.size_bytes * (flash_cost + pool_cost) + self.read_bytes * pool_cost

    def pays(self, pool_cost: float, flash_cost: float) -> bool:
        """Whether a copy costs less than it saves: never where each is read only once."""
        return self.copied_cost(pool_cost, flash_cost) < self.flash_cost(flash_cost)


@dataclass(frozen=True, slots=True)
class WeightsTraffic:
    """What a run reads of weights. `pool`: where copies lie. `flash_cost`: of a byte read from flash. `plain_cost`: of
    all traffic, were there no copies."""

    pool: str
    flash_cost: float
    ops: tuple[OpWeights, ...]
    plain_cost: float

    @property
    def read_bytes(self) -> int:
        """What the ops read, from wherever."""
        return sum(found.read_bytes for found in self.ops)

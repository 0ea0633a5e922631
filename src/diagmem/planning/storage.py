"""How the rows of a tensor lie in the arena: one behind the other, in a ring, or each anywhere, as a table says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

Form = Literal["linear", "ring", "table"]


@dataclass(frozen=True)
class Storage:
    """Row r lies at `table[r]` or, where there is no table, at `base + r % period * pitch`, in bytes."""

    height: int
    base: int
    period: int
    pitch: int
    table: tuple[int, ...] | None = None

    @classmethod
    def linear(cls, base: int, height: int, row_bytes: int) -> Storage:
        """All rows in one piece."""
        return cls(height, base, height, row_bytes if height > 1 else 0)

    @classmethod
    def of(cls, offsets: Sequence[int]) -> Storage:
        """The form that needs least: no table where a rule says where all rows lie."""
        for period in range(1, len(offsets) + 1):
            pitch = offsets[1] - offsets[0] if period > 1 else 0
            if all(offset == offsets[0] + row % period * pitch for row, offset in enumerate(offsets)):
                return cls(len(offsets), offsets[0], period, pitch)
        return cls(len(offsets), 0, 1, 0, tuple(offsets))

    def moved(self, offset: int) -> Storage:
        """All rows so many bytes further on."""
        if not offset:
            return self
        if self.table is not None:
            return replace(self, table=tuple(at + offset for at in self.table))
        return replace(self, base=self.base + offset)

    @property
    def form(self) -> Form:
        if self.table is not None:
            return "table"
        return "linear" if self.period == self.height else "ring"

    def is_in_one_piece(self, row_bytes: int) -> bool:
        """Whether rows of so many bytes follow each other without a gap. A rule may as well leave gaps, or go down."""
        return self.form == "linear" and (self.height == 1 or self.pitch == row_bytes)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The offset of each row."""
        if self.table is not None:
            return self.table
        return tuple(self.base + row % self.period * self.pitch for row in range(self.height))

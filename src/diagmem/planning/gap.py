"""How far a plan, or a placement, may be from the best there is: in one place, and in words."""

from __future__ import annotations

from typing import NamedTuple


class Gap(NamedTuple):
    """What was found, and what nothing stays below. The best lies between the two."""

    found_bytes: int
    bound_bytes: int

    @property
    def bytes(self) -> int:
        """Above the best, at the most; 0: proven."""
        return max(0, self.found_bytes - self.bound_bytes)

    @property
    def is_closed(self) -> bool:
        """Proven: nothing is smaller."""
        return not self.bytes

    @property
    def words(self) -> str:
        """With the share of the bound, rounded up: it says at most."""
        if self.is_closed:
            return "proven the best"
        tenths = -(-1000 * self.bytes // self.bound_bytes) if self.bound_bytes else 0
        share = f" ({tenths / 10:.1f} %)" if tenths else ""
        return f"at most {self.bytes:,} byte{'s' * (self.bytes > 1)}{share} above the best"

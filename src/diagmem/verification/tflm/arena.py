"""The arena that a firmware has to set aside for a planned file, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.verification.tflm.runtime import TflmRun

SLACK_BYTES = 16
"""What TFLM loses where the arena does not start at a multiple of 16: at its start and its end together."""


@dataclass(frozen=True, slots=True)
class Arena:
    """`head_bytes`: tensors and kernel scratch, as planned. `persistent_bytes`: what TFLM keeps beside them, which only
    TFLM knows. `planning_bytes`: what it needs on top for a moment, while it starts, if that is more."""

    head_bytes: int
    persistent_bytes: int
    planning_bytes: int
    slack_bytes: int = SLACK_BYTES

    @classmethod
    def of(cls, head_bytes: int, measured: TflmRun) -> Arena:
        """The parts, where the head may be larger than was measured: other kernels want more scratch."""
        used = head_bytes + measured.persistent_bytes
        return cls(head_bytes, measured.persistent_bytes, max(0, measured.arena_bytes - used))

    @property
    def total_bytes(self) -> int:
        return self.head_bytes + self.persistent_bytes + self.planning_bytes + self.slack_bytes

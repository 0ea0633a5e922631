"""What verifying a model in one place has shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    """`failure`: why the answer is no; None if it is yes. `instructions`: the most that any input took, on one core.
    `critical_instructions`: of the core that had most to do between each two barriers, and for these.
    `stack_bytes`: the most that any core takes; `core_stacks_bytes`: what each of several does. What the place does not
    tell is None."""

    on: str
    inputs: int
    failure: str | None
    arena_bytes: int
    stack_bytes: int | None = None
    static_bytes: int | None = None
    code_bytes: int | None = None
    weights_bytes: int | None = None
    instructions: int | None = None
    cores: int | None = None
    barriers: int | None = None
    critical_instructions: int | None = None
    core_stacks_bytes: tuple[int, ...] = ()

    @property
    def ok(self) -> bool:
        return self.failure is None

    def failed(self, reason: str) -> Run:
        """The same with a reason why the answer is no, unless there is one already."""
        return replace(self, failure=self.failure or reason)

    def to_json(self) -> dict[str, Any]:
        return {
            "on": self.on,
            "ok": self.ok,
            "inputs": self.inputs,
            "arena_bytes": self.arena_bytes,
            "stack_bytes": self.stack_bytes,
            "static_bytes": self.static_bytes,
            "code_bytes": self.code_bytes,
            "weights_bytes": self.weights_bytes,
            "instructions": self.instructions,
            "failure": self.failure,
            **self._of_cores(),
        }

    @property
    def speedup(self) -> float | None:
        """How much faster several cores are than one."""
        if not self.instructions or not self.critical_instructions:
            return None
        return self.instructions / self.critical_instructions

    def _of_cores(self) -> dict[str, Any]:
        if self.cores is None:
            return {}
        speedup = None if self.speedup is None else round(self.speedup, 4)
        return {
            "cores": self.cores,
            "stack_bytes_by_core": list(self.core_stacks_bytes) or None,
            "barriers": self.barriers,
            "critical_instructions": self.critical_instructions,
            "speedup": speedup,
        }

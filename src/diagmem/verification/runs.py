"""What verifying a model in one place has shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    """`failure`: why the answer is no; None if it is yes. `instructions`: the most that any input took. What the place
    does not tell is None."""

    on: str
    inputs: int
    failure: str | None
    arena_bytes: int
    stack_bytes: int | None = None
    static_bytes: int | None = None
    code_bytes: int | None = None
    weights_bytes: int | None = None
    instructions: int | None = None

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
        }

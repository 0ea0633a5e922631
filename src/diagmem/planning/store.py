"""A stretch of the arena that one tensor uses, or a tensor with its reshapes and views, or a kernel as scratch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Store:
    """`writers`: the ops that write it, none where it is filled before the run. One of several writes some views of a
    tensor; the whole is held from the first of them on. `readers`: the ops that need it. `is_kept`: it must survive the
    run.

    `state_bytes`: as many of it as hold state from run to run; None if none do. `pinned_bytes`: those that do all the
    time, in any order. `passing_bytes`: those that are sure to come and go, by the writers and readers."""

    name: str
    tensors: tuple[int, ...]
    size_bytes: int
    align_bytes: int
    writers: frozenset[int]
    readers: frozenset[int]
    is_kept: bool
    state_bytes: int | None = None
    pinned_bytes: int = 0
    passing_bytes: int = 0

    @property
    def holds_state(self) -> bool:
        return self.state_bytes is not None

    @property
    def is_scratch(self) -> bool:
        return not self.tensors

    @property
    def is_needed_later(self) -> bool:
        """Whether anything touches it after the step that makes it."""
        return self.is_kept or bool(self.readers) or len(self.writers) > 1

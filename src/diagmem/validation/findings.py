"""What can be wrong with a plan, and what it was made to keep to."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from diagmem.model.schedule import PUSH, Multicore


class Fault(enum.Enum):
    """What can be wrong with a plan."""

    OP_UNKNOWN = "the schedule names an op that the graph does not have"
    OP_MISSING = "the schedule leaves an op, or a turn of it, out"
    OP_REPEATED = "the schedule runs an op, or a turn of it, twice"
    OP_TOO_EARLY = "an op runs before its input is made"
    TURN_UNKNOWN = "the schedule names a turn that the op does not have"
    TURN_TOO_EARLY = "a turn comes before the one that it follows"
    TURNS_MIXED = "an op runs both whole and by turns"
    NO_TURNS = "an op is run by turns whose kernel can only run whole"
    TOO_MUCH_WORK = "rows are recomputed beyond the work that is allowed"
    EFFECT_TOO_EARLY = "an op that changes more than its results runs before one that the model has before it"
    NOT_WRITTEN = "a tensor is read of which no op writes some part"
    WRITTEN_TWICE = "two ops write the same part of a tensor"
    UNADDRESSABLE = "a kernel cannot reach the elements of a tensor that lies in pieces inside another one"
    NO_PLACE = "a tensor has no place in the arena"
    PLACE_UNKNOWN = "a place is given to what the graph does not have"
    PLACE_AMISS = "a place is not one whole number for each row"
    NOT_IN_ONE_PIECE = "a tensor that is handed on whole does not lie in one piece"
    VIEW_ASTRAY = "a view does not lie where the tensor that it is part of has it"
    OUTSIDE = "a tensor lies partly outside the arena"
    ACROSS_POOLS = "a tensor does not lie in one pool"
    POOL_OVERRUN = "a pool is used beyond its capacity"
    MISALIGNED = "a tensor's offset is not a multiple of its alignment"
    OVERWRITTEN = "an op reads a byte that something else has overwritten"
    SHARED_UNKNOWN = "cores share what the plan does not run, or in a way that the kernel does not know"
    PHASES_AMISS = "the phases of an op that cores share do not have each of its units once, in order"
    HELD_AMISS = "writes are deferred that the kernel can only make in place"
    ALONE_AMID = "one core does a part of an op alone whose kernel cannot begin or end there"
    RACE = "a core may write a byte before another one has read it"
    RESULT_LOST = "a graph output, or what else must survive the run, is overwritten"


@dataclass(frozen=True, slots=True)
class Pool:
    """A memory that a plan uses from address `begin` to `end`, and what there is of it."""

    name: str
    begin: int
    end: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What a plan was made to keep to.

    `align_bytes`: every offset is a multiple of it. `keep_inputs`: graph inputs survive the run. `external_io`: graph
    inputs and outputs may lie with the caller. `recompute`: the most multiply-accumulates, as a multiple of those of a
    run that computes everything once. `pools`: the memories, where there are several; what lies in one of them is
    reached by the address of its start, so nothing may lie in two. `input_align_bytes`: where graph inputs may start.
    `multicore`: how several cores share it, if they do. `weight_copies`: op -> the address to which its weights are
    copied before its first step, or if they are `copied_ahead` during the step before that; its kernel then reads them
    there.
    """

    align_bytes: int = 1
    keep_inputs: bool = False
    external_io: bool = False
    recompute: float = 1.0
    pools: tuple[Pool, ...] = ()
    input_align_bytes: int = 1
    multicore: Multicore | None = None
    weight_copies: Mapping[int, int] = field(default_factory=dict)
    copied_ahead: bool = False

    @property
    def cores(self) -> int:
        return 1 if self.multicore is None else self.multicore.cores


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `byte` is an address in the arena; `writer` overwrote it at step `writer_step`.

    `op` is its index in the graph, `number` that in the model's file. `row`, `writer_row`: which row of the tensor and
    of the writer it is about, where these are held row by row. `run`: in which run it shows, of a model that has state.
    """

    fault: Fault
    step: int | None = None
    op: int | None = None
    tensor: str | None = None
    byte: int | None = None
    writer: str | None = None
    writer_step: int | None = None
    row: int | None = None
    writer_row: int | None = None
    number: int | None = None
    run: int = 0

    def __str__(self) -> str:
        parts = [f"{'in the next run, ' if self.run else ''}{self._where}{self.fault.value}"]
        parts += [_named(self.tensor, self.row)] if self.tensor is not None else []
        parts += [f"byte {self.byte}"] if self.byte is not None else []
        if self.writer is not None:
            when = "before the run" if (self.writer_step or 0) < 0 else f"at step {self.writer_step}"
            parts.append(f"overwritten by {_named(self.writer, self.writer_row)} {when}")
        return "; ".join(parts)

    @property
    def _where(self) -> str:
        if self.op is None:
            return "" if self.step is None else "after the run: "
        number = self.op if self.number is None else self.number
        who = "the caller's row" if self.op == PUSH else f"op {number}"
        return f"{who}: " if self.step is None else f"step {self.step}, {who}: "


def _named(label: str, row: int | None) -> str:
    return f"'{label}'" if row is None else f"'{label}'[{row}]"

"""What may be asked of a plan: the one list of options, for the Python API and the command line alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from diagmem.model.errors import PlanError, check_type, items_of, one_line
from diagmem.model.pools import LEAST_ALIGN_BYTES, Pool, WeightsPool, asked_of, parsed_weights_pool, pools_of
from diagmem.model.tables import table, tuples

if TYPE_CHECKING:
    from diagmem.kernels import Library
    from diagmem.targets import Chip, Core

AUTO = "auto"
BEST = "best"
ROWS = "rows"
LAYER_BY_LAYER, ROW_BY_ROW, STREAMED = WAYS = ("layer by layer", "row by row", "input streamed")

SPEED, RAM = "speed", "ram"

ONE_AT_A_TIME, KEEP_OUTPUTS = "run-one-at-a-time", "keep-outputs"
TOGETHER = (ONE_AT_A_TIME, KEEP_OUTPUTS)

ALL = "all"
"""Of the transforms."""

MOST_CORES = 16
"""That share one arena."""

MOST_ALIGN_BYTES = 1 << 24
"""More than any memory of a chip asks for."""

RANGES = (("cores", 1, MOST_CORES), ("cores_cost", 0, 1000), ("recompute", 1, 1000))
"""Options, and the least and the most that each may be."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a plan is made for, and how it is looked for. The fields are the keyword arguments of `diagmem.plan`.

    `kernels` names the kernel library that will run the model; empty: that of the core. Every offset is a multiple of
    `align` bytes, and of the element's size; None: of what the library asks for, 1 byte for `diagmem`, 16 for
    TensorFlow Lite Micro. `buffers` may be a mapping from names; `skip` may be a text with commas.
    """

    kernels: str = ""
    align: int | None = None
    keep_inputs: bool = False
    external_io: bool = False
    overlap: bool = True
    target: str = ""
    calibration: str = ""
    cpu: str = ""
    schedule: str = AUTO
    allocator: str = BEST
    prefer: str = SPEED
    input_rows: bool = False
    recompute: float = 1.0
    cores: int = 1
    cores_cost: float = 0.0
    effort: str = "normal"
    time_limit: float | None = None
    pools: tuple[Pool, ...] = ()
    all_memories: bool = False
    weights_pool: str = ""
    weights_ahead: bool = False
    buffers: Collection[str] = ()
    input_align: int | None = None
    together: str = ""
    skip: Collection[str] = ()

    def __post_init__(self) -> None:
        for option in OF_A_PLAN.values():
            check_type(option.name, getattr(self, option.name), option.type)
        chip = self.chip
        if chip is not None and not self.target.lower().endswith(".toml"):
            self._set("target", chip.name)
        if self.calibration:
            if chip is None:
                raise PlanError("a calibration is for a chip: name it as the target")
            self._set("calibration", chip.calibration)
        if self.all_memories:
            if chip is None:
                raise PlanError("all_memories needs a target: name a chip, or list its memories with pools")
            self._set("pools", (*chip.pools, *items_of(self.pools)))
            self._set("all_memories", value=False)
        self._set("pools", pools_of(items_of(self.pools)))
        if self.core is not None:
            from diagmem.kernels import kernels_on

            self._check_core(self.core)
            self._set("kernels", kernels_on(self.core.name, self.core.cpu, self.kernels))
        self._set("kernels", self.kernels or "diagmem")
        self._set("buffers", tuple(asked_of(self.buffers)))
        self._set("skip", tuple(filter(None, ",".join(items_of(self.skip)).split(","))))
        for align in (self.align, self.input_align):
            if align is not None and (not 1 <= align <= MOST_ALIGN_BYTES or align & (align - 1)):
                raise PlanError(f"alignment of {align} bytes: it must be a power of two, at most {MOST_ALIGN_BYTES}")
        for option in OF_A_PLAN.values():
            value, known = getattr(self, option.name), option.choices
            if known and value not in (option.default, *known):
                raise PlanError(f"{option.name} '{value}' is not known; known: {', '.join(known)}")
        if self.weights_pool:
            self._check_weights_pool()
        for name, least, most in RANGES:
            if not least <= getattr(self, name) <= most:
                raise PlanError(f"{name} is {getattr(self, name)}: it must be {least:g} to {most:g}")
        for is_refused, why in self._refusals():
            if is_refused:
                raise PlanError(why)
        if self.recompute != 1:
            self._set("schedule", ROWS)

    def _refusals(self) -> tuple[tuple[object, str], ...]:
        """What cannot be combined, and what is said of it. The next frame of an input lies in the arena, whole."""
        is_by_rows, double, many = self.input_rows or self.recompute != 1, self.double_buffer, self.cores > 1
        is_external = self.external_io or {*self.external} & {*double}
        kernels = f"double buffering needs diagmem's own kernels, not '{self.kernels}': leave out double"
        return (
            (double and is_external, "an external input is not double-buffered here: keep two buffers in the firmware"),
            (double and self.input_rows, "a streamed input cannot be double-buffered: leave out double"),
            (double and not self.library.is_own, kernels),
            (self.pinned_at and self.pools, "@OFFSET and pools cannot be combined: leave out one"),
            (self.weights_ahead and not self.weights_pool, "weights_ahead needs weights_pool: name a pool for them"),
            (self.together and self.external_io, "external_io does not go with together: use buffers=NAME=external"),
            (is_by_rows and self.schedule not in (AUTO, ROWS), "input_rows and recompute need schedule 'rows'"),
            (many and self.together, "cores and together cannot be combined: leave out cores, or plan each alone"),
            (many and self.weights_pool, "cores and weights_pool cannot be combined: leave out one"),
            (
                self.time_limit is not None and not self.time_limit > 0,
                f"time_limit is {self.time_limit} s: it must be above 0",
            ),
        )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_core(self, own: Core) -> None:
        """Beside a target, only its own core may be named, or one that runs the same kernels."""
        from diagmem.targets import core_named

        named = core_named(self.cpu) if self.cpu else own
        if named != own and (named.cpu != own.cpu or not own.cpu):
            both = f"cpu {one_line(self.cpu)} ({named.name}) is not the core of {self.target} ({own.name})"
            raise PlanError(f"{both}: leave out cpu")

    def _check_weights_pool(self) -> None:
        names = [pool.name for pool in self.pools]
        asked = parsed_weights_pool(self.weights_pool).name
        if not names:
            raise PlanError(f"weights_pool needs a pool of that name: give its size, such as --pool {asked}:64K")
        if asked not in names:
            raise PlanError(f"weights_pool '{asked}' is none of the pools: {', '.join(names)}")

    @property
    def copy_pool(self) -> WeightsPool | None:
        """Where weights may be copied to, and what it costs to read them from flash."""
        if not self.weights_pool:
            return None
        found = parsed_weights_pool(self.weights_pool)
        cost = (self.chip.read_cost if self.chip else 0) or self.pools[-1].cost + 1
        return found if found.flash_cost else WeightsPool(found.name, cost)

    @property
    def needs_weights(self) -> bool:
        """Where a core is named, what the plan takes of flash is told; and how copies of weights lie depends on their
        values."""
        return self.core is not None or bool(self.weights_pool)

    @property
    def chip(self) -> Chip | None:
        """The chip that was named as the target."""
        if not self.target:
            return None
        from diagmem.targets import chip_named

        return chip_named(self.target, self.calibration)

    @property
    def core(self) -> Core | None:
        """That of the target, or the one that was named; None for any."""
        if self.cpu == "generic" or not (self.target or self.cpu):
            return None
        from diagmem.targets import core_named

        return core_named(self.cpu) if self.chip is None else self.chip.core

    @property
    def keep(self) -> tuple[str, ...]:
        """Tensors whose values survive the run."""
        return tuple(name for name, how in asked_of(self.buffers).values() if how == "keep")

    @property
    def external(self) -> tuple[str, ...]:
        """Inputs and outputs in memory of the firmware's own."""
        return tuple(name for name, how in asked_of(self.buffers).values() if how == "external")

    @property
    def double_buffer(self) -> tuple[str, ...]:
        """Inputs whose next frame is written during a run."""
        return tuple(name for name, how in asked_of(self.buffers).values() if how == "double")

    @property
    def apart(self) -> tuple[str, ...]:
        """Tensors that have a place of their own."""
        return tuple(name for name, how in asked_of(self.buffers).values() if how != "keep")

    @property
    def pinned_at(self) -> Mapping[str, int]:
        """Tensors, by name, and where each must lie."""
        return {name: int(how[1:]) for name, how in asked_of(self.buffers).values() if how.startswith("@")}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Options:
        """From keyword arguments; one that is not known is named."""
        unknown = sorted(values.keys() - set(cls.__slots__))
        if unknown:
            raise TypeError(f"'{unknown[0]}' is no option of a plan; options: {', '.join(cls.__slots__)}")
        return cls(**values)

    @property
    def library(self) -> Library:
        # Loaded when it is needed: the command line shows options without it.
        from diagmem.kernels import library

        return library(self.kernels)

    @property
    def align_bytes(self) -> int:
        """The alignment that was asked for, else the library's."""
        return self.library.align_bytes if self.align is None else self.align

    @property
    def pool_align_bytes(self) -> int:
        """Where pools may begin in their line."""
        return max(LEAST_ALIGN_BYTES, self.align_bytes, self.input_align or 1)


class Option(NamedTuple):
    """An option of a plan; see options.toml."""

    name: str
    type: str
    default: Any
    meaning: str
    unit: str = ""
    choices: tuple[str, ...] = ()
    is_rare: bool = False


_WORDS = tuples(table(__package__, "options"))

OF_A_PLAN = {own.name: Option(own.name, str(own.type), own.default, **_WORDS[own.name]) for own in fields(Options)}
"""Options by name."""

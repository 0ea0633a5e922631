"""What may be asked of a plan: the one list of options, for the Python API and the command line alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diagmem.model.errors import PlanError, one_line
from diagmem.model.pools import LEAST_ALIGN_BYTES, Pool, WeightsPool, parsed_weights_pool, pools_of

if TYPE_CHECKING:
    from diagmem.kernels import Library

AUTO = "auto"
BEST = "best"
ROWS = "rows"
LAYER_BY_LAYER, ROW_BY_ROW, STREAMED = WAYS = ("layer by layer", "row by row", "input streamed")

SCHEDULES = (AUTO, BEST, "file", "eager", "lazy", "bounded", "search", ROWS)
ALLOCATORS = (BEST, "heap", "greedy", "optimal")

SPEED, RAM = "speed", "ram"

ONE_AT_A_TIME, KEEP_OUTPUTS = "run-one-at-a-time", "keep-outputs"
TOGETHER = (ONE_AT_A_TIME, KEEP_OUTPUTS)

EFFORTS = ("quick", "normal", "thorough")

MOST_CORES = 16
"""That share one arena."""

MOST_COST = 1000
"""Percent of an arena."""

MOST_ALIGN_BYTES = 1 << 24
"""More than any memory of a chip asks for."""

MOST_WORK = 1000.0
"""Times the multiply-accumulates of a run that computes everything once."""


def _option(default: Any, meaning: str, unit: str = "", choices: tuple[str, ...] = ()) -> Any:
    """`meaning`: what the option does, where it is given; `unit`: what its value is, in a letter or a word."""
    return field(default=default, metadata={"meaning": meaning, "unit": unit, "choices": choices})


@dataclass(frozen=True, slots=True)
class Options:
    """What a plan is made for, and how it is looked for. The fields are the keyword arguments of `diagmem.plan`.

    `kernels` names the kernel library that will run the model. Every offset is a multiple of `align` bytes, and of the
    element's size; None: of what the library asks for, 1 byte for `diagmem`, 16 for TensorFlow Lite Micro. `remove`
    names the transforms that may remove ops where that does not make the plan larger; None: all that the library's
    kernels can live with.
    """

    kernels: str = _option(
        "diagmem",
        "Kernel library that will run the model: overlap depends on its loops. diagmem, diagmem-dsp (Cortex-M4, M7, "
        "M33), tflm-reference, cmsis-nn "
        "(cores without MVE), cmsis-nn-mve, or traced:FILE.json for one that was traced with `diagmem trace`.",
        unit="LIB",
    )
    align: int | None = _option(
        None, "Least alignment of every offset, a power of two.  [default: 1; 16 for the TFLM libraries]", unit="N"
    )
    keep_inputs: bool = _option(False, "The graph's inputs survive the run.")
    external_io: bool = _option(False, "The caller holds the graph's inputs and outputs.")
    overlap: bool = _option(True, "Live tensors may share addresses.")
    schedule: str = _option(
        AUTO,
        "auto: row by row where that takes less, else layer by layer in the best order. Or one order of layers: best, "
        "as in the file, the paper's eager and lazy, memory-bounded, searched. Or rows.",
        choices=SCHEDULES,
    )
    allocator: str = _option(
        BEST, "How offsets are found: the paper's heap, greedy by size, or exact.", choices=ALLOCATORS
    )
    prefer: str = _option(
        SPEED,
        "With kernels for more than plain C: the fastest, or slower ones where the arena's peak is smaller with them.",
        choices=(SPEED, RAM),
    )
    input_rows: bool = _option(False, "Row by row: the input comes a row at a time.")
    recompute: float = _option(
        1.0, "Row by row: rows may be recomputed, up to so many times the multiply-accumulates.", unit="R"
    )
    cores: int = _option(
        1, "Cores that may share a run in one arena: the plan then has the phases of their work.", unit="N"
    )
    cores_cost: float = _option(
        0.0, "With cores: percent of the arena that may be added for fewer waits.", unit="PERCENT"
    )
    effort: str = _option(
        "normal",
        "How long to look for a plan. Work is counted: the same plan every time. A plan that is not proven says how "
        "far it may be from the best.",
        choices=EFFORTS,
    )
    time_limit: float | None = _option(
        None, "Look no further after S seconds. Plans may then differ from run to run.", unit="S"
    )
    pools: tuple[Pool, ...] = _option(
        (),
        "A memory of the chip, such as dtcm:128K or axi:512K:3, the fastest first; may be repeated. COST: of a byte "
        "read or written there.  [default: one more than that of the pool before]",
        unit="NAME:BYTES[:COST]",
    )
    weights_pool: str = _option(
        "",
        "With pools: the one to which weights are copied before an op that reads them over and over, where that pays. "
        "COST: of a byte read from flash.  [default: one more than that of the slowest pool]",
        unit="NAME[:COST]",
    )
    weights_ahead: bool = _option(
        False, "With weights_pool: copies begin a step earlier, so that DMA can work while the op before runs."
    )
    keep: tuple[str, ...] = _option(
        (), "A tensor whose value survives the run, as one more output; may be repeated.", unit="NAME"
    )
    external: tuple[str, ...] = _option(
        (), "An input or output that the caller holds, in memory of its own; may be repeated.", unit="NAME"
    )
    pins: tuple[str, ...] = _option(
        (), "Where in the arena a tensor lies, such as input@0; may be repeated.", unit="NAME@OFFSET"
    )
    double_buffer: tuple[str, ...] = _option(
        (),
        "An input whose next frame is written while this one runs: there is a buffer more for it; may be repeated.",
        unit="NAME",
    )
    input_align: int | None = _option(
        None, "Alignment of inputs, a power of two, such as a cache line's for DMA.", unit="N"
    )
    together: str = _option(
        "",
        "Several models in one arena, of which one runs at a time. What lives from run to run, and with keep-outputs "
        "each model's outputs, lies beside it.",
        choices=TOGETHER,
    )
    remove: Collection[str] | None = _option(None, "Transforms that may remove ops.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "pools", pools_of(self.pools))
        object.__setattr__(self, "keep", tuple(self.keep))
        object.__setattr__(self, "external", tuple(self.external))
        object.__setattr__(self, "pins", tuple(self.pins))
        object.__setattr__(self, "double_buffer", tuple(self.double_buffer))
        self._check_double_buffer()
        if self.pinned_at and self.pools:
            raise PlanError("a tensor is pinned in one arena, and pools are several: leave out either")
        for align in (self.align, self.input_align):
            if align is not None and (not 1 <= align <= MOST_ALIGN_BYTES or align & (align - 1)):
                raise PlanError(
                    f"alignment of {align} bytes: it must be a power of two, such as 1, 4 or 16, and at most "
                    f"{MOST_ALIGN_BYTES}"
                )
        for name, known in (
            ("schedule", SCHEDULES),
            ("allocator", ALLOCATORS),
            ("prefer", (SPEED, RAM)),
            ("effort", EFFORTS),
        ):
            if getattr(self, name) not in known:
                raise PlanError(f"{name} '{getattr(self, name)}' is not known; known: {', '.join(known)}")
        if self.weights_pool:
            self._check_weights_pool()
        elif self.weights_ahead:
            raise PlanError("weights_ahead is about copies of weights: name a pool for them with weights_pool")
        if self.together not in ("", *TOGETHER):
            raise PlanError(f"together '{self.together}' is not known; known: {', '.join(TOGETHER)}")
        if self.together and self.external_io:
            raise PlanError(
                "models that share an arena have their inputs in it: leave out external_io, or name --external"
            )
        if self.input_rows or self.recompute != 1:
            if self.schedule not in (AUTO, ROWS):
                raise PlanError(
                    "an input that comes row by row, and rows that are recomputed, need the schedule 'rows'"
                )
            object.__setattr__(self, "schedule", ROWS)
        if not 1 <= self.cores <= MOST_CORES:
            raise PlanError(f"{self.cores} cores: a plan is for 1 to {MOST_CORES}")
        if not 0 <= self.cores_cost <= MOST_COST:
            raise PlanError(f"a cost of {self.cores_cost} percent for cores: it must be from 0 to {MOST_COST}")
        if self.cores > 1 and self.together:
            raise PlanError("several cores share the arena of one model: leave out cores, or plan each model alone")
        if self.time_limit is not None and not self.time_limit > 0:
            raise PlanError(f"a time limit of {self.time_limit} s leaves no time; give a number above 0")
        if not 1 <= self.recompute <= MOST_WORK:
            raise PlanError(f"recompute is {self.recompute}: it must be 1 to {MOST_WORK:.0f} times the work of one run")

    def _check_double_buffer(self) -> None:
        """The next frame lies in the arena, whole."""
        if not self.double_buffer:
            return
        if self.external_io or {*self.external} & {*self.double_buffer}:
            raise PlanError("the caller holds that input: have two buffers there, and leave out the double buffer")
        if self.input_rows:
            raise PlanError("an input that comes row by row has no next frame: leave out the double buffer")
        if not self.library.is_own:
            raise PlanError(f"kernels '{self.kernels}' run without our C code: leave out the double buffer")

    def _check_weights_pool(self) -> None:
        names = [pool.name for pool in self.pools]
        asked = parsed_weights_pool(self.weights_pool).name
        if not names:
            raise PlanError(f"weights are copied to a pool: give its size, such as --pool {asked}:64K")
        if asked not in names:
            raise PlanError(f"weights_pool '{asked}' is none of the pools: {', '.join(names)}")
        if self.cores > 1:
            raise PlanError("several cores read weights where they are: leave out cores, or weights_pool")

    @property
    def staging(self) -> WeightsPool | None:
        """Where weights may be copied to, and what it costs to read them from flash."""
        if not self.weights_pool:
            return None
        found = parsed_weights_pool(self.weights_pool)
        return found if found.flash_cost else WeightsPool(found.name, self.pools[-1].cost + 1)

    @property
    def pinned_at(self) -> Mapping[str, int]:
        """Tensors, by name, and where each must lie."""
        found: dict[str, int] = {}
        for pin in self.pins:
            name, _, offset = pin.rpartition("@")
            if not name or not offset.isdecimal() or not offset.isascii() or len(offset) > 12:
                raise PlanError(f"'{one_line(pin, 60)}' is not NAME@OFFSET, such as input@0: an offset in bytes")
            found[name] = int(offset)
        return found

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

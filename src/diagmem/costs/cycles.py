"""How long a plan runs: cycles of each op on a chip or a core, estimated without an emulator, and what follows from
cycles: milliseconds and energy. `verification/` counts the same things in an emulator.

For others to use:

    clock = Clock.of(chip, core)            # with its clock in MHz; None where no table of cycles is known
    spent = made.costs.spent(clock)         # op -> Spent: cycles, and those among them that wait on flash
    cost = made.costs.on(chip, core)        # the same in sum: cost.cycles, cost.ms, cost.uj, cost.error_percent

A board's own measurement enters as `Clock.factor`, measured cycles over predicted ones: `Clock.told` multiplies by it,
so every command tells calibrated figures where the chip has been calibrated, whether they were estimated or counted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, NamedTuple

from diagmem.backends.c.program import Program
from diagmem.model.graph import Node
from diagmem.model.schedule import PUSH
from diagmem.model.tables import table
from diagmem.ops import node_macs
from diagmem.ops.c_call import CCall, CName, CStruct, weight_copies
from diagmem.targets import Chip, Core, FlashCache, Timing, timing_of

COPIED_BYTES_A_CYCLE = 2
"""When weights are copied to RAM before they are read, roughly."""


class Spent(NamedTuple):
    """Cycles, those that wait on flash for code and for data among them."""

    cycles: float = 0
    code_wait: float = 0
    data_wait: float = 0

    def __add__(self, other: object) -> Spent:
        if not isinstance(other, Spent):
            return NotImplemented
        return Spent(self.cycles + other.cycles, self.code_wait + other.code_wait, self.data_wait + other.data_wait)

    @property
    def wait(self) -> float:
        return self.code_wait + self.data_wait


@dataclass(frozen=True, slots=True)
class Clock:
    """What cycles are counted for: a core, and the flash of a chip that has it; without a chip, none is waited on.
    `asked_mhz`: instead of the chip's."""

    timing: Timing
    chip: Chip | None = None
    asked_mhz: float | None = None

    @classmethod
    def of(cls, chip: Chip | None, core: Core | None, mhz: float | None = None) -> Clock | None:
        """That of a chip, or of a core alone. None where there is no table of cycles."""
        core = core if chip is None else chip.core
        timing = None if core is None else timing_of(core.key)
        return cls(timing, chip and chip.at(mhz), mhz) if timing is not None else None

    @property
    def mhz(self) -> float | None:
        return self.asked_mhz or (self.chip.mhz if self.chip else None)

    @property
    def factor(self) -> float:
        """Measured cycles over predicted ones, of a board that was measured."""
        return self.chip.calibrated[0] if self.chip and self.chip.calibrated else 1

    @property
    def error_percent(self) -> float | None:
        """Of the model on that core, or of what a board has measured."""
        return self.chip.calibrated[1] if self.chip and self.chip.calibrated else self.timing.error_percent

    @property
    def flash(self) -> FlashCache | None:
        """None where nothing is waited on, or it is not known how the chip reads its flash."""
        return None if self.chip is None else self.chip.flash_cache

    def waited(self, spent: Spent) -> int | None:
        """On flash; None where it is not known how the chip reads it."""
        return round(spent.wait * self.factor) if self.flash is not None else None

    def ms(self, spent: Spent) -> float | None:
        return spent.cycles * self.factor / (1000 * self.mhz) if self.mhz else None

    def of_op(self, spent: Spent) -> tuple[int, float | None]:
        """Cycles and milliseconds."""
        return round(spent.cycles * self.factor), self.ms(spent)

    def told(self, spent: Spent) -> dict[str, Any]:
        """As a `Cost` has it."""
        ms, watts = self.ms(spent), self.chip.milliwatts if self.chip and self.mhz == self.chip.mhz else None
        return {
            "cycles": round(spent.cycles * self.factor),
            "flash_wait_cycles": self.waited(spent),
            "ms": ms,
            "uj": ms * watts if ms is not None and watts is not None else None,
            "error_percent": self.error_percent,
        }


def kernel_key(call: CCall) -> str:
    """By what tables of cycles know a kernel: its function, and the inner loop that it was given, if any, or the bytes
    of the elements that it moves."""
    fields = call.parameters.fields
    inner = next((value.name for value in fields.values() if isinstance(value, CName)), str(fields.get("element", "")))
    name = re.sub(r"(?<=fitted)_\d+", "", inner.removeprefix("diagmem_"))
    return f"{call.function.removeprefix('diagmem_')} {name}".rstrip()


def features(node: Node, call: CCall, runs: float, steps: int) -> dict[str, float]:
    """How often the loops of a kernel run, as far as shapes tell: a kernel's cycles are a sum of these, each times what
    was measured (`kernel_cycles.json`). `runs`: how often the whole op is computed; `steps`: in how many calls."""
    output, data = node.outputs[0] if node.outputs else node.input(0), [t for _, t in node.activations()]
    last = output.shape[-1] if output.shape else 1
    held, depth = sum(t.elems for t in data), data[0].shape[-1] if data and data[0].shape else 1
    fields = call.parameters.fields
    numbers = {name: value for name, value in fields.items() if name in COUNTS and isinstance(value, int)}
    names = "out in outer in-outer last blocks odd fours macs eighths uneven numbers constants"
    outer, constants = output.elems / max(1, last), sum(t.elems for t in node.inputs if t is not None and t.is_constant)
    all_axes = output.elems, held, outer, held / max(1, depth), last, last // 4, last % 4, -(-last // 4)
    found_by_name = (*all_axes, node_macs(node), depth // 8, depth % 8, math.prod(numbers.values()), constants)
    quantities = dict(zip(names.split(), found_by_name, strict=True))
    found = {"steps": steps / runs, **_products("any", quantities)}
    found |= {f"number of {name}": value for name, value in numbers.items()}
    window, shape = fields.get("window"), fields.get("shape")
    if isinstance(window, CStruct):
        found |= _products("window", _of_window(window.fields))
    if isinstance(shape, CStruct) and shape.type == "diagmem_broadcast":
        found |= _of_walk(shape.fields)
    elif isinstance(size := fields.get("size"), tuple):
        found |= {"walked": math.prod(size), "walked by each": math.prod(size) * int(fields.get("count", 1))}
    return {name: value * runs for name, value in found.items()}


COUNTS = ("rows", "count", "size", "batches", "times", "units", "features", "inner", "outer")
"""Fields that say how often a loop runs."""


def _products(what: str, quantities: Mapping[str, float]) -> dict[str, float]:
    """The features that features.toml makes of some quantities."""
    return {
        name: math.prod(quantities[part] for part in parts)
        for name, parts in table(__package__, "features")[what].items()
    }


def _of_walk(walk: Mapping[str, Any]) -> dict[str, float]:
    """Over elements that lie any way along four axes."""
    elems, inner = math.prod(walk["size"]), walk["size"][-1]
    is_even = walk["first"][-1] == walk["out"][-1] == 1 and walk["second"][-1] in (0, 1)
    are_two = is_even and walk["second"][-1] == 1
    found = {"even": elems * is_even, "even of two": elems * are_two, "uneven": elems * (not is_even)}
    return {**found, "runs": elems / max(1, inner), "planes": math.prod(walk["size"][:2]), "images": walk["size"][0]}


def _of_window(w: Mapping[str, Any]) -> dict[str, float]:
    """Of one that slides over an image: pixels, taps, blocks of channels, and neighbours taken two at a time."""
    rows, width, depth = w["batches"] * w["out_height"], w["out_width"], w["out_depth"]
    tall, wide = [*_taps(w, "h", "height", "top")], [*_taps(w, "w", "width", "left")]
    within = w["batches"] * tall.count(w["kernel_h"]) * wide.count(w["kernel_w"])
    taps = w["kernel_h"] * w["kernel_w"]
    held = w["in_depth"] * taps
    names = (
        "rows pixels within border taps inside high held in channels fours eights odd rest pairs single ragged filled"
    )
    pixels, inside = rows * width, w["batches"] * sum(tall) * sum(wide)
    seen = rows, pixels, within, pixels - within, taps, inside, w["kernel_h"], held, w["in_depth"]
    blocks = depth, -(-depth // 4), -(-depth // 8), depth % 4, depth % 4 > 0
    neighbours = rows * (width // 2), rows * (width % 2), w["in_depth"] % 4 > 0, -(-held // 8)
    return dict(zip(names.split(), (*seen, *blocks, *neighbours), strict=True))


def _taps(w: Mapping[str, Any], axis: str, size: str, side: str) -> Iterator[int]:
    """At each place of the window along an axis, how many of its taps lie inside the image."""
    for place in range(w[f"out_{size}"]):
        first = place * w[f"stride_{axis}"] - w[f"pad_{side}"]
        yield sum(0 <= first + tap * w[f"dilation_{axis}"] < w[f"in_{size}"] for tap in range(w[f"kernel_{axis}"]))


@dataclass(frozen=True)
class Run:
    """An op of a program as it runs: how often the whole of it is computed, in how many steps, and what of its
    constants lies in flash. `passes`: how often all its steps together go over these."""

    node: Node
    call: CCall
    runs: float
    steps: int
    constant_bytes: int
    copied_bytes: int
    passes: float

    @cached_property
    def key(self) -> str:
        return kernel_key(self.call)

    @cached_property
    def features(self) -> Mapping[str, float]:
        return features(self.node, self.call, self.runs, self.steps)

    def lines(self, cache_bytes: int, line_bytes: int, colds: int) -> float:
        """That a cache has to fetch of constants: at each pass where they are larger than it is, else each time that
        others have driven them out."""
        kept = max(0.0, min(1.0, 2 - self.constant_bytes / cache_bytes)) if cache_bytes else 0.0
        lines, cold = math.ceil(self.constant_bytes / line_bytes), min(colds, self.passes)
        return lines * (kept * cold + (1 - kept) * self.passes)


def runs_of(program: Program) -> Iterator[Run]:
    """Those that call a kernel."""
    for node in program.nodes:
        op, call = node.op.index, program.calls[node.op.index]
        if call is None:
            continue
        visits = len(program.visits[op]) if op in program.visits else 1
        runs = visits / program.rows.ops[op].turns if op in program.visits else 1.0
        held, copied = weight_copies(call), program.copied_weights.get(op)
        size = 0 if held is None else held.size_bytes
        if copied is not None:
            yield Run(node, call, runs, visits, copied.size_bytes, copied.size_bytes, 1)
        else:
            yield Run(node, call, runs, visits, size, 0, call.passes * runs)


def cold_steps(program: Program, held: Mapping[int, tuple[str, int]], cache_bytes: int) -> dict[int, int]:
    """Op -> how often it begins while a cache that keeps what was used last does not have what it needs. `held`: op ->
    what that is called, and its bytes."""
    found, recent, sizes = dict.fromkeys(held, 0), list[str](), dict(held.values())
    for step in program.steps:
        if step.op == PUSH or step.op not in held:
            continue
        name = held[step.op][0]
        between = recent[recent.index(name) :] if name in recent else None
        found[step.op] += between is None or sum(sizes[one] for one in between) > cache_bytes
        if between is not None:
            recent.remove(name)
        recent.append(name)
    return found


CODE_BYTES = 700
"""Of a kernel's code, what a call of it goes through, roughly."""


def fetched(program: Program, runs: Sequence[Run], flash: FlashCache) -> dict[int, dict[str, float]]:
    """Op -> what a cache has to fetch for it: lines of its constants, and how often its code."""
    cache_bytes, line_bytes = flash_held(flash)
    constants = cold_steps(
        program, {r.node.op.index: (str(r.node.op.index), r.constant_bytes) for r in runs}, cache_bytes
    )
    held = {run.node.op.index: (run.call.source, CODE_BYTES) for run in runs}
    code = cold_steps(program, held, flash.code.lines * flash.code.line_bytes)
    return {
        run.node.op.index: {
            "lines of constants": run.lines(cache_bytes, line_bytes, constants[run.node.op.index]),
            "starts of code": code[run.node.op.index],
        }
        for run in runs
    }


@cache
def _tables() -> Mapping[str, Any]:
    """`cycles`: core -> kernel -> feature -> cycles of each; `code`, `data`: flash cache -> emulated core -> kernel ->
    feature -> misses of each."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("kernel_cycles.json").read_text(encoding="utf-8"))
    return found


def _known(table: Mapping[str, Mapping[str, float]], key: str) -> Mapping[str, float] | None:
    """Of this kernel; else of the same with another inner loop, or of that for whole tensors."""
    if key in table:
        return table[key]
    function = key.split()[0]
    alike = (function, function.removesuffix("_row"))
    return next((found for name in alike for known, found in table.items() if known.split()[0] == name), None)


def _summed(weights: Mapping[str, float] | None, found: Mapping[str, float]) -> float:
    return sum(each * found.get(name, 0) for name, each in (weights or {}).items())


def cache_name(flash: FlashCache) -> str:
    """By what `kernel_cycles.json` knows caches that differ in their size alone."""
    data = f"{flash.data.line_bytes}" if flash.data.lines else f"{flash.data.line_bytes} past it"
    small = " of few lines" if flash.code.lines < FEW_LINES else ""
    return f"{flash.code.line_bytes}{small}, {'shared' if flash.is_shared else data}, {flash.hidden} hidden"


FEW_LINES = 8
"""A cache for code that has fewer holds no loop."""


def estimated(program: Program, runs: Sequence[Run], clock: Clock) -> dict[int, Spent] | None:
    """Op -> what one run of a program spends on it, from tables of kernels that were measured in the emulator. None
    where a kernel was not measured on this core, or several cores share the work."""
    core = _tables()["cycles"].get(clock.timing.measured_as)
    if core is None or program.multicore is not None or any(_known(core, run.key) is None for run in runs):
        return None
    found = dict.fromkeys(program.order, Spent())
    waits = _Waits.of(program, runs, clock)
    for run in runs:
        spent = _summed(_known(core, run.key), run.features) + run.copied_bytes / COPIED_BYTES_A_CYCLE
        code, data = (0.0, 0.0) if waits is None else waits.of_run(run)
        found[run.node.op.index] = Spent(spent + code + data, code, data)
    return found


@dataclass(frozen=True, slots=True)
class _Waits:
    """What a chip waits on flash. `code`, `data`: kernel -> feature -> misses. `fetched`: as the function."""

    code: Mapping[str, Mapping[str, float]]
    data: Mapping[str, Mapping[str, float]]
    miss_cycles: int
    fetched: Mapping[int, Mapping[str, float]]

    @classmethod
    def of(cls, program: Program, runs: Sequence[Run], clock: Clock) -> _Waits | None:
        """None where nothing is waited on, or no table says how often."""
        if clock.chip is None or clock.flash is None or not clock.chip.flash_miss_cycles:
            return None
        name, cpu = cache_name(clock.flash), clock.chip.core.cpu
        code, data = (_tables()[part].get(name, {}).get(cpu, {}) for part in ("code", "data"))
        return cls(code, data, clock.chip.flash_miss_cycles, fetched(program, runs, clock.flash))

    def of_run(self, run: Run) -> tuple[float, float]:
        counts = {**run.features, **self.fetched[run.node.op.index]}
        code, data = (self.miss_cycles * _summed(_known(one, run.key), counts) for one in (self.code, self.data))
        return code, data


def flash_held(flash: FlashCache) -> tuple[int, int]:
    """Bytes that a cache holds of constants, and of a line of it."""
    lines = flash.code if flash.is_shared else flash.data
    return lines.lines * lines.line_bytes, lines.line_bytes

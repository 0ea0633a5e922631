"""The Python API for one's own data: models that are run, and judged by what they make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from diagmem.backends.c.selftest import SelfTest
from diagmem.costs import Cost, Costs
from diagmem.frontends.source import Source
from diagmem.model.errors import DiagmemError, PlanError, one_line
from diagmem.model.graph import Graph
from diagmem.ops.kind import Array
from diagmem.pipeline import GivenPlan, Model, asked_for, given_plan, in_chip, source_of
from diagmem.planning.options import Options
from diagmem.planning.planner import Tell, silently
from diagmem.verification.cortex_m import CORES, outputs_on_core
from diagmem.verification.oracles import LITERT, ONNXRUNTIME, TFLM, outputs_in
from diagmem.verification.places import HOST
from diagmem.verification.profile import check_runs_on
from diagmem.verification.recordings import Pixels, Recording, expected_outputs, labels, recordings
from diagmem.verification.running import Given, Running, named, taken
from diagmem.verification.scores import Made, Score, compared, judged
from diagmem.verification.selftest import BoardReport, reported, selftest_of


def running(model: Model, *, plan: GivenPlan | None = None, **options: Any) -> Running:
    """A model's C, compiled for this machine and kept open: `with diagmem.running(model) as net: net(x)`. State is kept
    from call to call, until `net.reset()`.

    >>> import numpy as np
    >>> with diagmem.running("zoo:kws_dscnn_int8") as net:
    ...     [values.shape for values in net(np.zeros((49, 10), np.float32)).values()]
    [(1, 12)]
    """
    return Running(_costs(source_of(model), plan, Options.of(options)).firmware)


def run(
    model: Model, inputs: Given, *, raw: bool = False, on: str = HOST, plan: GivenPlan | None = None, **options: Any
) -> Any:
    """What a model makes of its inputs, which are real numbers: an array, or a mapping from names; several runs in a
    row have an axis more. Returns the outputs by name. `raw`: stored values go in and come out. `on`: where it runs, as
    in `run_on_data`.

    >>> import numpy as np
    >>> made = diagmem.run("zoo:kws_dscnn_int8", np.zeros((5, 49, 10, 1), np.float32))
    >>> [values.shape for values in made.values()]
    [(5, 12)]
    """
    place = _Place.of(source_of(model), on, Options.of(options), plan)
    return named(place.graph, place.made([Recording("", taken(place.graph, inputs, raw))])[0], raw)


RUNTIMES = (TFLM, LITERT, ONNXRUNTIME)
PLACES = (HOST, *(name for name, core in CORES.items() if core.cores == 1), *RUNTIMES)


@dataclass(frozen=True)
class _Place:
    """Where a model runs: its C here or on an emulated core, or its file in another runtime, where it has no costs."""

    name: str
    source: Source
    costs: Costs | None

    @classmethod
    def of(cls, source: Source, name: str, options: Options, plan: GivenPlan | None) -> _Place:
        if name not in PLACES:
            raise PlanError(f"place '{one_line(name)}' is not known; known: {', '.join(PLACES)}")
        if name not in RUNTIMES:
            costs = _costs(source, plan, options if plan is not None else asked_for(options, {}, name))
            if name in CORES:
                check_runs_on(costs.plan, name)
            return cls(name, source, costs)
        if not source.has_file:
            raise PlanError(f"{name}: the model has no file that another runtime could read")
        return cls(name, source, None)

    @property
    def graph(self) -> Graph:
        return self.source.runnable if self.costs is None else self.costs.firmware.graph

    @property
    def cost(self) -> Cost | None:
        if self.costs is None:
            return None
        return self.costs.emulated_on(self.name) if self.name in CORES else self.costs.on()

    def made(self, data: Sequence[Recording], tell: Tell = silently) -> Made:
        """State begins anew with each recording."""
        counts = [len(one.runs) for one in data]
        runs, ends = [run for one in data for run in one.runs], np.cumsum(counts).tolist()
        again = ends[:-1] if self.graph.variables else []
        found: Sequence[Sequence[Array]]
        if self.name == HOST and self.costs is not None:
            found = []
            with Running(self.costs.firmware) as net:
                for number, run in enumerate(runs):
                    if not number % 64:  # Telling takes longer than a small run.
                        tell("running", number, len(runs))
                    if number in again:
                        net.reset()
                    found += net.stored([run])
        else:
            tell(self.name, 0, 0)
            try:
                found = (
                    outputs_in(self.name, self.source, self.graph, runs, again)
                    if self.costs is None
                    else outputs_on_core(self.costs.firmware, runs, CORES[self.name], again)
                )
            except DiagmemError as error:
                raise PlanError(f"{self.name}: {error}") from error
        return [found[end - count : end] for end, count in zip(ends, counts, strict=True)]


@dataclass(frozen=True)
class Judged:
    """A model on somebody's data: what it costs (None in other runtimes), what it made of each recording, and how good
    that is."""

    source: Source
    on: str
    cost: Cost | None
    graph: Graph
    data: Sequence[Recording]
    made: Made
    score: Score

    def to_json(self) -> dict[str, Any]:
        outputs = [self.graph.tensors[t] for t in self.graph.outputs]
        return {
            "name": self.source.name,
            "on": self.on,
            "outputs": [{"name": t.name, "shape": list(t.shape), "type": t.dtype.value} for t in outputs],
            **self.score.to_json(),
            "cost": None if self.cost is None else self.cost.to_json(),
        }


def run_on_data(
    source: Source,
    path: Path,
    options: Options,
    *,
    on: str = HOST,
    plan: GivenPlan | None = None,
    raw: bool = False,
    pixels: Pixels | None = None,
    labels_path: Path | None = None,
    against: Judged | None = None,
    tell: Tell = silently,
) -> Judged:
    """Runs a model on files, and judges it by `labels_path` and by what another model, `against`, made of the same
    data. `on`: `host`, an emulated core, or another runtime: `tflm`, `litert`, `onnxruntime`."""
    tell("planning", 0, 0)
    place = _Place.of(source, on, options, plan)
    # What is wrong with the data shows before anything is compiled.
    data = recordings(path, place.graph, raw, pixels)
    truth = None if labels_path is None else labels(labels_path, data)
    made = place.made(data, tell)
    score = Score(sum(len(one.runs) for one in data))
    if truth is not None:
        score = judged(place.graph, data, made, truth)
    if against is not None:
        try:
            score = replace(score, error=compared(place.graph, made, against.graph, against.made))
        except PlanError as error:
            raise PlanError(f"against {one_line(against.source.label, 400)}: {error}") from error
    return Judged(source, on, place.cost, place.graph, data, made, score)


@dataclass(frozen=True, slots=True)
class Expected:
    """Outputs beside those that were expected. `largest`: how far the furthest value is off. `failure`: None if none is
    off by more than the tolerance."""

    on: str
    runs: int
    largest: float
    tolerance: float
    failure: str | None

    @property
    def ok(self) -> bool:
        return self.failure is None

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def compared_with_file(found: Judged, expect: Path, tolerance: float = 0.0) -> Expected:
    """What a model has made of files, as real numbers, beside what is in another file."""
    made = named(found.graph, [run for runs in found.made for run in runs])
    wanted = expected_outputs(expect, {name: values.size for name, values in made.items()})
    largest, failure = 0.0, None
    for name, values in made.items():
        got, want = (v.astype(np.float64).ravel() for v in (values, wanted[name]))
        # Equal infinities are no way apart, and a NaN is no number that could be near.
        with np.errstate(invalid="ignore"):
            off = np.where(got == want, 0, np.abs(got - want))
        off = np.where(np.isnan(off), np.inf, off)
        at = int(off.argmax()) if off.size else 0
        largest = max(largest, float(off.max(initial=0)))
        if failure is None and off.size and off[at] > tolerance:
            index = ", ".join(map(str, np.unravel_index(at, values.shape)))
            failure = f"'{one_line(name)}' [{index}] is {got[at]:g}, expected {want[at]:g}"
    return Expected(found.on, found.score.runs, largest, tolerance, failure)


def _costs(source: Source, plan: GivenPlan | None, options: Options) -> Costs:
    chosen = in_chip(source.runnable, options).plan if plan is None else given_plan(source, plan, options)
    return Costs(chosen, source.runnable)


def selftest_for(costs: Costs, inputs: int | str | Path) -> SelfTest:
    """What a plan's C tests itself with: so many drawn inputs, or those in a file."""
    program, stack_bytes = costs.firmware, costs.on().ram.stack_bytes
    if isinstance(inputs, int):
        return selftest_of(program, inputs, stack_bytes)
    found = recordings(Path(inputs), program.graph)
    if len(found) != 1:
        raise PlanError(f"a self-test takes one file, and there are {len(found)}")
    return selftest_of(program, len(found[0].runs), stack_bytes, found[0].runs)


def board_report(
    source: Source, log: str, options: Options, *, plan: GivenPlan | None = None, inputs: str | Path | None = None
) -> BoardReport:
    """What a board has said in its self-test, the text of its serial port. `inputs`: the file of the test, if any."""
    costs = _costs(source, plan, options)
    test = selftest_for(costs, inputs) if inputs is not None else None
    return reported(costs, log, test)

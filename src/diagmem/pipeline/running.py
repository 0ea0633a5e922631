"""The Python API for one's own data: models that are run, and judged by what they make of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from diagmem.backends.c.selftest import SelfTest
from diagmem.costs import Cost, Costs
from diagmem.frontends.source import Source
from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph
from diagmem.pipeline import GivenPlan, Model, given_plan, in_chip, source_of
from diagmem.planning.options import Options
from diagmem.planning.planner import Tell, silently
from diagmem.verification.recordings import Pixels, Recording, expected_outputs, labels, recordings
from diagmem.verification.running import Given, Running, named
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


def run(model: Model, inputs: Given, *, raw: bool = False, plan: GivenPlan | None = None, **options: Any) -> Any:
    """What a model makes of its inputs, which are real numbers: an array, or a mapping from names; several runs in a
    row have an axis more. Returns the outputs by name. `raw`: stored values go in and come out.

    >>> import numpy as np
    >>> made = diagmem.run("zoo:kws_dscnn_int8", np.zeros((5, 49, 10, 1), np.float32))
    >>> [values.shape for values in made.values()]
    [(5, 12)]
    """
    with running(model, plan=plan, **options) as net:
        return net(inputs, raw=raw)


@dataclass(frozen=True)
class Judged:
    """A model on somebody's data: what it costs, what it made of each recording, and how good that is."""

    source: Source
    cost: Cost
    graph: Graph
    data: Sequence[Recording]
    made: Made
    score: Score

    def to_json(self) -> dict[str, Any]:
        return {"model": self.source.name, "cost": self.cost.to_json(), "score": self.score.to_json()}


def run_on_data(
    source: Source,
    path: Path,
    options: Options,
    *,
    plan: GivenPlan | None = None,
    raw: bool = False,
    pixels: Pixels | None = None,
    labels_path: Path | None = None,
    against: Source | None = None,
    tell: Tell = silently,
) -> Judged:
    """Runs a model on files, and judges it by `labels_path` and by another model, `against`, on the same data."""
    tell("planning and compiling", 0, 0)
    costs = _costs(source, plan, options)
    with ExitStack() as opened:
        net, data = _opened(costs, path, raw, pixels, opened)
        made = [_made(net, one, tell, number, len(data)) for number, one in enumerate(data)]
        score = Score(sum(len(one.runs) for one in data))
        if labels_path is not None:
            score = judged(net.graph, data, made, labels(labels_path, data))
        if against is not None:
            if raw:
                raise PlanError("stored values mean something else to another model: --against takes real numbers")
            other, its_data = _opened(_costs(against, None, Options()), path, raw, pixels, opened)
            wanted = [_made(other, one, tell, number, len(data)) for number, one in enumerate(its_data)]
            try:
                score = replace(score, against=compared(net.graph, made, other.graph, wanted))
            except PlanError as error:
                raise PlanError(f"against {one_line(against.label, 400)}: {error}") from error
    return Judged(source, costs.on(), net.graph, data, made, score)


@dataclass(frozen=True, slots=True)
class Expected:
    """Outputs beside those that were expected. `largest`: how far the furthest value is off. `failure`: None if none is
    off by more than the tolerance."""

    runs: int
    largest: float
    tolerance: float
    failure: str | None

    @property
    def ok(self) -> bool:
        return self.failure is None

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def compared_with_file(
    source: Source,
    path: Path,
    expect: Path,
    options: Options,
    tolerance: float = 0.0,
    *,
    plan: GivenPlan | None = None,
    tell: Tell = silently,
) -> Expected:
    """Runs a model on files, and compares its outputs, as real numbers, with those in another file."""
    found = run_on_data(source, path, options, plan=plan, tell=tell)
    made = named(found.graph, [run for runs in found.made for run in runs])
    wanted = expected_outputs(expect, {name: values.size for name, values in made.items()})
    largest, failure = 0.0, None
    for name, values in made.items():
        off = np.abs(values.astype(np.float64).ravel() - wanted[name].astype(np.float64).ravel())
        # A NaN is no number that could be near.
        off = np.where(np.isnan(off), np.inf, off)
        at = int(off.argmax()) if off.size else 0
        largest = max(largest, float(off.max(initial=0)))
        if failure is None and off.size and off[at] > tolerance:
            index = ", ".join(map(str, np.unravel_index(at, values.shape)))
            failure = f"'{one_line(name)}' [{index}] is {values.ravel()[at]:g}, expected {wanted[name].ravel()[at]:g}"
    return Expected(found.score.count, largest, tolerance, failure)


def _costs(source: Source, plan: GivenPlan | None, options: Options) -> Costs:
    chosen = in_chip(source.runnable, options).plan if plan is None else given_plan(source, plan, options)
    return Costs(chosen, source.runnable)


def _opened(
    costs: Costs, path: Path, raw: bool, pixels: Pixels | None, opened: ExitStack
) -> tuple[Running, list[Recording]]:
    """The data is read first: what is wrong with it shows before anything is compiled."""
    program = costs.firmware
    data = recordings(path, program.graph, raw, pixels)
    return opened.enter_context(Running(program)), data


def _made(net: Running, one: Recording, tell: Tell, number: int, count: int) -> list[list[Any]]:
    tell(one.name, number, count)
    net.reset()
    return net.stored(one.runs)


def selftest_for(costs: Costs, inputs: int | str | Path) -> SelfTest:
    """What a plan's C tests itself with: so many drawn inputs, or those in a file."""
    program, stack_bytes = costs.firmware, costs.on().ram.stack_bytes
    if isinstance(inputs, int):
        return selftest_of(program, inputs, stack_bytes)
    found = recordings(Path(inputs), program.graph)
    if len(found) != 1:
        raise PlanError(f"a self-test takes one file, and there are {len(found)}")
    return selftest_of(program, len(found[0].runs), stack_bytes, found[0].runs)


def read_board(model: Model, log: str, *, inputs: str | Path | None = None, **options: Any) -> BoardReport:
    """What a board has said in its self-test, beside what it should have: `log` is the text of its serial port.
    `inputs`: the file that the test was made with, if it was. The options are those that the C was emitted with."""
    return board_report(source_of(model), log, Options.of(options), inputs=inputs)


def board_report(
    source: Source, log: str, options: Options, *, plan: GivenPlan | None = None, inputs: str | Path | None = None
) -> BoardReport:
    """As `read_board`."""
    costs = _costs(source, plan, options)
    test = selftest_for(costs, inputs) if inputs is not None else None
    return reported(costs, log, test)

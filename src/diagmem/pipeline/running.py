"""The Python API for one's own data: models that are run, and judged by what they make of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diagmem.costs import Cost, Costs
from diagmem.frontends.source import Source
from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph
from diagmem.pipeline import GivenPlan, Model, given_plan, in_chip, source_of
from diagmem.planning.options import Options
from diagmem.planning.planner import Tell, silently
from diagmem.verification.recordings import Pixels, Recording, labels, recordings
from diagmem.verification.running import Given, Running
from diagmem.verification.scores import Made, Score, compared, judged


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

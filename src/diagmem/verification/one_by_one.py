"""Models that are wired, run one after another, each by itself: what their one graph must compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.model_chain import Wired, order_of
from diagmem.model.graph import Graph
from diagmem.verification import reference
from diagmem.verification.equality import differing
from diagmem.verification.inputs import restarts
from diagmem.verification.oracles import Opinion, second_opinion
from diagmem.verification.stream import Inputs

Array = npt.NDArray[Any]
Runs = list[list[Array]]
"""For each run, the values of some tensors."""

ONE_BY_ONE = "the models one by one"


def opinion_of_parts(source: Wired, graph: Graph, inputs: Inputs) -> Opinion:
    """Whether the graph gives what its models give, each of them run with what those before it have given. `graph`:
    that of all, with the inputs. Other runtimes that are installed are asked about each model."""
    made: dict[str, Runs] = {}
    given = _own_inputs(source, inputs)
    deviations: list[str] = []
    for name in order_of(list(source.parts), source.wires):
        part = source.parts[name]
        for wire in (wire for wire in source.wires if wire.reader == name):
            shape = part.runnable.tensors[part.runnable.inputs[wire.input]].shape
            for run, outputs in enumerate(made[wire.maker]):
                given[name][run][wire.input] = outputs[wire.output].reshape(shape)
        opinion = second_opinion(part, part.runnable, given[name]) if part.has_file else None
        if opinion is not None and opinion.disagreement is not None:
            return Opinion(opinion.oracle, f"model '{name}': {opinion.disagreement}")
        deviations += [] if opinion is None else [f"model '{name}': {opinion.oracle}: {d}" for d in opinion.deviations]
        made[name] = _outputs(part.runnable, given[name])
    return Opinion(ONE_BY_ONE, _difference(source, graph, inputs, made), tuple(deviations), is_exact=True)


def _own_inputs(source: Wired, inputs: Inputs) -> dict[str, Runs]:
    """For each model, its inputs as far as the caller gives them; where another model does there is nothing yet."""
    wired = {(wire.reader, wire.input) for wire in source.wires}
    found: dict[str, Runs] = {name: [] for name in source.parts}
    for run in inputs:
        left = iter(run)
        for name, part in source.parts.items():
            count = len(part.runnable.inputs)
            found[name].append([np.empty(0) if (name, n) in wired else next(left) for n in range(count)])
    return found


def _outputs(graph: Graph, inputs: Inputs) -> Runs:
    runs = reference.runs(graph, inputs, restarts(graph, len(inputs)))
    return [[values[t] for t in graph.outputs] for values in runs]


def _difference(source: Wired, graph: Graph, inputs: Inputs, made: dict[str, Runs]) -> str | None:
    """Between the outputs of the graph, and those of its models that are not wired."""
    wired = {(wire.maker, wire.output) for wire in source.wires}
    left = [
        (name, n) for name, p in source.parts.items() for n in range(len(p.runnable.outputs)) if (name, n) not in wired
    ]
    for run, ours in enumerate(_outputs(graph, inputs)):
        for number, (name, output) in enumerate(left):
            if differing(_flat(ours[number]), _flat(made[name][run][output])).any():
                return f"input {run}: output {number} is not what '{name}' gives"
    return None


def _flat(values: Sequence[Any] | Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1)

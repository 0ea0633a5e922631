"""Models that are wired, run one by one: what the graph of all of them must give as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from diagmem.frontends.model_chain import Wired, order_of
from diagmem.model.graph import Graph
from diagmem.ops.kind import Array
from diagmem.verification import reference
from diagmem.verification.harness import Inputs
from diagmem.verification.oracles import Opinion, second_opinion
from diagmem.verification.reference import differing, restarts

Runs = list[list[Array]]
"""For each run, the values of some tensors."""

ONE_BY_ONE = "the models one by one"


def opinion_of_parts(source: Wired, graph: Graph, inputs: Inputs) -> Opinion:
    """Whether the graph gives what its models give, each of them run with what those before it have given. `graph`:
    that of all, with the inputs. Other runtimes that are installed are asked about each model."""
    made: dict[str, Runs] = {}
    given = _own_inputs(source, inputs)
    found = Opinion(ONE_BY_ONE, is_exact=True)
    for name in order_of(list(source.parts), source.wires):
        part = source.parts[name]
        for wire in (wire for wire in source.wires if wire.reader == name):
            shape = part.runnable.tensors[part.runnable.inputs[wire.input]].shape
            for run, outputs in enumerate(made[wire.maker]):
                given[name][run][wire.input] = outputs[wire.output].reshape(shape)
        single = _single_runs(given[name], source.times(name))
        opinion = second_opinion(part, part.runnable, single)
        if opinion.disagreement is not None:
            return Opinion(opinion.oracle, f"model '{name}': {opinion.disagreement}")
        found = replace(
            found,
            deviations=(*found.deviations, *(f"model '{name}': {opinion.oracle}: {d}" for d in opinion.deviations)),
            silent=(*found.silent, *(f"model '{name}': {why}" for why in opinion.silent)),
            unseen=(*found.unseen, *(f"model '{name}': {label}" for label in opinion.unseen)),
            ops=found.ops + opinion.ops,
        )
        made[name] = _outputs(part.runnable, single, source.times(name))
    return replace(found, disagreement=_parts_difference(source, graph, inputs, made))


def _own_inputs(source: Wired, inputs: Inputs) -> dict[str, Runs]:
    """For each model, its inputs as far as the caller gives them; where another model does there is nothing yet."""
    wired = {(wire.reader, wire.input) for wire in source.wires}
    found: dict[str, Runs] = {name: [] for name in source.parts}
    for run in inputs:
        left = iter(run)
        for name, part in source.parts.items():
            count = len(part.runnable.inputs) * source.times(name)
            found[name].append([np.empty(0) if (name, n) in wired else next(left) for n in range(count)])
    return found


def _single_runs(inputs: Inputs, times: int) -> Runs:
    """The inputs of a model that runs several times in each run of all, run by run."""
    return [[run[i] for i in part] for run in inputs for part in np.split(np.arange(len(run)), times)]


def _outputs(graph: Graph, inputs: Inputs, times: int = 1) -> Runs:
    """What a model gives in each run of all, in which it runs several times."""
    again = [times * run for run in restarts(graph, len(inputs) // times)]
    single = [[values[t] for t in graph.outputs] for values in reference.runs(graph, inputs, again)]
    return [
        [np.stack(found) for found in zip(*single[n : n + times], strict=True)] for n in range(0, len(single), times)
    ]


def _parts_difference(source: Wired, graph: Graph, inputs: Inputs, made: dict[str, Runs]) -> str | None:
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

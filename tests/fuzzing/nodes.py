"""One operation of any kind with something about it that no converter writes: operands, types, shapes, scales, options.
Each is refused in one line, or becomes C."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from diagmem.backends import c
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.model.graph import DType, Node, Quantisation, Tensor
from diagmem.ops import kinds
from diagmem.planning import planner
from diagmem.planning.options import Options
from diagmem.reports.inspection import inspect
from tests.fuzzing.attempts import attempted
from tests.ops.fitting import SeededDraw, fitted
from tests.ops.sampling import samples_of
from tests.tflite_files import graph_of

SCALES = (0.0, -1.0, float("inf"), float("nan"), 1e-30, 1e30, 3e38, 1e-45, 1.0)
ZERO_POINTS = (0, 1, -128, 127, 128, 255, -129, 2**15, 2**31, 2**40, -(2**63))
NUMBERS = (0, 1, -1, 2, 3, 4, 7, 16, 2**31 - 1, -(2**31), 2**40)


def faults(seeds: Sequence[int], count: Counter[str]) -> Iterator[str]:
    """What is wrong with how the operations of these seeds ended."""
    for seed in seeds:
        count["spoiled operations"] += 1
        chance = random.Random(seed)
        name = chance.choice(sorted(kinds()))
        node = spoiled_node(fitted(samples_of(name).sample(name, SeededDraw(seed)), seed), chance)
        ending = attempted(partial(_use, node, count))
        if ending.fault is not None:
            yield f"operation {seed}: {ending.fault}\n{node}"
        count["  operations refused in one line"] += ending.is_refused


def _use(node: Node, count: Counter[str]) -> None:
    graph = Source(graph_of(node)).runnable
    inspect(graph)
    for options in (Options(schedule="file"), Options(schedule="rows", allocator="greedy")):
        c.emit(Program.of(planner.planned(graph, options)), "model", "plain", None)
    count["  operations that became C"] += 1


def spoiled_node(node: Node, chance: random.Random) -> Node:
    for _ in range(chance.choice((1, 1, 2))):
        sides: list[list[Tensor | None]] = [list(node.inputs), list(node.outputs)]
        operands = [(side, p) for side in (0, 1) for p, t in enumerate(sides[side]) if t is not None]
        if not operands:
            return node
        side, position = chance.choice(operands)
        if chance.random() < 0.15:
            node = replace(node, op=replace(node.op, attributes=_spoiled_options(node.attributes, chance)))
            continue
        tensor = sides[side][position]
        assert tensor is not None
        way = chance.choice(("drop", "absent", "surplus", "tensor", "tensor", "tensor", "tensor"))
        if way == "drop":
            sides[side].pop(position)
        elif way == "surplus":
            sides[side].append(replace(tensor, index=50))
        elif way == "absent" and side == 0:
            sides[side][position] = None
        else:
            sides[side][position] = _spoiled_tensor(tensor, chance)
        node = replace(node, inputs=tuple(sides[0]), outputs=tuple(t for t in sides[1] if t is not None))
    return node


def _spoiled_tensor(tensor: Tensor, chance: random.Random) -> Tensor:
    found = tensor.quantisation or Quantisation((0.5,), (0,))
    dtype = chance.choice(list(DType))
    size = chance.choice(tensor.shape or (2,))
    shape = (*tensor.shape[:-1], chance.choice((1, 2, 7, 9)))
    ways: tuple[Callable[[], Tensor], ...] = (
        lambda: replace(tensor, quantisation=replace(found, scales=(chance.choice(SCALES),), zero_points=(0,))),
        lambda: replace(tensor, quantisation=Quantisation((0.5,), (chance.choice(ZERO_POINTS),))),
        lambda: replace(tensor, quantisation=Quantisation((0.5,) * size, (0,) * size, chance.randrange(4))),
        lambda: replace(tensor, quantisation=None),
        lambda: replace(tensor, dtype=dtype, data=None),
        lambda: replace(tensor, data=None),
        lambda: replace(tensor, is_constant=not tensor.is_constant),
        lambda: replace(tensor, shape=shape, data=None if tensor.data is None else np.resize(tensor.data, shape)),
    )
    return chance.choice(ways)()


def _spoiled_options(attributes: Any, chance: random.Random) -> Any:
    if not is_dataclass(attributes) or isinstance(attributes, type) or not fields(attributes):
        return attributes
    name = chance.choice(fields(attributes)).name
    value = getattr(attributes, name)
    if isinstance(value, bool):
        return replace(attributes, **{name: not value})
    if isinstance(value, int):
        return replace(attributes, **{name: chance.choice(NUMBERS)})
    return replace(attributes, **{name: chance.choice(SCALES)}) if isinstance(value, float) else attributes

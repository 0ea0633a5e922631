"""Random models and plans, and the same spoiled: what `tools/fuzz` tries by the thousand, and tests by the handful.

Every way is a function of a seed that returns what went wrong, or nothing. Anything but a result or a one-line
DiagmemError is wrong.
"""

from __future__ import annotations

import copy
import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from diagmem.backends import c
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.model.errors import DiagmemError
from diagmem.model.graph import ABSENT, DType, Graph, Node, Quantisation, Tensor
from diagmem.ops import kinds
from diagmem.ops.fitting import fitted
from diagmem.ops.sampling import SeededDraw
from diagmem.planning import plan_json, planner
from diagmem.planning.checked import findings_of
from diagmem.planning.inspection import inspect
from diagmem.planning.options import Options
from diagmem.planning.plan import Plan
from diagmem.verification.host import run_on_host
from diagmem.verification.inputs import sample_inputs
from tests.frontends.tflite.test_hostile import corrupted
from tests.ops.single_op import to_tflite
from tests.row_networks import has_image_input, image_net, line_net, side_by_side

SCALES = (0.0, -1.0, float("inf"), float("nan"), 1e-30, 1e30, 3e38, 1e-45, 1.0)
ZERO_POINTS = (0, 1, -128, 127, 128, 255, -129, 2**15, 2**31, 2**40, -(2**63))
NUMBERS = (0, 1, -1, 2, 3, 4, 7, 16, 2**31 - 1, -(2**31), 2**40)

WAYS = (
    Options(remove=()),
    Options(remove=(), overlap=False),
    Options(remove=(), schedule="rows"),
    Options(remove=(), schedule="rows", recompute=2.0),
)
"""How plans are made that are joined to one program, for which every tensor has a place of its own."""

OTHER_WAYS = (Options(), Options(schedule="rows"))
STREAMED = (Options(schedule="rows", input_rows=True), Options(schedule="rows", input_rows=True, recompute=2.0))


def attempt(doing: Callable[[], object]) -> str | None:
    """What is wrong with how it ended; None for a result, or a refusal in one line."""
    try:
        with np.errstate(all="ignore"):
            doing()
    except DiagmemError as refusal:
        return f"a refusal of several lines: {refusal}" if "\n" in str(refusal) else None
    except Exception:
        return traceback.format_exc(limit=-3)
    return None


def random_net(seed: int) -> Graph:
    return image_net(seed) if seed % 3 else line_net(seed)


def graph_fault(seeds: Sequence[int]) -> str | None:
    """Random networks, planned in every way; the planner has every plan replayed, and raises if it is not safe. Those
    that can be joined become one program, which is built with sanitizers and compared with the references; the others
    are emitted."""
    programs = []
    for seed in seeds:
        graph = random_net(seed)
        programs += [Program.of(planner.planned(graph, options)) for options in WAYS]
        streamed = STREAMED if has_image_input(graph) and len(graph.inputs) == 1 else ()
        for options in (*OTHER_WAYS, *streamed):
            c.emit(Program.of(planner.planned(graph, options)), "model", "plain", None)
    together = side_by_side(programs)
    return run_on_host(together, sample_inputs(together.graph, 2, seeds[0])).failure


def file_fault(seed: int) -> str | None:
    """The file of a random operation with bytes changed, planned and emitted if it is still one."""
    name = random.Random(seed).choice(sorted(kinds()))
    data = to_tflite(fitted(kinds()[name].sample(name, SeededDraw(seed)), seed))
    ((_, changed),) = corrupted(data, 1, seed)

    def use() -> None:
        graph = Source(changed).runnable
        inspect(graph)
        c.emit(Program.of(planner.planned(graph, Options())), "model", "plain", None)

    return attempt(use)


def node_fault(seed: int) -> str | None:
    """One operation with something about it that no converter would write."""
    chance = random.Random(seed)
    name = chance.choice(sorted(kinds()))
    node = spoiled_node(fitted(kinds()[name].sample(name, SeededDraw(seed)), seed), chance)

    def use() -> None:
        graph = Source(graph_of(node)).runnable
        inspect(graph)
        for options in (Options(), Options(schedule="rows")):
            c.emit(Program.of(planner.planned(graph, options)), "model", "plain", None)

    found = attempt(use)
    return found and f"{node}\n{found}"


def graph_of(node: Node) -> Graph:
    """The node as a whole model."""
    tensors: list[Tensor] = []

    def number(tensor: Tensor | None) -> int:
        if tensor is None:
            return ABSENT
        tensors.append(replace(tensor, index=len(tensors)))
        return len(tensors) - 1

    ins = tuple(number(t) for t in node.inputs)
    outs = tuple(number(replace(t, is_constant=False, data=None)) for t in node.outputs)
    given = tuple(i for i in ins if i != ABSENT and not tensors[i].is_constant)
    return Graph("model", tuple(tensors), (replace(node.op, inputs=ins, outputs=outs),), given, outs)


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


def tampered(value: Any, chance: random.Random) -> Any:
    """A plan's JSON with a place moved, a few of its numbers changed, or entries left out, doubled or exchanged."""
    changed = copy.deepcopy(value)
    if chance.random() < 0.6:
        one, other = (chance.choice(changed["tensors"]) for _ in range(2))
        one["offset"] = chance.choice(
            (other["offset"], one["offset"] - 1, one["offset"] + 1, max(0, one["offset"] - 8))
        )
        return changed
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = changed
        while isinstance(at, dict | list) and at:
            key: Any = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
            inner = at[key]
            if isinstance(inner, dict | list) and inner and chance.random() < 0.9:
                at = inner
                continue
            if isinstance(inner, int) and not isinstance(inner, bool):
                at[key] = chance.choice((inner + 1, inner - 1, inner + 4, inner - 4, 0, *NUMBERS))
            elif isinstance(at, list):
                at[key] = at[chance.randrange(len(at))]
            elif chance.random() < 0.3:
                del at[key]
            break
    return changed


MOST_ARENA_BYTES = 1 << 16
"""More than any of these networks needs."""


@cache
def _sound_plan(net: int, way: int) -> tuple[Graph, dict[str, Any]]:
    """A network, and a plan of it that nobody has touched."""
    graph = random_net(net)
    return graph, plan_json.to_json(planner.planned(graph, WAYS[way]))


def tampered_plans(seeds: Sequence[int]) -> tuple[int, int, int, str | None]:
    """How many tampered plans are refused as plans, how many by the validator, how many pass; and what is wrong with
    those: they are built with sanitizers and run."""
    unread = unsafe = 0
    passed: list[Program] = []
    for seed in seeds:
        graph, given = _sound_plan(seed % 11, 2 * (seed % 2))
        changed = tampered(given, random.Random(seed))
        if isinstance(changed.get("arena_bytes"), int):
            # An arena of gigabytes does no harm, but many of them cannot be run side by side.
            changed["arena_bytes"] = min(changed["arena_bytes"], MOST_ARENA_BYTES)
        wrong, plan = _read(changed, graph)
        if wrong is not None:
            return unread, unsafe, len(passed), f"seed {seed}: {wrong}"
        if plan is None:
            unread += 1
        elif findings_of(plan):
            unsafe += 1
        else:
            passed.append(Program.running(plan, graph))
    if not passed:
        return unread, unsafe, 0, None
    together = side_by_side(passed)
    run = run_on_host(together, sample_inputs(together.graph, 2, seeds[0]))
    return unread, unsafe, len(passed), run.failure


def _read(value: Any, graph: Graph) -> tuple[str | None, Plan | None]:
    found: list[Plan] = []

    def read() -> None:
        plan = plan_json.from_json(value, graph)
        findings_of(plan)
        if not findings_of(plan):
            Program.running(plan, graph)
        found.append(plan)

    wrong = attempt(read)
    return wrong, found[0] if found else None

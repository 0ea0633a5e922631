"""Plans as JSON, tampered with: places moved, numbers changed, values of other types, entries left out or doubled. Each
is refused as a plan, or by the validator, or is harmless: it is built, run, and computes what it should."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

from diagmem.backends import json as plan_json
from diagmem.backends.c.program import Program
from diagmem.planning import planner
from diagmem.planning.plan import findings_of
from tests.attack_strings import ATTACKS
from tests.fuzzing import batches
from tests.fuzzing.attempts import attempted
from tests.fuzzing.graphs import ways
from tests.fuzzing.growth import Case, grown

NETS = 400
"""Networks whose plans are tampered with."""

MOST_ARENA_BYTES = 1 << 16
"""More than any of these networks needs. An arena of gigabytes does no harm, but cannot be run."""

SANITIZED_SHARE = 8

NUMBERS = (0, 1, -1, 2, 3, 4, 7, 16, 2**31 - 1, -(2**31), 2**40, 2**63, 10**400)
OTHERS: tuple[Any, ...] = (None, True, 1.5, 1e308, "", "0", [], {}, [[]], {"a": 1}, *ATTACKS)


def faults(seeds: Sequence[int], count: Counter[str]) -> Iterator[str]:
    """What is wrong with how the plans of these seeds ended."""
    jobs: list[batches.Job] = []
    for seed in seeds:
        count["tampered plans"] += 1
        ending = attempted(partial(_job, seed, count))
        if ending.fault is not None:
            yield f"plan {seed}: {ending.fault}"
        count["  plans refused as plans"] += ending.is_refused
        jobs += [] if ending.result is None else [ending.result]
    count["  plans built, run and compared"] += len(jobs)
    is_sanitized = seeds[0] // len(seeds) % SANITIZED_SHARE == SANITIZED_SHARE - 1
    yield from batches.faults(jobs, batches.SANITIZED if is_sanitized else batches.compiler())


def _job(seed: int, count: Counter[str]) -> batches.Job | None:
    chance = random.Random(f"plan {seed}")
    case, text = _sound_plan(chance.randrange(NETS))
    changed = tampered(json.loads(text), chance)
    if isinstance(changed.get("arena_bytes"), int):
        changed["arena_bytes"] = min(changed["arena_bytes"], MOST_ARENA_BYTES)
    plan = plan_json.from_text(json.dumps(changed), case.graph)
    if findings_of(plan):
        count["  plans refused by the validator"] += 1
        return None
    if not plan.options.library.is_own or plan.options.external_io:
        count["  plans that are harmless, for others' kernels"] += 1
        return None
    return batches.Job.of(seed, Program.running(plan, case.graph), case.inputs, "plan")


@lru_cache(NETS)
def _sound_plan(number: int) -> tuple[Case, str]:
    """A network, and a plan of it that nobody has touched."""
    case = grown(number)
    return case, json.dumps(plan_json.to_json(planner.planned(case.graph, ways(number, case.graph))))


def tampered(value: Any, chance: random.Random) -> Any:
    """A plan's JSON with a place moved, or a few of its values changed."""
    changed = copy.deepcopy(value)
    if chance.random() < 0.4 and changed["tensors"]:
        _move(chance.choice(changed["tensors"]), chance.choice(changed["tensors"]), chance)
        return changed
    return tampered_value(changed, chance)


def tampered_value(value: Any, chance: random.Random) -> Any:
    """Any JSON with a few of its values changed."""
    changed = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2, 3))):
        _change_one(changed, chance)
    return changed


def _move(one: Any, other: Any, chance: random.Random) -> None:
    places = (other["offset"], one["offset"] - 1, one["offset"] + 1, one["offset"] + 4, max(0, one["offset"] - 8))
    one["offset"] = chance.choice(places)


def _change_one(value: Any, chance: random.Random) -> None:
    """Goes down from the root, and changes what it comes to."""
    at = value
    while isinstance(at, dict | list) and at:
        key: Any = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
        inner = at[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.9:
            at = inner
            continue
        way = chance.choice(("number", "number", "other", "delete", "double"))
        if way == "number" and isinstance(inner, int) and not isinstance(inner, bool):
            at[key] = chance.choice((inner + 1, inner - 1, inner + 4, inner - 4, *NUMBERS))
        elif way == "delete":
            del at[key]
        elif way == "double" and isinstance(at, list):
            at.insert(key, at[chance.randrange(len(at))])
        else:
            at[key] = chance.choice((*NUMBERS, *OTHERS))
        return

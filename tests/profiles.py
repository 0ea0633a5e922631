"""How hard tests look: at everything, or at the quick share of it that `make test` runs.

A quick run draws fewer examples and seeds, leaves out tests marked `deep`, and of a test that is run for every
combination of several parameters takes as few combinations as have every value of each. So no operation kind, core or
mechanism is left out, only how they combine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import settings

EVERYTHING, QUICK = "everything", "quick"
FEWEST = 5
"""Examples that a quick run tries at least, where the full one tries as many."""


def register(**others: Any) -> None:
    """Makes both profiles known, and loads that of everything."""
    common = settings(deadline=None, derandomize=True, print_blob=False, **others)
    settings.register_profile(EVERYTHING, common, max_examples=100)
    settings.register_profile(QUICK, common, max_examples=12)
    settings.load_profile(EVERYTHING)


def examples(count: int, **others: Any) -> settings:
    """Settings of a test that tries so many examples in a full run, and its share of them in a quick one."""
    assert settings.default is not None
    return settings(max_examples=scaled(count, settings.default.max_examples), **others)


def some(count: int) -> int:
    """The same for what a test draws itself."""
    return examples(count).max_examples


def share(items: Sequence[Any], number: int) -> Sequence[Any]:
    """Of what a test goes through: all, and in a quick run its share. Cases with numbers in a row share all of it."""
    every = len(items) // some(len(items)) if items else 1
    return items[number % every :: every]


def scaled(count: int, percent: int) -> int:
    return max(min(count, FEWEST), count * percent // 100)


def quick(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests of a quick run, in the order that they have."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in (item for item in items if item.get_closest_marker("deep") is None):
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = {item for those in cases.values() for item in covering(those)}
    yield from (item for item in items if item in chosen)


def covering(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """As few cases of one test as have every value of each of its parameters: always the one with most new ones."""
    found = {case: set(values(case)) for case in cases}
    wanted, chosen = {value for case in cases for value in found[case]}, set[pytest.Item]()
    while wanted:
        best = max(cases, key=lambda case: len(found[case] & wanted))
        wanted -= found[best]
        chosen.add(best)
    return [case for case in cases if case in chosen or not found[case]]


def values(case: pytest.Item) -> Iterator[tuple[str, ...]]:
    """What tells a case from others: of each `parametrize` its names with their values, and each other parameter."""
    spec = getattr(case, "callspec", None)
    params = {} if spec is None else {name: f"{name} {_told(name, value)}" for name, value in spec.params.items()}
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        yield tuple(params.pop(name.strip()) for name in names)
    yield from ((value,) for value in params.values())


def _told(name: str, value: object) -> int:
    """Of a value among others; seeds are all alike but for a few."""
    return value % FEWEST if name == "seed" and isinstance(value, int) else id(value)

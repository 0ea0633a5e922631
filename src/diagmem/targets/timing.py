"""How many cycles instructions take on each core: timing.toml, where each entry has its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial

from diagmem.model.tables import table


@dataclass(frozen=True, slots=True)
class Entry:
    """As timing.toml describes it."""

    cycles: float = 1
    each: float = 0
    behind: float | None = None
    latency: float = 0
    accumulator: float | None = None
    unit: str = ""
    busy: float = 0
    pairs: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Of a core. `measured_as`: the table by which kernels were measured. `patterns`: kind -> its pattern, in the order
    in which they are tried. `error_percent`: None where there is nothing to judge it by."""

    core: str
    measured_as: str
    patterns: Mapping[str, re.Pattern[str]]
    entries: Mapping[str, Entry]
    taken: Mapping[str, float]
    width: int
    straddled: float
    misaligned: float
    error_percent: float | None
    judged_by: str

    def kind(self, text: str) -> str:
        """Of an instruction, as objdump writes it."""
        return next(kind for kind, pattern in self.patterns.items() if pattern.match(text))

    def entry(self, kind: str) -> Entry:
        return self.entries.get(kind, self.entries["alu"])

    def taken_cycles(self, kind: str) -> float:
        """What a jump of this kind adds."""
        return self.taken.get(kind, self.taken["other"])


_table = partial(table, __package__, "timing")


@cache
def timing_of(core: str) -> Timing | None:
    """Of the core that chips.toml calls so; None where no table is known."""
    tables = (name for name, table in _table().items() if name != "kinds" and core in (name, *table.get("also", ())))
    name = next(tables, None)
    if name is None:
        return None
    found = _table()[name]
    while "like" in found:
        base = {**_table()[found["like"]], "error_percent": None, "judged_by": ""}
        found = {**base, **{key: value for key, value in found.items() if key != "like"}} | (
            {"like": base["like"]} if "like" in base else {}
        )
    return Timing(
        core,
        found.get("measured_as", name),
        {kind: re.compile(pattern) for kind, pattern in _table()["kinds"][found["kinds"]].items()},
        {
            kind: Entry(**{"source": found.get("source", ""), **entry})
            for kind, entry in found.items()
            if isinstance(entry, dict) and kind != "taken"
        },
        found["taken"],
        found.get("width", 1),
        found.get("straddled", 0),
        found.get("misaligned", 0),
        found.get("error_percent"),
        found.get("judged_by", ""),
    )

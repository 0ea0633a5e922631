"""Files of random graphs with something about them that no converter writes: a field of a table that is missing, or
holds another number or another table; lists that are too short, too long, or point elsewhere; data cut off; and bytes
changed anywhere. Each is refused in one line, or is a model that still computes what numpy does."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.backends import c
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.model.graph import Graph
from diagmem.planning import planner
from diagmem.planning.options import Options
from diagmem.reports.inspection import inspect
from diagmem.verification.reference import sample_inputs
from tests.frontends.tflite.test_hostile import corrupted
from tests.fuzzing import batches
from tests.fuzzing.attempts import attempted
from tests.fuzzing.growth import grown
from tests.tflite_files import GraphFile

WAYS = (
    Options(schedule="file", allocator="greedy"),
    Options(),
    Options(skip="all", overlap=False),
    Options(schedule="rows", allocator="greedy"),
    Options(kernels="diagmem-dsp", schedule="file"),
    Options(kernels="tflm-reference", schedule="file"),
)

MOST_RUN_BYTES = 1 << 16
"""A model that claims to be larger is not run: numpy would take its time."""

SANITIZED_SHARE = 8

_NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 127, 128, 255, -1, -2, 2**15, 2**31 - 1, -(2**31), 2**24)


class _SpoiledFile(GraphFile):
    """Writes a graph, but for a few of the things that it writes."""

    def __init__(self, graph: Graph, chance: random.Random, spoiled: frozenset[int]) -> None:
        super().__init__(graph)
        self.chance, self.spoiled = chance, spoiled
        self.written = 0
        self.offsets_so_far: list[int] = []

    def _is_spoiled(self) -> bool:
        self.written += 1
        return self.written - 1 in self.spoiled

    def table(self, name: str, /, **fields: Any) -> int:
        if fields and self._is_spoiled():
            key = self.chance.choice(sorted(fields))
            value = fields.pop(key)
            if self.chance.random() < 0.8:
                fields[key] = self._other(value)
        self.offsets_so_far.append(super().table(name, **fields))
        return self.offsets_so_far[-1]

    def ints(self, values: Sequence[int]) -> int:
        return super().ints(self._other_list(list(values)) if self._is_spoiled() else values)

    def offsets(self, tables: Sequence[int]) -> int:
        if self._is_spoiled() and tables:
            changed = list(tables)
            way = self.chance.choice(("drop", "double", "swap"))
            at = self.chance.randrange(len(changed))
            if way == "drop":
                changed.pop(at)
            elif way == "double":
                changed.insert(at, changed[self.chance.randrange(len(changed))])
            else:
                changed[at] = changed[self.chance.randrange(len(changed))]
            tables = changed
        return super().offsets(tables)

    def data(self, values: npt.NDArray[Any]) -> int:
        if self._is_spoiled():
            raw = np.frombuffer(values.tobytes(), np.uint8)
            way = self.chance.choice(("cut", "longer", "extreme", "none"))
            longer = np.concatenate([raw, raw[:5], np.zeros(3, np.uint8)])
            noise = np.frombuffer(self.chance.randbytes(len(raw)), np.uint8)
            values = {"cut": raw[: len(raw) // 2], "longer": longer, "extreme": noise, "none": raw[:0]}[way]
        return super().data(values)

    def _other(self, value: Any) -> Any:
        if isinstance(value, float):
            return self.chance.choice((0.0, -1.0, 1e38, float("inf"), float("nan"), 1e-45))
        if self.chance.random() < 0.3 and self.offsets_so_far:
            return self.chance.choice(self.offsets_so_far)
        return self.chance.choice(_NUMBERS)

    def _other_list(self, values: list[int]) -> list[int]:
        way = self.chance.choice(("change", "change", "change", "drop", "append", "empty", "reverse"))
        at = self.chance.randrange(len(values)) if values else 0
        if way == "empty" or not values:
            return []
        if way == "reverse":
            return values[::-1]
        if way == "drop":
            return values[:at] + values[at + 1 :]
        number = self.chance.choice((*_NUMBERS, values[at] + 1, values[at] - 1))
        return [*values, number] if way == "append" else [*values[:at], number, *values[at + 1 :]]


def spoiled_file(seed: int) -> bytes:
    """The file of that seed."""
    chance = random.Random(f"file {seed}")
    graph = grown(chance.randrange(1 << 20)).graph
    if chance.random() < 0.25:
        ((_, content),) = corrupted(GraphFile(graph).content(), 1, seed)
        return content
    count = _SpoiledFile(graph, chance, frozenset())
    count.content()
    while True:
        places = frozenset(chance.randrange(count.written) for _ in range(chance.choice((1, 1, 1, 2, 3))))
        try:
            return _SpoiledFile(graph, chance, places).content()
        except (TypeError, ValueError, AssertionError, OverflowError, RuntimeError, struct.error):
            continue  # The format has no room for such a number.


def faults(seeds: Sequence[int], count: Counter[str]) -> Iterator[str]:
    """What is wrong with how the files of these seeds ended."""
    jobs: list[batches.Job] = []
    for seed in seeds:
        count["spoiled files"] += 1
        ending = attempted(partial(_job, seed, count))
        if ending.fault is not None:
            yield f"file {seed}: {ending.fault}"
        count["  files refused in one line"] += ending.is_refused
        jobs += [] if ending.result is None else [ending.result]
    count["  files built, run and compared"] += len(jobs)
    is_sanitized = seeds[0] // len(seeds) % SANITIZED_SHARE == SANITIZED_SHARE - 1
    yield from batches.faults(jobs, batches.SANITIZED if is_sanitized else batches.compiler())


def _job(seed: int, count: Counter[str]) -> batches.Job | None:
    return job_of(spoiled_file(seed), seed, count, "file")


def job_of(content: bytes, seed: int, count: Counter[str], what: str) -> batches.Job | None:
    """A file planned in one of the ways; its program, if there is one that can be run. `what`: it is called that."""
    graph = Source(content).runnable
    inspect(graph).to_json()
    options = WAYS[seed % len(WAYS)]
    made = planner.planned(graph, options)
    count[f"  {what}s planned"] += 1
    if not options.library.is_own:
        return None
    program = Program.of(made)
    if sum(t.size_bytes for t in graph.tensors) > MOST_RUN_BYTES:
        c.emit(program, "model", "plain", None)
        return None
    return batches.Job.of(seed, program, sample_inputs(graph, 2, seed), what)

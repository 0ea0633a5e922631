"""Compiled loops and plain Python: the same answers to the last byte."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import diagmem
from diagmem.planning.place.fit import IS_COMPILED

ROOT, PACKAGE = Path(__file__).parents[2], Path(diagmem.__file__).parent

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="needs compiled loops: a C compiler when the package is built")

SEARCHES = """
from hypothesis import given, settings
from tests.planning.place.test_compaction import LITTLE, compacted
from tests.planning.problems import cut_rectangle, problems, sliding_rows
from diagmem.planning.place import greedy
from diagmem.planning.place.effort import HALVED_AFTER, Meter
from diagmem.planning.place.fit import IS_COMPILED
from diagmem.planning.place.local_search import COSTS, MinConflicts
from diagmem.planning.place.local_search import SqueakyWheel
from diagmem.planning.needs.problem import Buffer, Problem
import sys

print(IS_COMPILED, file=sys.stderr)


def compact(problem):
    found = compacted(problem)
    print(found.offsets, found.bound, found.meter.nodes)


# With alignments, and separations below zero.
settings(max_examples=40, derandomize=True, database=None, deadline=None)(given(problems(most=9))(compact))()
for seed in range(4):
    compact(cut_rectangle(seed, 24, height=40))
    compact(sliding_rows(seed, 40))
    problem = sliding_rows(seed, 40)
    limit = problem.arena_bytes(greedy(problem)) - problem.unit_bytes
    search, wheel = MinConflicts(problem, Meter(0)), SqueakyWheel.of(problem)
    for _ in COSTS:
        print(search.within(limit, range(40), greedy(problem), 500), search.moves, search.chance)
        print(wheel.within(limit, range(40), 50, 1000), wheel.fits, wheel.state.chance, wheel.core(limit))
# Nothing fits, and conflicts were raised so often that all weights were halved.
trio = Problem((Buffer("a", 4, 0, 2), Buffer("b", 4, 0, 2), Buffer("c", 3, 1, 2)), {})
search = MinConflicts(trio, Meter(0))
print(search.within(9, range(3), (0, 1, 2), 3 * HALVED_AFTER), search.chance)
"""

ROW_ORDERS = """
import itertools, sys
from diagmem.planning.place.fit import IS_COMPILED
from diagmem.planning.order.demand import Demand
from diagmem.planning.order.rows import Segment
from tests.planning.order.test_row_orders import has_image_input, image_net, rows_of_graph

print(IS_COMPILED, file=sys.stderr)
for seed in range(12):
    rows = rows_of_graph(image_net(seed))
    demand = Demand(rows, seed % 2 == 1 and has_image_input(rows.graph))
    for begin, end in itertools.combinations(range(len(rows.ops) + 1), 2):
        segment = Segment(rows, begin, end, demand.input_rows)
        print(demand.peak(segment), demand.best(segment))
"""

PLANS = """
import subprocess, sys
from diagmem.planning.place.fit import IS_COMPILED

print(IS_COMPILED, file=sys.stderr)
for arguments in ("kws_dscnn_int8 --schedule rows", "resnet8_int8 --schedule rows --input-rows --effort quick"):
    command = [sys.executable, "-m", "diagmem", "plan", *f"zoo:{arguments} --json -".split()]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without anything compiled."""
    place = tmp_path_factory.mktemp("plain")
    shutil.copytree(PACKAGE, place / "diagmem", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    return place


def printed(code: str, sources: Path, directory: Path) -> tuple[str, str]:
    """What a program prints with the package of these sources, and whether loops were compiled there."""
    environment = {**os.environ, "PYTHONPATH": f"{sources}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.split()[0]


@pytest.mark.parametrize(
    "code", [SEARCHES, pytest.param(ROW_ORDERS, marks=pytest.mark.deep), PLANS], ids=["searches", "row orders", "plans"]
)
def test_plain_python_finds_the_same(code: str, plain: Path, tmp_path: Path) -> None:
    """Offsets, bounds, work that was counted and random numbers; steps and peaks of all segments; plans as JSON."""
    compiled = printed(code, PACKAGE.parent, tmp_path)
    assert compiled[1] == "True"
    assert len(compiled[0]) > 1000
    assert printed(code, plain, tmp_path) == (compiled[0], "False")


def test_what_is_compiled_is_no_older_than_its_source() -> None:
    """A loop that was changed and not compiled again would run as it was."""
    for types in PACKAGE.rglob("*.pxd"):
        [compiled] = [*types.parent.glob(f"{types.stem}.*.so"), *types.parent.glob(f"{types.stem}.*.pyd")]
        changed = max(types.stat().st_mtime, types.with_suffix(".py").stat().st_mtime)
        assert compiled.stat().st_mtime >= changed, f"{types.stem}.py has changed: make setup"

"""Machine code: the same answers, made once."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="needs the extra 'fast'")

LOOPS = """
from typing import NamedTuple

LOOPS = ("twice", "summed")
FACTOR = 2


class Parts(NamedTuple):
    values: list[int]
    room: list[int]


def twice(value: int) -> int:
    return FACTOR * value


def summed(begin: int, given: list[int], parts: Parts) -> int:
    total = begin
    for index in range(len(given)):
        parts.room[index] = twice(given[index]) + parts.values[index]
        total += parts.room[index]
    return total
"""

TAKEN = """
from loops import Parts, summed, twice

LOOPS = ("twice", "summed")
OTHER = 1
"""

USE = """
import sys
import numpy as np
import LOOPS as loops
from diagmem.planning.machine_code import can_compile, native
given, values, room = np.arange(4), np.full(4, 10), np.zeros(4, dtype=np.int64)
assert can_compile()
print(native(loops, "summed")(5, given, loops.Parts(values, room)), *room, "numba" in sys.modules)
"""


def used(folder: Path, loops: str = "loops") -> str:
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{USE.replace('LOOPS', loops)}"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_machine_code_is_kept_beside_its_loops(tmp_path: Path) -> None:
    """The second process that needs it finds it, and does not load numba; when the loops change, it is made anew."""
    (tmp_path / "loops.py").write_text(LOOPS)
    assert used(tmp_path) == "57 10 12 14 16 True\n"
    assert used(tmp_path) == "57 10 12 14 16 False\n"
    assert len(list((tmp_path / "__pycache__").glob("loops.summed-*.o"))) == 1
    (tmp_path / "loops.py").write_text(LOOPS.replace("FACTOR = 2", "FACTOR = 30"))
    assert used(tmp_path) == "225 10 40 70 100 True\n"


def test_loops_of_another_module_see_what_is_beside_them(tmp_path: Path) -> None:
    """Numbers that only they know are compiled with them; and when these change, they are made anew."""
    (tmp_path / "taken.py").write_text(TAKEN)
    for factor, answer in ((2, "57 10 12 14 16 True\n"), (30, "225 10 40 70 100 True\n")):
        (tmp_path / "loops.py").write_text(LOOPS.replace("FACTOR = 2", f"FACTOR = {factor}"))
        assert used(tmp_path, "taken") == answer

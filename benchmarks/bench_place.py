"""The allocator alone, on tables of buffers: seconds to fit into a capacity, and the smallest arena found.

    python benchmarks/bench_place.py DIR      # with *.csv; MiniMalloc's are in its repository, benchmarks/challenging

A name such as A.1048576.csv gives the capacity; without one there is only the smallest arena. Processor time, one
thread, with compiled code (extra `fast`) that is already made.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from diagmem.planning.place.effort import THOROUGH
from diagmem.planning.place.fit import Placement
from diagmem.planning.place.table import Table, conflicts, parse_table, table_placement, table_problem


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    paths = sorted(Path(sys.argv[1]).glob("*.csv"))
    if paths:
        _placed(parse_table(paths[0].read_text()), None)
    headings = ("buffers", "load", "capacity", "fits", "seconds", "smallest", "bound", "seconds")
    print(f"{'set':<8}" + "".join(f"{heading:>12}" for heading in headings))
    for path in paths:
        table = parse_table(path.read_text())
        load = table_problem(table).problem.lower_bound_bytes
        words = path.stem.split(".")
        cells = [f"{len(table.rows)}", f"{load:,}"]
        if len(words) > 1 and words[1].isdecimal():
            found, seconds = _placed(table, int(words[1]))
            fits = "yes" if found.arena_bytes <= int(words[1]) else f"{found.arena_bytes:,}"
            cells += [f"{int(words[1]):,}", fits, f"{seconds:.2f}"]
        else:
            cells += ["-", "-", "-"]
        found, seconds = _placed(table, None)
        cells += [f"{found.arena_bytes:,}", f"{found.lower_bound_bytes:,}", f"{seconds:.2f}"]
        print(f"{words[0]:<8}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


def _placed(table: Table, capacity: int | None) -> tuple[Placement, float]:
    begin = time.process_time()
    offsets, found = table_placement(table, THOROUGH, capacity)
    seconds = time.process_time() - begin
    wrong = next(conflicts(table, offsets), None)
    if wrong is not None:
        sys.exit(f"not a placement: {wrong}")
    return found, seconds


if __name__ == "__main__":
    main()

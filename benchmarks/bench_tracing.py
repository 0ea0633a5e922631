"""Traced O_s beside the exact one, over many shapes of every kind with a C kernel; and what tracing a model costs."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from diagmem import pipeline
from diagmem.frontends.source import Source
from diagmem.model.errors import TraceError
from diagmem.model.graph import Node
from diagmem.tracing.analysis import trace_ops, trace_plan
from diagmem.tracing.model import apart, build_model, side_by_side

PLACES = ("x86", "cortex-m4")
BATCHES, NODES_OF_A_KIND = 4, 25
MODELS = ("kws_dscnn_int8", "resnet8_int8", "vww_96_int8", "mobilenet_v1_0.25_128_int8")


def random_nodes(count: int, batch: int) -> list[Node]:
    """As the contract test draws them."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.tracing.test_contract import drawn_nodes

    found: list[Node] = []

    @settings(
        max_examples=count,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @seed(batch)
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        found.extend(drawn_nodes(data, 1))

    collect()
    return found


def contract() -> bool:
    agrees = True
    print("traced == exact, pairs of input and output by kind")
    rows, wrong = Counter[str](), Counter[str]()
    for batch in range(BATCHES):
        nodes = random_nodes(NODES_OF_A_KIND, batch)
        for on in PLACES:
            with tempfile.TemporaryDirectory() as place:
                for row in trace_ops(build_model(side_by_side(nodes), on, Path(place)), nodes):
                    rows[row.kind] += 1
                    wrong[row.kind] += not row.agrees
    for kind in sorted(rows):
        print(f"  {kind:26}{rows[kind]:>7}  {f'{wrong[kind]} DIFFER' if wrong[kind] else 'all equal'}")
        agrees &= not wrong[kind]
    return agrees


def models_table() -> None:
    print(f"{'model':30}{'on':>12}{'pairs':>8}{'differ':>8}{'instructions':>14}{'events':>10}{'seconds':>9}")
    for name in MODELS:
        plan = pipeline.plan(Source(f"zoo:{name}").runnable, schedule="best").plan
        for on in PLACES:
            with tempfile.TemporaryDirectory() as place:
                program = build_model(apart(plan), on, Path(place))
                start = time.perf_counter()
                found = trace_plan(program, plan)
                seconds = time.perf_counter() - start
            counts = {id(row.counts): row.counts for row in found.rows}.values()
            instructions, events = sum(c.instructions for c in counts), sum(c.loads + c.stores for c in counts)
            differ = sum(not row.agrees for row in found.rows) + len(found.lost)
            print(f"{name:30}{on:>12}{len(found.rows):>8}{differ:>8}{instructions:>14}{events:>10}{seconds:>9.1f}")


def main() -> None:
    try:
        models_table()
        print()
        ok = contract()
    except TraceError as error:
        print(f"skipped: {error}")
        return
    sys.exit(0 if ok else "a trace differs from the closed form")


if __name__ == "__main__":
    main()

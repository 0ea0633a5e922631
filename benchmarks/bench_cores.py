"""Several cores in one arena: what they cost and gain, as the tables of docs/multicore.md.

Two cores are measured on two emulated Cortex-M33, phase by phase. For more, the critical path is computed from the same
phases and the measured instructions of each op on one core.

    python benchmarks/bench_cores.py [rows | streamed] [MODEL ...]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.costs import Costs
from diagmem.frontends.source import Source
from diagmem.model.schedule import PUSH, Step
from diagmem.planning.cores.multicore import most_held_bytes, running_steps, speedup, step_work
from diagmem.planning.plan import Plan
from diagmem.verification.cortex_m import CORES, run_on_cores
from diagmem.verification.profile import profiled
from diagmem.verification.reference import sample_inputs

MODELS = ("vww_96_int8", "kws_dscnn_int8", "resnet8_int8", "mobilenet_v1_0.25_128_int8", "autoencoder_int8")
WAYS: Mapping[str, Mapping[str, Any]] = {
    "rows": {"schedule": "rows"},
    "streamed": {"schedule": "rows", "input_rows": True},
}
ON = "cortex-m33x2"


def main(arguments: Sequence[str]) -> None:
    is_by_rows = bool(arguments) and arguments[0] in WAYS
    way = WAYS[arguments[0]] if is_by_rows else {"schedule": "best"}
    models = arguments[1:] if is_by_rows else arguments
    print("| model | arena | above one core's | barriers | deferred, on each stack | 2 cores | 3 cores | 4 cores |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for model in models or (MODELS[:-1] if is_by_rows else MODELS):
        print(f"| {' | '.join(_row(model, way))} |", flush=True)


def _row(model: str, way: Mapping[str, Any]) -> Iterator[str]:
    source = Source(f"zoo:{model}").runnable
    alone = pipeline.plan(source, **way)
    made = pipeline.plan(source, cores=2, **way)
    program = Program.of(made)
    run = run_on_cores(program, sample_inputs(program.graph, 1), CORES[ON])
    if run.failure is not None:
        raise SystemExit(f"{model}: {run.failure}")
    # A row takes as long whoever hands over the input.
    whole = pipeline.plan(source, **{**way, "input_rows": False})
    work = {op.node.op.index: op.instructions for op in profiled(Costs.of(whole), ON).ops}
    yield model
    yield str(made.arena_bytes)
    yield f"{made.arena_bytes - alone.arena_bytes:+}"
    yield str(run.barriers)
    yield str(most_held_bytes(made.plan.graph, made.plan.multicore) // 2)
    yield f"{run.speedup:.3f}"
    for cores in (3, 4):
        yield f"{_computed(pipeline.plan(source, cores=cores, **way).plan, work, cores):.2f}"


def _computed(plan: Plan, work: Mapping[int, int], cores: int) -> float:
    """Turns of an op take about the same."""
    steps = running_steps(plan)
    times = Counter(step.op for step in steps)
    each: dict[Step, float] = {
        step: step_work(plan.graph, step) if step.op == PUSH else work[step.op] / times[step.op] for step in {*steps}
    }
    assert plan.multicore is not None
    return speedup(plan.multicore, steps, each, cores)


if __name__ == "__main__":
    main(sys.argv[1:])

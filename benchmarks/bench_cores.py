"""Several cores in one arena: what they cost and gain, as the table of docs/multicore.md.

Two cores are measured on two emulated Cortex-M33, phase by phase. For more, the critical path is computed from the same
phases and the measured instructions of each op on one core.

    python benchmarks/bench_cores.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.planning.plan import Plan
from diagmem.planning.teamwork import BARRIER_INSTRUCTIONS, critical_path, most_held_bytes, running_ops
from diagmem.verification.cortex_m import CORES, run_on_team
from diagmem.verification.inputs import sample_inputs
from diagmem.verification.profile import profiled

MODELS = ("vww_96_int8", "kws_dscnn_int8", "resnet8_int8", "mobilenet_v1_0.25_128_int8", "autoencoder_int8")
ON = "cortex-m33x2"


def main(models: Sequence[str]) -> None:
    print("| model | arena | above one core's | barriers | held on each stack | 2 cores | 3 cores | 4 cores |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for model in models:
        print(f"| {' | '.join(_row(model))} |")


def _row(model: str) -> Iterator[str]:
    source = Source(f"zoo:{model}").runnable
    alone = pipeline.plan(source)
    made = pipeline.plan(source, cores=2)
    program = Program.of(made)
    run = run_on_team(program, sample_inputs(program.graph, 1), CORES[ON])
    if run.failure is not None:
        raise SystemExit(f"{model}: {run.failure}")
    work = {op.node.op.index: op.instructions for op in profiled(Program.of(alone), alone.plan, ON).ops}
    yield model
    yield str(made.arena_bytes)
    yield f"{made.arena_bytes - alone.arena_bytes:+}"
    yield str(run.barriers)
    yield str(most_held_bytes(made.plan.graph, made.plan.teamwork) // 2)
    yield f"{run.speedup:.3f}"
    for cores in (3, 4):
        yield f"{_computed(pipeline.plan(source, cores=cores).plan, work, cores):.2f}"


def _computed(plan: Plan, work: dict[int, int], cores: int) -> float:
    shared, ops = plan.teamwork, running_ops(plan)
    assert shared is not None
    path = float(BARRIER_INSTRUCTIONS)
    for op, waits in zip(ops, shared.barriers_after(ops), strict=True):
        sharing = shared.by_op.get(op)
        path += critical_path(sharing, work[op], cores) if sharing else work[op] + waits * BARRIER_INSTRUCTIONS
    return sum(work[op] for op in ops) / path


if __name__ == "__main__":
    main(sys.argv[1:] or MODELS)

"""Random graphs, planned in one of many ways each, checked, built in batches, and compared."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from diagmem.backends.c.program import Program
from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph, Tensor
from diagmem.ops.signature import check_signatures
from diagmem.planning import planner
from diagmem.planning.options import Options
from tests.fuzzing import batches
from tests.fuzzing.attempts import attempted
from tests.fuzzing.growth import grown
from tests.fuzzing.second_opinions import disagreements

ORDERS = ("best", "file", "file", "eager", "lazy", "bounded", "search")
PLACERS = ("best", "best", "heap", "greedy", "optimal")
OTHERS_KERNELS = ("tflm-reference", "cmsis-nn", "cmsis-nn-mve")
SANITIZED_SHARE = 40
COMPARED_SHARE = 20
"""One batch of so many is built with the sanitizers, and one is given to TensorFlow Lite Micro too."""


def ways(seed: int, graph: Graph) -> Options:
    """How the graph of a seed is planned: mostly whole, now and then row by row, streamed, with rows recomputed, for
    other kernels, without overlap."""
    chance = random.Random(f"way {seed}")
    skip = () if chance.random() < 0.7 else ("all",)
    align = chance.choice((None, None, None, 1, 4, 8, 16))
    kernels = chance.choice(("diagmem", "diagmem", "diagmem", "diagmem-dsp"))
    options = Options(
        kernels=kernels,
        align=align,
        keep_inputs=chance.random() < 0.1,
        overlap=chance.random() < 0.95,
        prefer=chance.choice(("speed", "ram")),
        skip=skip,
    )
    is_image = len(graph.inputs) == 1 and graph.tensors[graph.inputs[0]].rows > 1
    if any(t.rows > 1 for t in graph.tensors if not t.is_constant) and chance.random() < 0.3:
        streamed = is_image and not options.keep_inputs and chance.random() < 0.4
        again = chance.choice((1.0, 1.0, 1.5, 2.0, 3.0))
        placer = chance.choice(("greedy", "greedy", "greedy", "heap", "best"))
        return replace(options, schedule="rows", input_rows=streamed, recompute=again, allocator=placer)
    if chance.random() < 0.06:
        return replace(options, kernels=chance.choice(OTHERS_KERNELS), external_io=chance.random() < 0.3)
    return replace(options, schedule=chance.choice(ORDERS), allocator=chance.choice(PLACERS))


def faults(seeds: Sequence[int], count: Counter[str]) -> Iterator[str]:
    """What is wrong with the graphs of these seeds."""
    jobs: list[batches.Job] = []
    for seed in seeds:
        ending = attempted(partial(job, seed, count), refusals=())
        if ending.fault is not None:
            yield f"graph {seed}: {ending.fault}"
        jobs += [] if ending.result is None else [ending.result]
    batch = seeds[0] // len(seeds)
    is_sanitized = batch % SANITIZED_SHARE == SANITIZED_SHARE - 1
    count["graphs built, run and compared"] += len(jobs)
    count["  of these under the sanitizers"] += len(jobs) * is_sanitized
    yield from batches.faults(jobs, batches.SANITIZED if is_sanitized else batches.compiler())
    if batch % COMPARED_SHARE == 0:
        yield from disagreements([(seed, grown(seed)) for seed in seeds], count)


def job(seed: int, count: Counter[str]) -> batches.Job | None:
    """The program of a seed, if C can be written from it."""
    case = grown(seed)
    graph = check_signatures(case.graph)
    options = ways(seed, graph)
    made = planner.planned(graph, options)
    count["graphs planned, and replayed by the validator"] += 1
    count[f"  {_way(options)}"] += 1
    if not options.library.is_own or options.external_io or not graph.outputs:
        return None
    program = Program.of(made)
    if program.refused_ops or program.refused_tensors:
        count["  which have no C"] += 1
        return None
    try:
        return batches.Job.of(seed, program, case.inputs)
    except ModelError:
        # Numbers that C has no type for are refused when they are written down.
        count["  which have no C"] += 1
        return None


def _way(options: Options) -> str:
    if options.schedule != "rows":
        return "whole" if options.library.is_own else "for others' kernels"
    return "by rows" + ", streamed" * options.input_rows + ", recomputed" * (options.recompute > 1)


def described(seed: int) -> str:
    """The graph of a seed and how it is planned, for people."""
    graph = grown(seed).graph
    lines = [str(ways(seed, graph)), f"inputs {graph.inputs}, outputs {graph.outputs}"]
    for node in graph.nodes:
        inputs = ", ".join("absent" if t is None else _operand(t) for t in node.inputs)
        lines.append(f"{node.op.kind}({inputs}) -> {', '.join(map(_operand, node.outputs))}  {node.attributes}")
    return "\n".join(lines)


def _operand(tensor: Tensor) -> str:
    held = " constant" if tensor.is_constant else ""
    return f"t{tensor.index} {tensor.dtype.value}{list(tensor.shape)}{held}"

"""Where a model can be run to see that it computes the same bytes, and what each place has to say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from diagmem.backends.c.program import Program
from diagmem.backends.tflm import metadata, planned_file
from diagmem.backends.tflm.planned_file import PlannedFile
from diagmem.frontends.model_chain import Wired
from diagmem.frontends.source import Source
from diagmem.model.errors import PlanError, UnsafePlanError, one_line, shell_word
from diagmem.model.graph import DType, Graph
from diagmem.planning.plan import Plan
from diagmem.planning.planner import Planned
from diagmem.transforms.channel_ranges import ranges_of
from diagmem.verification.channels import range_faults
from diagmem.verification.cortex_m import CORES, run_on_core, run_on_cores
from diagmem.verification.harness import Inputs, Run
from diagmem.verification.host import run_on_host, run_on_threads
from diagmem.verification.inputs import sample_inputs
from diagmem.verification.oracles import RELATIVE_TOLERANCE, Opinion, opinion_of_parts, second_opinion
from diagmem.verification.tflm import Comparison, compare

HOST, TFLM = "host", "tflm"
PLACES = (HOST, *CORES, TFLM)

ON_THREADS = re.compile(rf"{HOST}:([2-9]|1[0-6])")
"""`host:3`: the host, with three threads for three cores."""


def check_place(place: str) -> None:
    if place not in PLACES and not ON_THREADS.fullmatch(place):
        raise PlanError(f"place '{one_line(place)}' is not known; known: {', '.join(PLACES)}")


def cores_of(place: str) -> int:
    """How many cores share the run."""
    found = ON_THREADS.fullmatch(place)
    return int(found[1]) if found else CORES[place].cores if place in CORES else 1


INTERPRETER_KERNELS = ("tflm-reference", "tflm")
"""A plan for these is right in TFLM's Python interpreter, which has reference kernels."""


@dataclass(frozen=True, slots=True)
class CVerdict:
    """What running the C code has shown. `compared_with`: who computed what the outputs should be. `deviations`: where
    one of them computes something else, as documented. `within`: how near numpy's outputs are to the other's, as a
    part of the largest; 0 where they are the same bit for bit."""

    run: Run
    compared_with: tuple[str, ...]
    deviations: tuple[str, ...] = ()
    within: float = 0.0

    @property
    def on(self) -> str:
        return self.run.on

    @property
    def ok(self) -> bool:
        return self.run.ok

    @property
    def failure(self) -> str | None:
        return self.run.failure

    def to_json(self) -> dict[str, Any]:
        told = {"compared_with": list(self.compared_with), "deviations": list(self.deviations), "within": self.within}
        return {**self.run.to_json(), **told}


@dataclass(frozen=True, slots=True)
class TflmVerdict:
    """What running the planned file in TensorFlow Lite Micro has shown, beside the file without a plan."""

    found: Comparison
    weights_bytes: int

    @property
    def on(self) -> str:
        return TFLM

    @property
    def ok(self) -> bool:
        return self.found.ok

    @property
    def failure(self) -> str | None:
        return self.found.failure or None

    def to_json(self) -> dict[str, Any]:
        before, after = self.found.before, self.found.after
        return {
            "on": self.on,
            "ok": self.ok,
            "inputs": self.found.inputs,
            "arena_bytes": after.arena_bytes if after else None,
            "arena_bytes_before": before.arena_bytes,
            "head_bytes": after.head_bytes if after else None,
            "head_bytes_before": before.head_bytes,
            "persistent_bytes": after.persistent_bytes if after else None,
            "stack_bytes": None,
            "static_bytes": None,
            "code_bytes": None,
            "weights_bytes": self.weights_bytes,
            "instructions": None,
            "failure": self.failure,
        }


Verdict = CVerdict | TflmVerdict


@dataclass(frozen=True)
class Verification:
    """A model to be run. `made`: the plan to run it with, in C. `planned`: its file with a plan for TFLM's reference
    kernels, where it carries none itself. `opinion`: another runtime's, if it has been asked already. What several
    places share is worked out once."""

    source: Source
    inputs: int
    seed: int
    made: Planned | Plan | None = None
    planned: PlannedFile | None = None
    opinion: Opinion | None = None

    def on(self, place: str) -> Verdict:
        check_place(place)
        return self._in_tflm() if place == TFLM else self._as_c(place)

    @cached_property
    def program(self) -> Program:
        if self.made is None:
            raise PlanError("C code needs a plan")
        if isinstance(self.made, Plan):
            return Program.running(self.made, self.source.runnable)
        return Program.of(self.made)

    @cached_property
    def second_opinion(self) -> Opinion | None:
        """Another runtime's view of what the model computes, where there is one."""
        if self.opinion is not None:
            return self.opinion
        if isinstance(self.source, Wired):
            model = self.source.runnable
            return opinion_of_parts(self.source, model, sample_inputs(model, self.inputs, self.seed))
        if not self.source.has_file:
            return None
        # As its file has it: values that are kept are no outputs there.
        model = self.source.runnable
        return second_opinion(self.source, model, sample_inputs(model, self.inputs, self.seed))

    @cached_property
    def range_fault(self) -> str | None:
        """What is wrong with the ranges by which channels were taken out, if any were."""
        if all(tensor.channels is None for tensor in self.program.graph.tensors):
            return None
        model = self.program.model
        return next(range_faults(model, ranges_of(model), self.seed), None)

    def _as_c(self, place: str) -> CVerdict:
        return self.judged(self._run(place, self.samples))

    @property
    def samples(self) -> Inputs:
        return sample_inputs(self.program.graph, self.inputs, self.seed)

    def judged(self, run: Run) -> CVerdict:
        """What a run of the C code has shown, with what others make of the model."""
        opinion = self.second_opinion
        if self.range_fault is not None:
            run = run.failed(f"a channel was taken for what it is not: {self.range_fault}")
        if opinion is None:
            return CVerdict(run, ("numpy",))
        if opinion.disagreement is not None:
            run = run.failed(f"{opinion.oracle} disagrees: {opinion.disagreement}")
        notes = tuple(f"{opinion.oracle} differs as documented: {found}" for found in opinion.deviations)
        is_real = not opinion.is_exact and any(
            self.program.model.tensors[t].dtype is DType.FLOAT32 for t in self.program.model.outputs
        )
        return CVerdict(
            run, ("numpy",) if notes else ("numpy", opinion.oracle), notes, RELATIVE_TOLERANCE if is_real else 0.0
        )

    def _run(self, place: str, samples: Inputs) -> Run:
        cores = cores_of(place)
        if place in CORES:
            return (run_on_core if cores == 1 else run_on_cores)(self.program, samples, CORES[place])
        return run_on_host(self.program, samples) if cores == 1 else run_on_threads(self.program, samples, cores)

    def _in_tflm(self) -> TflmVerdict:
        if self.source.is_onnx:
            raise PlanError("TensorFlow Lite Micro runs .tflite files only; verify the C code of an ONNX model")
        data, graph = self.source.content, self.source.runnable
        if not carries_plan(self.source):
            if self.planned is None:
                raise PlanError("the file carries no plan; write one into it with `emit tflm`")
            data, graph = self.planned.data, self.planned.graph
        note = metadata.origin(data)
        if note is not None and note.kernels not in INTERPRETER_KERNELS:
            raise PlanError(
                f"the plan is for kernels {one_line(note.kernels)}, but TFLM's Python interpreter has reference "
                "kernels, with which it may fail; check it on the device, and with "
                f"`diagmem plan --kernels {shell_word(note.kernels)}`"
            )
        self._judge(data, graph, note.kernels if note is not None else INTERPRETER_KERNELS[0])
        # The file as it was given is the judge, not what has been made of it.
        given = metadata.left_to_tflm(self.source.content)
        found = compare(given, data, graph, sample_inputs(graph, self.inputs, self.seed))
        return TflmVerdict(found, sum(t.size_bytes for t in graph.tensors if t.is_constant))

    def _judge(self, data: bytes, graph: Graph, kernels: str) -> None:
        """Raises UnsafePlanError where the plan inside a file is not safe: that it runs well on some inputs would show
        nothing. What cannot be judged, at operations that nobody knows, is run."""
        found = planned_file.embedded_plan(data, graph, kernels)
        if found is not None and found.findings:
            more = f" (and {len(found.findings) - 1} more)" if len(found.findings) > 1 else ""
            raise UnsafePlanError(f"{graph.name}: the plan in the file is not safe: {found.findings[0]}{more}")


def carries_plan(source: Source) -> bool:
    """Whether the model's file has a plan for TFLM inside."""
    return not source.is_onnx and metadata.offsets_in(source.content, source.runnable) is not None

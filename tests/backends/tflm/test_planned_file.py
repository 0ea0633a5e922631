"""Plans in files: as small as can be, run by TFLM itself with the same answers, and caught when they are not safe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from diagmem import pipeline
from diagmem.backends.tflm import metadata, planned_file
from diagmem.backends.tflm.greedy import ONLINE
from diagmem.frontends import tflite, zoo
from diagmem.frontends.tflite import writer as flatbuffer
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.kernels import library
from diagmem.model.errors import ModelError, PlanError
from diagmem.model.graph import Graph, Node
from diagmem.ops import kind_of
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import SeparationRule, footprint
from diagmem.planning.place import optimal
from diagmem.validation import Fault
from diagmem.verification import tflm
from diagmem.verification.reference import sample_inputs
from diagmem.verification.tflm import compare
from tests.backends.tflm import small_models
from tests.frontends.tflite.test_hostile import corrupted
from tests.profiles import some

REFERENCE = "tflm-reference"
REAL = {
    "ad01_int8": (768, 4640),
    "kws_ref_model": (9792, 18064),
    "pretrainedResnet_quant": (33312, 40144),
    "vww_96_int8": (36880, 66832),
}
"""Head and smallest arena, at the most."""

needs_tflm = pytest.mark.skipif(not tflm.is_installed(), reason="needs the package tflite-micro")


@needs_tflm
@pytest.mark.parametrize(("name", "head", "arena"), [(name, *sizes) for name, sizes in REAL.items()])
@pytest.mark.deep
def test_real_files_run_in_less(shared: Path, name: str, head: int, arena: int) -> None:
    """TFLM gives the same bytes on 200 inputs (fewer in a quick run), in the arena that is proven the smallest."""
    data = (shared / "models" / "mlperf_tiny" / f"{name}.tflite").read_bytes()
    plan = pipeline.plan(data, kernels=REFERENCE).plan
    planned = planned_file.emit(data, plan).data
    found = compare(data, planned, plan.graph, sample_inputs(plan.graph, some(200)))
    assert planned.endswith(data)
    assert found.failure == ""
    assert found.after is not None
    assert found.after.head_bytes == plan.arena_bytes <= head
    assert found.after.arena_bytes <= arena


@needs_tflm
@pytest.mark.parametrize(
    ("make", "kernels"),
    [
        *((make, REFERENCE) for make in small_models.ALL),
        (small_models.branches, "tflm"),
        (small_models.scratch, "tflm"),
    ],
)
def test_built_files_run(make: Callable[[], bytes], kernels: str) -> None:
    """Variables, scratch, reshapes, unused tensors, several outputs, another order: the same bytes, the head predicted,
    and never more than TFLM takes alone."""
    data = make()
    plan = pipeline.plan(data, kernels=kernels).plan
    planned = planned_file.emit(data, plan).data
    graph = tflite.parse(planned, "model")
    found = compare(data, planned, graph, sample_inputs(graph, 12))
    read = planned_file.embedded_plan(planned, graph, REFERENCE)
    assert found.failure == ""
    assert found.after is not None
    assert read is not None
    assert found.after.head_bytes == read.plan.arena_bytes <= found.before.head_bytes


def test_new_order_is_written() -> None:
    """Where another order needs less, the file's operators stand in it."""
    data = small_models.branches()
    plan = pipeline.plan(data, kernels="tflm").plan
    assert list(plan.schedule.ops) != sorted(plan.schedule.ops)
    emitted = planned_file.emit(data, plan)
    written = tflite.parse(emitted.data, plan.graph.name)
    assert [op.outputs for op in written.ops] == [plan.graph.ops[i].outputs for i in plan.schedule.ops]
    assert emitted.graph == written


def test_variables_are_left_to_tflm() -> None:
    """TFLM keeps them in its persistent part, so the plan has no room for them."""
    plan = pipeline.plan(small_models.variable(), kernels=REFERENCE).plan
    [state] = [t for t in plan.graph.tensors if t.is_variable]
    assert planned_file.offsets_for_tflm(plan)[state.index] == ONLINE
    assert plan.arena_bytes < state.size_bytes + max(t.size_bytes for t in plan.graph.tensors if not t.is_constant)


def test_other_kernels_are_refused() -> None:
    """A plan for kernels that TFLM does not have is not put into a file for it."""
    plan = pipeline.plan(small_models.reshapes(), kernels="diagmem").plan
    with pytest.raises(PlanError, match="the plan is for kernels diagmem; plan with --kernels tflm or"):
        planned_file.emit(small_models.reshapes(), plan)


def test_misaligned_scratch_is_refused() -> None:
    """TFLM puts scratch behind tensors, so their alignment becomes its own."""
    data = small_models.reshapes()
    with pytest.raises(PlanError, match="use --align 16"):
        planned_file.emit(data, pipeline.plan(data, kernels="cmsis-nn", align=1).plan)
    assert planned_file.emit(data, pipeline.plan(data, kernels=REFERENCE, align=1).plan).data.endswith(data)


@pytest.mark.parametrize("kernels", planned_file.LIBRARIES)
def test_plan_is_found_again(kernels: str) -> None:
    """A file's plan is read as it was made: peak, overlaps, origin, and safe for its kernels."""
    data = to_tflite(zoo.build("resnet8_int8"))
    plan = pipeline.plan(data, kernels=kernels).plan
    planned = planned_file.emit(data, plan).data
    found = planned_file.embedded_plan(planned, tflite.parse(planned, "model"), kernels)
    assert found is not None
    assert found.plan.arena_bytes == plan.arena_bytes
    assert found.plan.overlaps
    assert found.origin is not None
    assert found.origin.kernels == kernels
    assert (found.online, found.findings, found.doubts) == ((), (), ())


def test_reference_plan_is_not_safe_for_cmsis_nn() -> None:
    """The same file is judged for other kernels: there an overlap destroys what is still to be read."""
    data = to_tflite(zoo.build("vww_96_int8"))
    planned = planned_file.emit(data, pipeline.plan(data, kernels=REFERENCE).plan).data
    found = planned_file.embedded_plan(planned, tflite.parse(planned, "model"), "cmsis-nn")
    assert found is not None
    assert {finding.fault for finding in found.findings} == {Fault.OVERWRITTEN}


def test_file_without_plan() -> None:
    """Nothing is found in it."""
    data = small_models.reshapes()
    assert planned_file.embedded_plan(data, tflite.parse(data, "model"), "tflm") is None


def test_partial_plan_is_completed() -> None:
    """What a plan leaves to TFLM is placed as TFLM would, clear of the rest."""
    data = small_models.scratch()
    graph = tflite.parse(data, "model")
    offsets = [ONLINE] * len(graph.tensors)
    offsets[graph.inputs[0]] = 64
    planned = metadata.with_plan(data, graph, offsets, REFERENCE)
    found = planned_file.embedded_plan(planned, graph, REFERENCE)
    assert found is not None
    assert len(found.online) == len(found.plan.places) - 1
    assert found.plan.offsets[graph.inputs[0]] == 64
    assert found.findings == ()


def inflated(rule: SeparationRule, by: int) -> SeparationRule:
    """The same rule, but each overlap `by` bytes larger."""

    def larger(node: Node, position: int, output: int) -> int | None:
        apart = rule(node, position, output)
        return None if apart is None or apart >= node.outputs[output].size_bytes else apart - by

    return larger


def test_inflated_overlaps_are_caught() -> None:
    """A plan with every overlap 16 bytes too large fails, both replayed and, where it is installed, run."""
    data = to_tflite(zoo.build("kws_dscnn_int8"))
    plan = pipeline.plan(data, kernels=REFERENCE).plan
    unsafe = footprint(plan.graph, plan.options, inflated(plan.options.library.separation, 16))
    problem = build_problem(unsafe, plan.schedule)
    placed = optimal(replace(problem, lower_bound_bytes=0))
    offsets = {t: at for b, at in zip(problem.buffers, placed.offsets, strict=True) for t in b.tensors}
    held = [offsets.get(t.index, ONLINE) for t in plan.graph.tensors]
    planned = metadata.with_plan(data, plan.graph, held, REFERENCE)
    found = planned_file.embedded_plan(planned, plan.graph, REFERENCE)
    assert found is not None
    assert found.plan.arena_bytes < plan.arena_bytes
    assert found.findings
    if tflm.is_installed():
        assert "outputs differ" in compare(data, planned, plan.graph, sample_inputs(plan.graph, 8)).failure


def with_one_overlap(data: bytes, graph: Graph, node: Node, apart: int) -> bytes:
    """The file with a plan that keeps everything apart but an op's output and first input, which start so many bytes
    above each other."""
    offsets, end = [ONLINE] * len(graph.tensors), 0
    for tensor in graph.tensors:
        if not tensor.is_constant:
            offsets[tensor.index] = end
            end += -(-tensor.size_bytes // 16) * 16
    offsets[node.output.index] = end + 64
    offsets[node.input(0).index] = end + 64 + apart
    return metadata.with_plan(data, graph, offsets, REFERENCE)


@needs_tflm
def test_each_overlap_is_as_large_as_it_may_be() -> None:
    """Each convolution alone, overlapped with its input as far as is safe: the same bytes. 16 bytes more: other bytes,
    and a finding that says where."""
    data = to_tflite(zoo.build("kws_dscnn_int8"))
    graph = tflite.parse(data, "model")
    inputs = sample_inputs(graph, 8)
    expected = tflm.run(data, graph, inputs).outputs
    convolutions = [node for node in graph.nodes if "CONV" in node.op.kind]
    for node in convolutions[:4]:
        kind, order = kind_of(node.op.kind), library(REFERENCE).order(node)
        assert kind is not None
        assert order is not None
        apart = -(-kind.separation(node, 0, order) // 16) * 16
        safe, unsafe = (with_one_overlap(data, graph, node, at) for at in (apart, apart - 16))
        found = planned_file.embedded_plan(unsafe, graph, REFERENCE)
        assert found is not None
        assert [finding.op for finding in found.findings] == [node.op.index]
        assert tflm.run(safe, graph, inputs).outputs == expected
        assert tflm.run(unsafe, graph, inputs).outputs != expected


def test_plan_by_vela_is_doubted() -> None:
    """The work space of an unknown operation is no conflict, and counts; what the operation does with its own input and
    output is not for us to judge."""
    data = small_models.vela()
    found = planned_file.embedded_plan(data, tflite.parse(data, "model"), "tflm")
    assert found is not None
    assert found.plan.arena_bytes == 512
    assert found.origin is None
    assert found.findings == ()
    assert [doubt.op for doubt in found.doubts] == [0]


def test_files_are_reproducible() -> None:
    """The same model, options and version give the same file, byte for byte."""
    data = small_models.scratch()
    made = [planned_file.emit(data, pipeline.plan(data, kernels="tflm").plan).data for _ in range(2)]
    assert made[0] == made[1]


def test_damaged_files_are_refused_or_judged() -> None:
    """Whatever was done to the new block: one line, or a plan that is judged."""
    data = small_models.branches()
    planned = planned_file.emit(data, pipeline.plan(data, kernels="tflm").plan).data
    block = planned[: -len(data)]
    refused = []
    for way, damaged in corrupted(block, 150, seed=11):
        if way == "truncate":
            continue
        try:
            graph = tflite.parse(damaged + data, "model")
        except ModelError:
            continue
        try:
            planned_file.embedded_plan(damaged + data, graph, "tflm")
        except ModelError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert not [message for message in refused if "\n" in message]


def test_damaged_origin_does_not_stop_a_new_plan() -> None:
    """Who made the old plan does not matter then."""
    data = small_models.branches()
    damaged = flatbuffer.rewritten(data, {metadata.PLAN_ENTRY: b"x", metadata.ORIGIN_ENTRY: b"x"})
    planned = planned_file.emit(metadata.without_plan(damaged), pipeline.plan(data, kernels="tflm").plan).data
    assert planned_file.embedded_plan(planned, tflite.parse(planned, "model"), "tflm") is not None

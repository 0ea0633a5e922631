"""Both tracers on kernels whose safe overlap is known from their source."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from diagmem.model.errors import TraceError
from diagmem.model.graph import DType, Node, Op, Padding, Tensor
from diagmem.ops import kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.orders import Order
from diagmem.tracing.calls import parse_call
from diagmem.tracing.recording import CallTrace, Recorder, Span
from tests.tracing.conftest import ProgramOf

Traced = Callable[[str, str], CallTrace]
PLACES = ("x86", "cortex-m4")


def only(trace: CallTrace) -> tuple[int, int]:
    """The monotone and the largest overlap of a call with one input and one output."""
    ((overlap,),) = trace.overlaps
    return overlap.monotone, overlap.largest


@pytest.mark.parametrize("on", [*PLACES, "cortex-m0", "cortex-m3", "cortex-m7", "cortex-m33"])
def test_elementwise_kernel_runs_in_place(traced: Traced, on: str) -> None:
    """The whole output may be overlapped; every byte is stored once, and loaded once (twice by Cortex-M0's code)."""
    trace = traced(on, "relu(input int8[300], output int8[300], int32 300)")
    assert only(trace) == (300, 300)
    loads = 600 if on == "cortex-m0" else 300
    assert (trace.counts.loads, trace.counts.stores, trace.counts.updates) == (loads, 300, 0)
    assert trace.counts.instructions > 900


@pytest.mark.parametrize("on", PLACES)
def test_kernel_that_clears_its_output_first(traced: Traced, on: str) -> None:
    """Nothing may overlap, and the sums are seen as updates."""
    trace = traced(on, "zero_first(input int8[50], output int16[50], int32 50)")
    assert only(trace) == (0, 0)
    assert (trace.counts.loads, trace.counts.stores, trace.counts.updates) == (100, 100, 50)


@pytest.mark.parametrize("on", PLACES)
def test_kernel_with_channels_outermost(traced: Traced, on: str) -> None:
    """All but the last channel is written before the input is read for the last time: 1 byte."""
    call = "channels_outermost(input int8[40, 8], output int8[40, 4], constant int8[4, 8], int32 40, int32 8, int32 4)"
    assert only(traced(on, call)) == (1, 1)


@pytest.mark.parametrize("on", PLACES)
def test_kernel_that_runs_from_high_to_low(traced: Traced, on: str) -> None:
    """The output's end is written first, so no overlap by the definition; in place is safe all the same."""
    assert only(traced(on, "high_to_low(input int8[64], output int8[64], int32 64)")) == (0, 64)


@pytest.mark.parametrize("on", PLACES)
@pytest.mark.parametrize(
    ("size", "depth_in", "depth_out", "kernel", "stride"), [(9, 3, 5, 3, 1), (9, 4, 2, 2, 2), (8, 2, 6, 1, 1)]
)
def test_diagonal_convolution(
    traced: Traced, on: str, size: int, depth_in: int, depth_out: int, kernel: int, stride: int
) -> None:
    """What is traced is what the closed form says for the same loops."""
    out = (size - kernel) // stride + 1
    call = (
        f"valid_conv(struct(int32 {size}, int32 {size}, int32 {depth_in}), input int8[{size}, {size}, {depth_in}], "
        f"struct(int32 {out}, int32 {out}, int32 {depth_out}), output int8[{out}, {out}, {depth_out}], "
        f"constant int8[{depth_out}, {kernel}, {kernel}, {depth_in}], int32 {kernel}, int32 {stride})"
    )
    image = Tensor(0, "image", (1, size, size, depth_in), DType.INT8)
    weights = Tensor(1, "filter", (depth_out, kernel, kernel, depth_in), DType.INT8, is_constant=True)
    result = Tensor(2, "out", (1, out, out, depth_out), DType.INT8)
    node = Node(Op(0, "CONV_2D", (0, 1), (2,), Conv2D(Padding.VALID, stride, stride)), (image, weights), (result,))
    separation = kinds()["CONV_2D"].separation(node, 0, Order.REFERENCE)
    assert only(traced(on, call))[0] == result.size_bytes - separation


@pytest.mark.parametrize("on", PLACES)
def test_copy_of_words(traced: Traced, on: str) -> None:
    """Accesses of four bytes are told byte by byte."""
    assert only(traced(on, "copy_words(input int32[25], output int32[25], int32 25)")) == (100, 100)


@pytest.mark.parametrize("on", PLACES)
def test_branches_may_depend_on_data(traced: Traced, on: str) -> None:
    """Only touches count, not the time between them."""
    assert only(traced(on, "clip(input int8[64], output int8[64], int32 64)")) == (64, 64)


@pytest.mark.parametrize("on", PLACES)
def test_touches_may_not_depend_on_data(traced: Traced, on: str) -> None:
    """A kernel whose pattern differs between two runs is refused."""
    with pytest.raises(TraceError, match="histogram: it touches memory in an order that depends on its data"):
        traced(on, "histogram(input uint8[64], output uint8[256], int32 64)")


@pytest.mark.parametrize("on", [*PLACES, "cortex-m3"])
def test_all_kinds_of_arguments(traced: Traced, on: str) -> None:
    """Numbers in registers and on the stack, with and without an FPU, and structs: they add up to 66 bytes."""
    trace = traced(
        on,
        "many_arguments(input uint8[80], int8 1, float 2.5, int64 3, double 4.5, int32 5, "
        "struct(int8 6, int32 7, int16 8, int64 9, output uint8[80]), float 10.5, int64 11)",
    )
    assert (trace.counts.loads, trace.counts.stores) == (66, 66)


@pytest.mark.parametrize("on", PLACES)
def test_wide_arguments_are_aligned(traced: Traced, on: str) -> None:
    """Numbers of eight bytes start at an even register, and at a multiple of eight bytes on the stack."""
    call = "wide_arguments(input uint8[40], int64 3, int32 5, int64 7, output uint8[40])"
    assert traced(on, call).counts.loads == 15


@pytest.mark.parametrize("on", PLACES)
def test_libc_is_at_hand(traced: Traced, on: str) -> None:
    """A kernel may call the C library; what that does to the buffers is traced too."""
    ((overlap,),) = traced(on, "uses_libc(input uint8[100], output uint8[100], int32 100)").overlaps
    assert overlap.largest >= 100


def test_hooks_in_python_find_the_same_as_those_in_c(program_of: ProgramOf) -> None:
    """Event for event, and instruction for instruction."""
    from dataclasses import replace

    from diagmem.tracing.cortex_m import CortexMProgram

    call = parse_call("zero_first(input int8[50], output int16[50], int32 50)")
    program = program_of("cortex-m4", call)
    assert isinstance(program, CortexMProgram)
    spans: list[Span] = []
    for in_python in (False, True):
        replace(program, in_python=in_python).run(call.contents(1), Recorder(call.space_bytes, spans.append))
    first, second = spans
    assert first.fingerprint == second.fingerprint
    assert (first.counts.start, first.counts.end) == (second.counts.start, second.counts.end)
    assert first.first_write.tolist() == second.first_write.tolist()
    assert first.last_read.tolist() == second.last_read.tolist()


def test_touching_other_memory_is_an_error(traced: Traced) -> None:
    """A size that is too small, or an argument that is no pointer, shows itself in one line."""
    with pytest.raises(TraceError, match="touched address 0x70000000, which is none of its arguments"):
        traced("cortex-m4", "reads_anywhere(input uint8[4], output uint8[4])")


def test_writing_past_the_end_is_an_error(traced: Traced) -> None:
    """Another size that is too small: nothing unmapped is touched, but a neighbour would be."""
    with pytest.raises(TraceError, match="relu on cortex-m4: it writes past the end of output"):
        traced("cortex-m4", "relu(input int8[64], output int8[60], int32 64)")


@pytest.mark.parametrize("on", PLACES)
def test_unknown_function_is_named(program_of: ProgramOf, on: str) -> None:
    """A misspelt kernel is not found, and the message says which."""
    with pytest.raises(TraceError, match=r"rel.*not defined|undefined.*rel"):
        program_of(on, parse_call("rel(input int8[4])"))

"""Calls in writing."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.errors import TraceError
from diagmem.tracing.calls import MemoryArgument, Null, Number, Role, Struct, parse_call


def test_every_kind_of_argument() -> None:
    """A call reads as it is written; white space and line breaks do not matter."""
    call = parse_call(
        """conv_2d (input int8[1, 8,8 * 3], output int16[4], scratch uint8[10], constant int32[3] = {1, -2, 0x10},
        constant float[2] = 0.5, int32 -7, double 1e-3, null, struct(int16 3 * 2, struct(), input float[2]))"""
    )
    assert call.function == "conv_2d"
    assert call.arguments == (
        MemoryArgument(Role.INPUT, "int8", (1, 8, 8, 3)),
        MemoryArgument(Role.OUTPUT, "int16", (4,)),
        MemoryArgument(Role.SCRATCH, "uint8", (10,)),
        MemoryArgument(Role.CONSTANT, "int32", (3,), (1, -2, 16)),
        MemoryArgument(Role.CONSTANT, "float", (2,), (0.5,)),
        Number("int32", -7),
        Number("double", 1e-3),
        Null(),
        Struct((Number("int16", 3), Number("int16", 3), Struct(()), MemoryArgument(Role.INPUT, "float", (2,)))),
    )


def test_the_traced_space_holds_outputs_lowest() -> None:
    """Outputs, inputs, scratch, one behind the other; constants are not watched."""
    call = parse_call("f(scratch int8[2], input int16[3], constant int8[9], output int8[4], struct(input int8[5]))")
    assert call.places(Role.OUTPUT) == (range(4),)
    assert call.places(Role.INPUT) == (range(4, 10), range(10, 15))
    assert call.places(Role.SCRATCH) == (range(15, 17),)
    assert call.space_bytes == 17


def test_data_differ_between_runs_and_constants_do_not() -> None:
    """Another seed gives other inputs; constants, and all that is given, stay."""
    call = parse_call(
        "f(input int8[64], input float[64], input int8[64] = 3, constant int8[64], constant int16[3] = {1, 2})"
    )
    first, second = call.contents(1), call.contents(2)
    assert first == call.contents(1)
    assert [a == b for a, b in zip(first, second, strict=True)] == [False, False, True, True, True]
    assert second[4] == b"\1\0\2\0\1\0"
    assert [len(content) for content in first] == [buffer.size_bytes for buffer in call.buffers]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a function's name expected, the end found"),
        ("f", "'(' expected"),
        ("f(int8)", "a number expected, ')' found"),
        ("f(int8 128)", "128 is no int8"),
        ("f(int32 1.5)", "1.5 is no int32"),
        ("f(pointer 3)", "a type expected, 'pointer' found"),
        ("f(input int8)", "'[' expected"),
        ("f(" + "struct(" * 3000, "no struct in 16 others expected"),
        ("f(struct(struct(int8 1 * 60000) * 60000))", "3600060000 arguments; up to 131072 can be traced"),
        ("f(input int8[0])", "a buffer of 0 bytes"),
        ("f(input int8[99999999])", "a size expected"),
        ("f(input int8[4] = {1, 2)", "',' or '}' expected"),
        ("f(null null)", "',' or ')' expected"),
        ("f(null) g", "nothing more expected, 'g' found"),
        ("f(int8 1.2.3)", "a number expected"),
    ],
)
def test_mistakes_are_told_where_they_are(text: str, said: str) -> None:
    """The message names what was expected and what was found."""
    with pytest.raises(TraceError) as caught:
        parse_call(text)
    assert said in str(caught.value)


@given(st.text(alphabet="f(int8[]{}=*,. 0x9-)structinputnull\n", max_size=40))
def test_any_text_is_a_call_or_an_error(text: str) -> None:
    """Nothing but TraceError comes out of a bad call."""
    with contextlib.suppress(TraceError):
        assert parse_call(text).space_bytes >= 0

"""C text: names, comments and numbers that survive whatever a model file holds."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.backends.c.literals import comment, identifier, initialiser, number, numbers
from diagmem.ops.c_call import CStruct, CTable


@given(st.text(max_size=200))
def test_any_text_becomes_an_identifier(text: str) -> None:
    """Letters, digits and single underscores, bounded, and a letter in front."""
    assert re.fullmatch(r"[A-Za-z][0-9A-Za-z]*(_[0-9A-Za-z]+)*", identifier(text))
    assert len(identifier(text)) <= 54


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("vww_96_int8", "vww_96_int8"),
        ("my model (v2).final", "my_model_v2_final"),
        ("3d", "model_3d"),
        ("", "model"),
        ("string", "model_string"),
        ("Math", "model_Math"),
        ("../../etc/passwd", "etc_passwd"),
    ],
)
def test_identifiers_resemble_the_text(text: str, wanted: str) -> None:
    """None of them is a path, and none hides a header of the standard library."""
    assert identifier(text) == wanted


@given(st.text(alphabet=st.one_of(st.sampled_from("*/?\\\n"), st.characters()), max_size=60))
def test_any_text_may_stand_in_a_comment(text: str) -> None:
    """It neither opens nor closes a comment, nor leaves the line, and is ASCII."""
    shown = comment(text)
    assert "*/" not in shown
    assert "/*" not in shown
    assert shown.isascii()
    assert shown.isprintable()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_real_numbers_read_back_the_same(value: float) -> None:
    text = number(np.float32(value))
    assert re.fullmatch(r"-?\d+(\.\d*)?(e[+-]?\d+)?f", text)
    assert np.float32(text[:-1]).tobytes() == np.float32(value).tobytes()


@given(st.integers(-(2**31), 2**31 - 1))
def test_integers_read_back_the_same(value: int) -> None:
    """The least one has no literal of its own in C."""
    assert number(value) == ("INT32_MIN" if value == -(2**31) else str(value))


def test_tables_are_lines_of_bounded_width() -> None:
    data = np.arange(-(2**31), 2**31 - 1, 2**23, dtype=np.int64).astype(np.int32)
    lines = list(numbers(data))
    assert max(map(len, lines)) <= 120
    words = " ".join(lines).replace("INT32_MIN", str(-(2**31))).split(",")
    assert [int(word) for word in words if word.strip()] == data.tolist()


def test_structs_are_initialised_field_by_field() -> None:
    table = CTable("bias", np.zeros(2, np.int32))
    inner = CStruct("inner", {"low": -1.5, "none": None})
    struct = CStruct("outer", {"sizes": (1, -2), "inner": inner, "bias": table})
    lines = ["{", "    .sizes = {1, -2},", "    .inner = {", "        .low = -1.5f, .none = NULL,", "    },"]
    assert initialiser(struct, {table: "op0_bias"}).splitlines() == [*lines, "    .bias = op0_bias,", "}"]

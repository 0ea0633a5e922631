"""Options of operations that TFLite does not define are read with their numbers, and never trusted."""

from __future__ import annotations

import random

from flatbuffers import flexbuffers

from diagmem.frontends.tflite.reader import DAMAGE, MOST_OPTIONS, custom_options
from diagmem.frontends.tflite.writer import custom_options_bytes
from diagmem.model.errors import ModelError

FIELDS = {"fft_length": 512, "clamping": 1, "smallest": -(2**31), "scale": 0.5, "large": 2**40}


def test_what_is_written_is_read() -> None:
    assert custom_options(custom_options_bytes(FIELDS)) == FIELDS


def test_truths_are_numbers() -> None:
    builder = flexbuffers.Builder()
    builder.MapFromElements({"clamping": True, "shift": 3})
    assert custom_options(bytes(builder.Finish())) == {"clamping": 1, "shift": 3}


def test_what_is_no_number_is_left_out() -> None:
    """So is all that is no map."""
    builder = flexbuffers.Builder()
    builder.MapFromElements({"name": "x", "many": [1, 2, 3], "shift": 3})
    assert custom_options(bytes(builder.Finish())) == {"shift": 3}
    for root in (7, [1, 2], "text"):
        builder = flexbuffers.Builder()
        builder.Add(root)
        assert custom_options(bytes(builder.Finish())) == {}


def test_damaged_bytes_end_in_a_refusal() -> None:
    """Whatever one byte is changed to, options come out or an error that readers of files know."""
    whole, rng = custom_options_bytes(FIELDS), random.Random(1)
    for _ in range(3000):
        raw = bytearray(whole)
        raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            found = custom_options(bytes(raw[rng.randrange(4) :]))
        except (*DAMAGE, ModelError):
            continue
        assert len(found) <= MOST_OPTIONS

"""Options of operations that TFLite does not define are read with their numbers, and never trusted."""

from __future__ import annotations

import random

from flatbuffers import flexbuffers

from diagmem.frontends.tflite import options
from diagmem.frontends.tflite.reader import DAMAGE
from diagmem.model.errors import ModelError

FIELDS = {"fft_length": 512, "clamping": 1, "smallest": -(2**31), "scale": 0.5, "large": 2**40}


def test_what_is_written_is_read() -> None:
    assert options.read(options.write(FIELDS)) == FIELDS


def test_truths_are_numbers() -> None:
    builder = flexbuffers.Builder()
    builder.MapFromElements({"clamping": True, "shift": 3})
    assert options.read(bytes(builder.Finish())) == {"clamping": 1, "shift": 3}


def test_what_is_no_number_is_left_out() -> None:
    """So is all that is no map."""
    builder = flexbuffers.Builder()
    builder.MapFromElements({"name": "x", "many": [1, 2, 3], "shift": 3})
    assert options.read(bytes(builder.Finish())) == {"shift": 3}
    for root in (7, [1, 2], "text"):
        builder = flexbuffers.Builder()
        builder.Add(root)
        assert options.read(bytes(builder.Finish())) == {}


def test_damaged_bytes_end_in_a_refusal() -> None:
    """Whatever one byte is changed to, options come out or an error that readers of files know."""
    whole, rng = options.write(FIELDS), random.Random(1)
    for _ in range(3000):
        raw = bytearray(whole)
        raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            found = options.read(bytes(raw[rng.randrange(4) :]))
        except (*DAMAGE, ModelError):
            continue
        assert len(found) <= options.MOST_OPTIONS

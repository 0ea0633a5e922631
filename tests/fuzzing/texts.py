"""What else is read: kernels as they were traced (JSON), kernels to be traced (TOML, calls in writing). Characters,
words and values are changed; each ends in a refusal of one line, or in a library, a list of calls."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from diagmem.kernels import signature
from diagmem.model.errors import DiagmemError
from diagmem.planning import planner
from diagmem.planning.options import Options
from diagmem.tracing.kernel import read_calls
from tests.fuzzing.attempts import attempted
from tests.fuzzing.growth import grown
from tests.fuzzing.plans import tampered_value

NETS = 60

CALLS = (
    "relu(input int8[64], output int8[64], int32 64)",
    "conv(input int8[16, 16, 8], output int8[16, 16, 4], constant int8[4, 1, 1, 8], struct(int32 1, float 0.5, null))",
    "f(constant int32[8] = 1073741824, constant int32[3] = {1, 2, 3}, scratch uint8[9*4], int64 -0x10, int32 0 * 8)",
)
MODELS = ("zoo:ad01_int8", "zoo:x", "../x", "zoo:")
_PARTS: tuple[str, ...] = (
    *("(", ")", "[", "]", "{", "}", "*", "=", ",", "int8", "struct", "input", "-1", "1e999", "0x", "9" * 30, "#"),
    *("struct(" * 200, "\n", "\x00", "é", "null", "1.5", "nan", "inf", '"', "'''", "65536"),
)


def faults(seeds: Sequence[int], count: Counter[str]) -> Iterator[str]:
    """What is wrong with how the texts of these seeds ended."""
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        for seed in seeds:
            chance = random.Random(f"text {seed}")
            what, use = chance.choice(_WAYS)
            count[what] += 1
            # The command line says of itself which file is not there.
            ending = attempted(partial(use, Path(place) / f"text{seed}", chance), (DiagmemError, OSError))
            if ending.fault is not None:
                yield f"text {seed}: {ending.fault}"
            count[f"  {what} refused in one line"] += ending.is_refused


def _traced_library(path: Path, chance: random.Random) -> None:
    graph = grown(chance.randrange(NETS)).graph
    rows = [
        {"signature": signature(node), "position": p, "number": 0, "traced": tensor.size_bytes // 2, "scratch_bytes": 8}
        for node in graph.nodes
        for p, tensor in node.activations()
    ]
    changed = tampered_value({"rows": rows, "align_bytes": 4}, chance)
    text = json.dumps(changed)
    path.with_suffix(".json").write_text(_scribbled(text, chance) if chance.random() < 0.2 else text)
    planner.planned(graph, Options(kernels=f"traced:{path}.json", schedule="file"))


def _toml(path: Path, chance: random.Random) -> None:
    text = "".join(f'[[calls]]\ncall = "{chance.choice(CALLS)}"\n' for _ in range(chance.randint(1, 3)))
    if chance.random() < 0.5:
        text = f'model = "{chance.choice(MODELS)}"\n{text}op = {chance.choice((0, 1, -1, 99, 1.5))}\n'
    path.with_suffix(".toml").write_text(_scribbled(text, chance) if chance.random() < 0.8 else text)
    read_calls(f"{path}.toml")


def _call(path: Path, chance: random.Random) -> None:
    for kernel in read_calls(_scribbled(chance.choice(CALLS), chance)):
        sum(buffer.size_bytes for buffer in kernel.call.buffers)


def _scribbled(text: str, chance: random.Random) -> str:
    """Characters left out, words put in, parts doubled."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, end = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        end = min(end, at + 8)
        way = chance.choice(("leave out", "put in", "double"))
        if way == "leave out":
            text = text[:at] + text[end:]
        elif way == "put in":
            text = text[:at] + chance.choice(_PARTS) + text[at:]
        else:
            text = text[:end] + text[at:]
    return text


_Use = Callable[[Path, random.Random], None]
_WAYS: tuple[tuple[str, _Use], ...] = (
    ("traced libraries", _traced_library),
    ("files of calls", _toml),
    ("calls in writing", _call),
)

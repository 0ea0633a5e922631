"""A model run on somebody's own data: its C, compiled for this machine and kept open, and the values that go in."""

from __future__ import annotations

import ctypes
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diagmem.backends.c import emit
from diagmem.backends.c.program import Program
from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import DType, Graph, Tensor
from diagmem.ops.kind import Array
from diagmem.verification import tools
from diagmem.verification.harness import MOST_TEXT_BYTES

Given = Array | Mapping[str, Array] | Sequence[Array]
"""Values for the inputs of a model: by name, in their order, or for its only one."""


Runs = Sequence[Sequence[Array]]
"""For each run, what is stored in each input."""


def taken(graph: Graph, given: Given, is_raw: bool = False) -> list[list[Array]]:
    """For each run, what is stored in each input. Values have the input's shape, for one run, or an axis of runs more,
    which may take the place of a first axis of 1. Real numbers become stored values as the model says."""
    tensors = [graph.tensors[t] for t in graph.inputs]
    names = [tensor.name for tensor in tensors]
    if isinstance(given, Mapping):
        told = f"the model's inputs are {', '.join(map(one_line, names))}"
        if len(given) == len(names) == 1:
            given = dict(zip(names, given.values(), strict=True))
        for name in names:
            if name not in given:
                raise PlanError(f"nothing is given for '{one_line(name)}'; {told}")
        for name in given:
            if name not in names:
                raise PlanError(f"'{one_line(str(name))}' is no input; {told}")
        arrays = [np.asarray(given[name]) for name in names]
    else:
        arrays = [np.asarray(given)] if len(tensors) == 1 else [np.asarray(values) for values in given]
    if len(arrays) != len(tensors):
        raise PlanError(f"values are given for {len(arrays)} inputs; the model has {len(tensors)}: {', '.join(names)}")
    runs = [_stored(by_run(values, tensor), tensor, is_raw) for values, tensor in zip(arrays, tensors, strict=True)]
    counts = {len(values) for values in runs}
    if len(counts) > 1:
        raise PlanError(f"the inputs have values for {' and '.join(map(str, sorted(counts)))} runs")
    return [list(run) for run in zip(*runs, strict=True)]


def by_run(values: Array, tensor: Tensor) -> Array:
    """With an axis of runs. Axes of 1 do not matter, and either side may be a flat list; which axis is which is never
    guessed."""
    shape, found = tensor.shape, values.shape
    for each, count in ((found, 1), (found[1:], found[0] if found else 0)):
        is_flat = min(len(_long(each)), len(_long(shape))) <= 1 and math.prod(each) == tensor.elems
        if count and (_long(each) == _long(shape) or is_flat):
            return values.reshape(count, *shape)
    wanted = "x".join(map(str, shape)) or "a single value"
    told = "x".join(map(str, found)) or "a single value"
    is_turned = sorted(_long(shape)) in (sorted(_long(found)), sorted(_long(found[1:])))
    hint = "; --channels-last takes images so in an ONNX model" if is_turned and len(shape) == 4 else ""
    raise PlanError(f"input '{one_line(tensor.name)}' is {wanted}, for N runs N of that; what is given is {told}{hint}")


def _long(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _stored(values: Array, tensor: Tensor, is_raw: bool) -> Array:
    """As the model stores them. Whole numbers in the very type of the input may be meant in either way."""
    name, dtype = one_line(tensor.name), tensor.dtype
    if values.dtype.kind not in "fiub":
        raise PlanError(f"input '{name}' takes numbers; what is given holds {values.dtype}")
    found = tensor.quantisation
    is_quantised = found is not None and dtype is not DType.FLOAT32 and found.scales[0] > 0
    if is_quantised and not is_raw:
        if values.dtype == dtype.numpy:
            raise PlanError(
                f"input '{name}' is stored as {dtype.value}, and so is what is given: if these are stored values, say "
                "so with --raw (raw=True); if they are real numbers, give them as float32"
            )
        return _quantised(values, tensor)
    if dtype is DType.FLOAT32:
        return np.asarray(values, np.float32)
    info = np.iinfo(dtype.numpy) if dtype is not DType.BOOL else None
    low, high = (0, 1) if info is None else (info.min, info.max)
    if values.size and (np.any(values != np.rint(values)) or values.min() < low or values.max() > high):
        raise PlanError(f"input '{name}' is stored as {dtype.value}: values must be whole and from {low} to {high}")
    return np.asarray(values, dtype.numpy)


def _quantised(values: Array, tensor: Tensor) -> Array:
    """The nearest stored values, halves away from zero, as `NAME_quantize_input` computes them."""
    assert tensor.quantisation is not None
    units = values.astype(np.float32) / np.float32(tensor.quantisation.scales[0])
    if np.isnan(units).any():
        raise PlanError(f"input '{one_line(tensor.name)}': NaN has no stored value")
    info = np.iinfo(tensor.dtype.numpy)
    away = np.trunc(units.astype(np.float64) + np.copysign(0.5, units))
    stored = np.clip(away + tensor.quantisation.zero_points[0], info.min, info.max)
    return np.asarray(stored, tensor.dtype.numpy)


def real(values: Array, tensor: Tensor) -> Array:
    """What stored values stand for."""
    found = tensor.quantisation
    if found is None or tensor.dtype is DType.FLOAT32 or not found.scales[0] > 0:
        return values
    units = values.astype(np.int64) - found.zero_points[0]
    return np.asarray(np.float32(found.scales[0]) * units, np.float32)


class Running:
    """A plan's C, compiled for this machine and loaded. Call it with values for the inputs: it returns those of the
    outputs by their names. State is kept from call to call; `reset` sets it back. Close it, or use it in a `with`."""

    def __init__(self, program: Program) -> None:
        program = program.in_one_arena
        self.graph, self._has_state, self._rows = program.graph, bool(program.states), 0
        if program.input_rows:
            self._rows = self.graph.tensors[self.graph.inputs[0]].rows
        self._place = tempfile.TemporaryDirectory(prefix="diagmem-")
        self._library: ctypes.CDLL | None = ctypes.CDLL(str(_compiled(program, Path(self._place.name))))
        for name in ("input", "output", "next_input"):
            if function := getattr(self._library, f"model_{name}_in", None):
                function.restype, function.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int)
        align = max(16, program.align_bytes)
        self._memory = ctypes.create_string_buffer(max(1, program.arena_bytes) + align)
        address = ctypes.addressof(self._memory)
        self._arena = ctypes.c_void_p(-(-address // align) * align)
        self.reset()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the memory back, and removes what was compiled."""
        self._library = None
        self._place.cleanup()

    def reset(self) -> None:
        """Sets the state to its first value, where the model has one."""
        if self._has_state:
            self._call("reset_in", self._arena)

    def __call__(self, given: Given, *, raw: bool = False) -> dict[str, Array]:
        """One run, or several in a row. `raw`: stored values go in and come out, not what they stand for."""
        return named(self.graph, self.stored(taken(self.graph, given, raw)), raw)

    def stored(self, runs: Runs) -> list[list[Array]]:
        """For each run, what stands in each output behind it."""
        return [self._run(run) for run in runs]

    def _run(self, values: Sequence[Array]) -> list[Array]:
        if self._rows:
            self._call("start_in", self._arena)
            rows = np.ascontiguousarray(values[0]).reshape(self._rows, -1)
            for row in rows:
                self._call("push_row_in", self._arena, row.ctypes.data_as(ctypes.c_void_p))
        else:
            for number, one in enumerate(values):
                held = np.ascontiguousarray(one)
                ctypes.memmove(self._call("input_in", self._arena, number), held.ctypes.data, held.nbytes)
            self._call("invoke_in", self._arena)
        found = []
        for number, index in enumerate(self.graph.outputs):
            tensor = self.graph.tensors[index]
            raw = ctypes.string_at(self._call("output_in", self._arena, number), tensor.size_bytes)
            found.append(np.frombuffer(raw, tensor.dtype.numpy).reshape(tensor.shape))
        return found

    def _call(self, name: str, *given: Any) -> Any:
        if self._library is None:
            raise PlanError("the model was closed; open it again with diagmem.running")
        return getattr(self._library, f"model_{name}")(*given)


def _compiled(program: Program, directory: Path) -> Path:
    """A library that can be loaded."""
    written = emit(program, "model", most_text_bytes=MOST_TEXT_BYTES)
    for name, content in written.items():
        (directory / name).write_bytes(content)
    sources = [name for name in written if name.endswith((".c", ".S")) and not name.endswith("_values.c")]
    flags = [*tools.STANDARD, "-O2", "-shared", "-fPIC", "-DMODEL_NO_STATIC_ARENA"]
    tools.build([tools.find("gcc", "gcc"), *flags, *sources, "-lm", "-o", "model.so"], directory)
    return directory / "model.so"


def named(graph: Graph, made: Sequence[Sequence[Array]], is_raw: bool = False) -> dict[str, Array]:
    """Outputs by name, those of several runs behind each other; of a single run, in the output's own shape."""
    found = {}
    for number, index in enumerate(graph.outputs):
        tensor = graph.tensors[index]
        values = np.stack([run[number] for run in made])
        if len(made) == 1:
            values = values[0]
        elif tensor.shape[:1] == (1,):
            values = values[:, 0]
        name = tensor.name if tensor.name not in found else f"{tensor.name}:{number}"
        found[name] = values if is_raw else real(values, tensor)
    return found

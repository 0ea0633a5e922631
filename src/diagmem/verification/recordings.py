"""Somebody's own data, from files: arrays, sound, pictures, stored bytes, labels. What a file does not say is asked
for, never guessed."""

from __future__ import annotations

import csv
import wave
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diagmem.model.errors import DiagmemError, PlanError, install_command, one_line, reading
from diagmem.model.graph import DType, Graph, Tensor
from diagmem.ops.kind import Array
from diagmem.verification.running import Given, taken

Pixels = tuple[float, float]
"""What the darkest and the brightest value of a picture become."""

LARGEST_FILE_BYTES = 2**31


class DataError(DiagmemError):
    """Data or labels that cannot be used as they are."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What one file holds: stored values of each input, for one run or several in a row. State begins anew with it."""

    name: str
    runs: Sequence[Sequence[Array]]


def recordings(path: Path, graph: Graph, is_raw: bool = False, pixels: Pixels | None = None) -> list[Recording]:
    """The data in a file, or in each file below a folder that is of a known kind, in the order of their names."""
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in READERS and file.is_file())
        if not found:
            raise DataError(f"{one_line(str(path))}: no file in it is one of {', '.join(READERS)}")
        return [_recording(file, str(file.relative_to(path)), graph, is_raw, pixels) for file in found]
    return [_recording(path, path.name, graph, is_raw, pixels)]


def _recording(path: Path, name: str, graph: Graph, is_raw: bool, pixels: Pixels | None) -> Recording:
    reader = READERS.get(path.suffix.lower())
    try:
        if reader is None:
            raise DataError(f"its name ends in none of {', '.join(READERS)}")
        with reading():
            if not path.exists() or path.is_file():
                if path.stat().st_size > LARGEST_FILE_BYTES:
                    raise DataError("it is larger than 2 GB; split it into several files of a folder")
            else:
                raise DataError("it is no regular file")
            given = reader(path, graph, pixels)
        return Recording(name, taken(graph, given, is_raw or path.suffix.lower() == ".bin"))
    except (DataError, PlanError) as error:
        raise DataError(f"{one_line(str(path), 400)}: {error}") from error


def _only_input(graph: Graph) -> Tensor:
    if len(graph.inputs) != 1:
        names = ", ".join(one_line(graph.tensors[t].name) for t in graph.inputs)
        raise DataError(f"the model has {len(graph.inputs)} inputs ({names}): give an .npz with an array for each")
    return graph.tensors[graph.inputs[0]]


def _numpy(path: Path, graph: Graph, _: Pixels | None) -> Given:
    found: Given = _arrays(path)
    if isinstance(found, np.ndarray):
        _only_input(graph)
    return found


def _arrays(path: Path) -> Any:
    """The array in an .npy, or those in an .npz by their names."""
    try:
        with path.open("rb") as file:
            # Objects would run code.
            found: Any = np.load(file, allow_pickle=False)
            if not isinstance(found, np.ndarray):
                found = {name: found[name] for name in found.files}
        return found
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"it is no array that numpy reads without pickle: {one_line(str(error))}") from error


def _stored(path: Path, graph: Graph, _: Pixels | None) -> Given:
    """Bytes as the inputs hold them, one after the other, for one run or more."""
    tensors = [graph.tensors[t] for t in graph.inputs]
    data, each = path.read_bytes(), sum(tensor.size_bytes for tensor in tensors)
    if not data or len(data) % each:
        raise DataError(f"it holds {len(data):,} bytes; the inputs of a run take {each:,}")
    rows, found, at = np.frombuffer(data, np.uint8).reshape(-1, each), {}, 0
    for tensor in tensors:
        part = np.ascontiguousarray(rows[:, at : at + tensor.size_bytes])
        found[tensor.name] = part.view(tensor.dtype.numpy).reshape(-1, *tensor.shape)
        at += tensor.size_bytes
    return found


def _sound(path: Path, graph: Graph, _: Pixels | None) -> Given:
    """Samples, as many for each run as the input holds: whole numbers of 16 bits where the model takes such, else from
    -1 to 1."""
    tensor = _only_input(graph)
    try:
        with wave.open(str(path)) as file:
            channels, width = file.getnchannels(), file.getsampwidth()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise DataError(f"it is no WAV file of plain samples: {one_line(str(error))}") from error
    if channels != 1 or width not in (1, 2, 4):
        raise DataError(f"it has {channels} channels of {8 * width} bits; one of 8, 16 or 32 bits is read")
    samples = np.frombuffer(data, (np.uint8, "<i2", "<i4")[width // 2]).astype(np.float64)
    unit = (samples - 128) / 128 if width == 1 else samples / 2.0 ** (8 * width - 1)
    count = len(unit) // max(1, tensor.elems)
    if not count:
        raise DataError(f"it holds {len(unit):,} samples; the input takes {tensor.elems:,}")
    frames = unit[: count * tensor.elems].reshape(count, *tensor.shape)
    if tensor.dtype is DType.INT16 and tensor.quantisation is None:
        return np.asarray(np.clip(np.rint(frames * 32768), -32768, 32767))
    return frames.astype(np.float32)


def _picture(path: Path, graph: Graph, pixels: Pixels | None) -> Given:
    """Resized to the input's height and width, in its colours."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise DataError(f"pictures need an extra: {install_command('images')}") from error
    if pixels is None:
        raise DataError("say what pixels become, such as --pixels 0..255, 0..1 or -1..1")
    shape = _only_input(graph).shape
    modes = {1: "L", 3: "RGB"}
    if len(shape) != 4 or shape[0] != 1 or shape[3] not in modes:
        raise DataError(f"the input is {'x'.join(map(str, shape))}, which is no picture of 1 or 3 colours")
    try:
        with Image.open(path) as opened:
            resized = opened.convert(modes[shape[3]]).resize((shape[2], shape[1]), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise DataError(f"it is no picture that can be read: {one_line(str(error))}") from error
    low, high = pixels
    values: Array = low + np.asarray(resized, np.float32) * np.float32((high - low) / 255)
    return values.reshape(shape)


READERS: Mapping[str, Callable[[Path, Graph, Pixels | None], Given]] = {
    **dict.fromkeys((".npy", ".npz"), _numpy),
    ".bin": _stored,
    ".wav": _sound,
    **dict.fromkeys((".png", ".jpg", ".jpeg"), _picture),
}
"""How a file is read, by the end of its name."""


def expected_outputs(path: Path, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Output -> values in an .npz, or those of the only one in an .npy. `sizes`: how many values each has."""
    try:
        with reading():
            given = _arrays(path)
        is_one = isinstance(given, np.ndarray)
        found: dict[str, Array] = dict.fromkeys(sizes if len(sizes) == 1 else (), given) if is_one else given
        for name, size in sizes.items():
            if name not in found:
                raise DataError(f"it has no values for the output '{one_line(name)}'")
            if found[name].size != size or found[name].dtype.kind not in "fiub":
                raise DataError(f"'{one_line(name)}' takes {size:,} numbers; it has {found[name].size:,}")
    except DataError as error:
        raise DataError(f"{one_line(str(path), 400)}: {error}") from error
    return found


def labels(path: Path, data: Sequence[Recording]) -> list[int]:
    """A class for each recording or for each run: whole numbers in an .npy, one on each line of a text, or lines
    `file,class` of a .csv."""
    where = one_line(str(path), 400)
    try:
        with reading():
            found = list(_classes(path, data))
    except (ValueError, EOFError, IndexError) as error:
        raise DataError(f"{where}: {one_line(str(error))}; labels are whole numbers from 0, one for each") from error
    runs = sum(len(one.runs) for one in data)
    if len(found) not in (len(data), runs):
        raise DataError(f"{where}: {len(found)} labels for {len(data)} recordings of {runs} runs in all")
    if min(found) < 0:
        raise DataError(f"{where}: {min(found)} is no class: they count from 0")
    return found


def _classes(path: Path, data: Sequence[Recording]) -> Iterator[int]:
    if path.suffix.lower() == ".npy":
        values = np.load(path, allow_pickle=False)
        if values.dtype.kind not in "iu":
            raise ValueError(f"it holds {values.dtype}")
        yield from values.reshape(-1).tolist()
    elif path.suffix.lower() == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            known = {row[0]: int(row[1]) for row in csv.reader(file) if row}
        for one in data:
            if one.name not in known:
                raise ValueError(f"no line for '{one_line(one.name)}'")
            yield known[one.name]
    else:
        yield from map(int, path.read_text(encoding="utf-8").split())

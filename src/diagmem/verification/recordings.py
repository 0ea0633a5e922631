"""Somebody's own data, from files: arrays, sound, pictures, stored bytes, labels. What a file does not say is asked
for, never guessed."""

from __future__ import annotations

import csv
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diagmem.model.errors import DiagmemError, PlanError, content_of, install_command, one_line
from diagmem.model.graph import DType, Graph, Tensor
from diagmem.ops.kind import Array
from diagmem.verification.running import Given, by_run, taken

Pixels = tuple[float, float]
"""What the darkest and the brightest value of a picture become."""


class DataError(DiagmemError):
    """Data or labels that cannot be used as they are."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What one file holds: stored values of each input, for one run or several in a row. State begins anew with it.
    `hertz`: how many samples of sound it has in a second. `reals`: the numbers of which the runs hold the nearest
    stored ones, where there is one input and the file has such."""

    name: str
    runs: Sequence[Sequence[Array]]
    hertz: int | None = None
    reals: Array | None = None


def recordings(path: Path, graph: Graph, is_raw: bool = False, pixels: Pixels | None = None) -> list[Recording]:
    """The data in a file, or in each file below a folder that is of a known kind, in the order of their names."""
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in READERS and file.is_file())
        if not found:
            raise DataError(f"{one_line(str(path))}: no file in it is one of {', '.join(READERS)}")
        data = [_recording(file, str(file.relative_to(path)), graph, is_raw, pixels) for file in found]
        rates = {one.hertz: one.name for one in data if one.hertz is not None}
        if len(rates) > 1:
            told = ", ".join(f"'{one_line(name)}' has {rate} Hz" for rate, name in sorted(rates.items())[:2])
            raise DataError(
                f"{one_line(str(path))}: {told}; bring all sound to the rate that the model was trained with"
            )
        return data
    return [_recording(path, path.name, graph, is_raw, pixels)]


def _recording(path: Path, name: str, graph: Graph, is_raw: bool, pixels: Pixels | None) -> Recording:
    suffix = path.suffix.lower()
    try:
        if suffix not in READERS:
            raise DataError(f"its name ends in none of {', '.join(READERS)}")
        given = READERS[suffix](content_of(path), graph, pixels)
        values, hertz = given if isinstance(given, _Sound) else (given, None)
        is_stored = is_raw or suffix == ".bin"
        reals = None if is_stored or isinstance(values, Mapping) else by_run(np.asarray(values), _only_input(graph))
        return Recording(name, taken(graph, values, is_stored), hertz, reals)
    except (DataError, PlanError) as error:
        raise DataError(f"{one_line(str(path), 400)}: {error}") from error


def _only_input(graph: Graph) -> Tensor:
    if len(graph.inputs) != 1:
        names = ", ".join(one_line(graph.tensors[t].name) for t in graph.inputs)
        raise DataError(f"the model has {len(graph.inputs)} inputs ({names}): give an .npz with an array for each")
    return graph.tensors[graph.inputs[0]]


def _numpy(data: bytes, graph: Graph, _: Pixels | None) -> Given:
    found: Given = _arrays(data)
    if isinstance(found, np.ndarray):
        _only_input(graph)
    return found


def _arrays(data: bytes) -> Any:
    """The array in an .npy, or those in an .npz by their names."""
    try:
        # Objects would run code.
        found: Any = np.load(io.BytesIO(data), allow_pickle=False)
        return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"it is no array that numpy reads without pickle: {one_line(str(error))}") from error


def _stored(data: bytes, graph: Graph, _: Pixels | None) -> Given:
    """Bytes as the inputs hold them, one after the other, for one run or more."""
    tensors = [graph.tensors[t] for t in graph.inputs]
    each = sum(tensor.size_bytes for tensor in tensors)
    if not data or len(data) % each:
        raise DataError(f"it holds {len(data):,} bytes; the inputs of a run take {each:,}")
    rows, found, at = np.frombuffer(data, np.uint8).reshape(-1, each), {}, 0
    for tensor in tensors:
        part = np.ascontiguousarray(rows[:, at : at + tensor.size_bytes])
        found[tensor.name] = part.view(tensor.dtype.numpy).reshape(-1, *tensor.shape)
        at += tensor.size_bytes
    return found


class _Sound(NamedTuple):
    """`values`: samples from -1 to 1, [time, channel]."""

    values: Array
    hertz: int


def _wave(data: bytes) -> _Sound:
    """A WAV file of plain samples: whole numbers of 8 to 32 bits, or real ones."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise DataError("it is no WAV file")
    at, chunks = 12, dict[bytes, bytes]()
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        chunks.setdefault(name, data[at + 8 : at + 8 + size])
        # A length that was not known yet is told as the largest.
        if len(chunks[name]) < size < 2**32 - 1 and name in (b"fmt ", b"data"):
            raise DataError(f"it is a WAV file that ends {size - len(chunks[name]):,} bytes early")
        at += 8 + size + size % 2
    told, raw = chunks.get(b"fmt ", b""), chunks.get(b"data")
    if len(told) < 16 or raw is None:
        raise DataError("it is a WAV file without format or samples")
    sort, channels, hertz, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", told)
    pcm, real, elsewhere = 1, 3, 0xFFFE
    if sort == elsewhere and len(told) >= 26:
        sort = int.from_bytes(told[24:26], "little")
    is_known = bits in {pcm: (8, 16, 24, 32), real: (32, 64)}.get(sort, ())
    if not is_known or frame_bytes != channels * bits // 8 or not channels:
        raise DataError(
            f"its samples have {bits} bits in format {sort}; 8, 16, 24 or 32 bits, or real numbers are read"
        )
    raw = raw[: len(raw) // frame_bytes * frame_bytes]
    if sort == real:
        found = np.frombuffer(raw, f"<f{bits // 8}").astype(np.float64)
    elif bits == 8:
        found = (np.frombuffer(raw, np.uint8).astype(np.float64) - 128) / 128
    else:
        # The bytes of a sample become the high ones of 32 bits.
        wide = np.zeros((len(raw) * 8 // bits, 4), np.uint8)
        wide[:, 4 - bits // 8 :] = np.frombuffer(raw, np.uint8).reshape(-1, bits // 8)
        found = wide.view("<i4").reshape(-1) / 2.0**31
    return _Sound(found.reshape(-1, channels), hertz)


def _sound(data: bytes, graph: Graph, _: Pixels | None) -> _Sound:
    """Samples, as many for each run as the input holds: whole numbers of 16 bits where the model takes such, else from
    -1 to 1."""
    tensor, (samples, hertz) = _only_input(graph), _wave(data)
    channels = samples.shape[1]
    if channels not in (1, tensor.shape[-1] if tensor.shape else 1):
        raise DataError(f"it has {channels} channels, and the input takes one: mix them, or keep one of them")
    count = samples.size // max(1, tensor.elems)
    if not count:
        raise DataError(f"it holds {samples.size:,} samples; the input takes {tensor.elems:,}")
    frames = samples.reshape(-1)[: count * tensor.elems].reshape(count, *tensor.shape)
    if tensor.dtype is DType.INT16 and tensor.quantisation is None:
        return _Sound(np.asarray(np.clip(np.rint(frames * 32768), -32768, 32767)), hertz)
    return _Sound(frames.astype(np.float32), hertz)


def _picture(data: bytes, graph: Graph, pixels: Pixels | None) -> Given:
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
        with Image.open(io.BytesIO(data)) as opened:
            resized = opened.convert(modes[shape[3]]).resize((shape[2], shape[1]), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise DataError(f"it is no picture that can be read: {one_line(str(error))}") from error
    low, high = pixels
    values: Array = low + np.asarray(resized, np.float32) * np.float32((high - low) / 255)
    return values.reshape(shape)


READERS: Mapping[str, Callable[[bytes, Graph, Pixels | None], Given | _Sound]] = {
    **dict.fromkeys((".npy", ".npz"), _numpy),
    ".bin": _stored,
    ".wav": _sound,
    **dict.fromkeys((".png", ".jpg", ".jpeg"), _picture),
}
"""How a file is read, by the end of its name."""


def expected_outputs(path: Path, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Output -> values in an .npz, or those of the only one in an .npy. `sizes`: how many values each has."""
    try:
        given = _arrays(content_of(path))
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
    `file,class` or `file,classes,class` of a .csv."""
    where = one_line(str(path), 400)
    try:
        found = list(_classes(path.suffix.lower(), content_of(path), data))
    except (ValueError, EOFError, csv.Error) as error:
        raise DataError(f"{where}: {one_line(str(error))}; labels are whole numbers from 0, one for each") from error
    runs = sum(len(one.runs) for one in data)
    if len(found) not in (len(data), runs):
        raise DataError(f"{where}: {len(found)} labels for {len(data)} recordings of {runs} runs in all")
    if min(found) < 0:
        raise DataError(f"{where}: {min(found)} is no class: they count from 0")
    return found


def _classes(suffix: str, content: bytes, data: Sequence[Recording]) -> Iterator[int]:
    if suffix == ".npy":
        values = np.load(io.BytesIO(content), allow_pickle=False)
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
            raise ValueError(f"it holds {getattr(values, 'dtype', 'several arrays')}")
        yield from values.reshape(-1).tolist()
        return
    text = content.decode("utf-8-sig")
    if suffix != ".csv":
        yield from map(int, text.split())
        return
    # MLPerf Tiny's own files have the number of classes between.
    known = {row[0]: row[2 if len(row) in (3, 5) else 1] for row in csv.reader(text.splitlines()) if len(row) > 1}
    for one in data:
        if one.name not in known:
            raise ValueError(f"no line for '{one_line(one.name)}'")
        yield int(known[one.name])

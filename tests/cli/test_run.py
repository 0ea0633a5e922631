"""`diagmem run`: files of every kind, labels, several models, and what is wrong with data in one line."""

from __future__ import annotations

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import diagmem
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType
from diagmem.ops.kind import Array
from diagmem.verification.recordings import recordings
from diagmem.verification.reference import runs, sample_inputs
from diagmem.verification.running import taken
from tests import state_files
from tests.cli.calling import call
from tests.streams import stream
from tests.verification.test_running import GRAPH, INPUT, MODEL, OUTPUT

STREAM = stream(0)
RNG = np.random.default_rng(0)
DATA = RNG.normal(0, 2, (20, 8, 6, 3)).astype(np.float32)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The model, and data with labels of which it gets 15 of 20 right."""
    (tmp_path / "net.tflite").write_bytes(MODEL)
    np.save(tmp_path / "x.npy", DATA)
    right = diagmem.run(MODEL, DATA)[OUTPUT.name].argmax(axis=1)
    np.save(tmp_path / "y.npy", np.where(np.arange(20) < 15, right, (right + 1) % 4))
    return tmp_path


def test_scores_and_outputs(place: Path) -> None:
    """Accuracy as it must be, and all outputs in a file."""
    asked = ["--input", str(place / "x.npy"), "--labels", str(place / "y.npy"), "-o", str(place / "out.npy")]
    done = call("run", str(place / "net.tflite"), *asked, "--json", str(place / "found.json"))
    assert done.returncode == 0, done.stderr
    assert "75.00 %" in done.stdout
    (found,) = json.loads((place / "found.json").read_text())["models"]
    assert (found["name"], found["on"], found["accuracy"], found["runs"]) == ("net", "host", 0.75, 20)
    assert found["outputs"] == [{"name": OUTPUT.name, "shape": [1, 4], "type": "int8"}]
    assert found["cost"]["ram"]["arena_bytes"] > 0
    np.testing.assert_array_equal(np.load(place / "out.npy"), diagmem.run(MODEL, DATA)[OUTPUT.name])


def test_several_models_against_one(place: Path) -> None:
    """A row for each; a model is no way off from itself."""
    b = Builder("other", DType.INT8)
    x = b.conv(b.input(1, 8, 6, 3), 4, 3, 2)
    other = to_tflite(b.graph(b.softmax(b.fully_connected(b.flatten(x), 4))))
    (place / "other.tflite").write_bytes(other)
    models = [str(place / "net.tflite"), str(place / "other.tflite")]
    done = call("run", *models, "--input", str(place / "x.npy"), "--against", models[0], "--json", "-")
    own, its = (one["error"][0] for one in json.loads(done.stdout)["models"])
    assert (own["largest"], own["snr_db"]) == (0, None)
    wanted = diagmem.run(other, DATA)
    assert its["largest"] == pytest.approx(
        np.abs(next(iter(wanted.values())) - diagmem.run(MODEL, DATA)[OUTPUT.name]).max()
    )


def test_a_folder_of_files(place: Path) -> None:
    """Arrays, stored bytes and an .npz with names, in the order of their names, and labels by them."""
    folder = place / "recordings"
    folder.mkdir()
    np.save(folder / "a.npy", DATA[0])
    (folder / "b.bin").write_bytes(b"".join(run[0].tobytes() for run in taken(GRAPH, DATA[1:3])))
    np.savez(folder / "c.npz", **{INPUT.name: DATA[3]})
    (folder / "notes.md").write_text("not data")
    (place / "labels.csv").write_text("c.npz,0\na.npy,1\nb.bin,2\n")
    asked = ["--input", str(folder), "--labels", str(place / "labels.csv"), "-o", str(place / "out.npy")]
    done = call("run", str(place / "net.tflite"), *asked)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(place / "out.npy"), diagmem.run(MODEL, DATA[:4])[OUTPUT.name])
    assert "and" not in call("run", str(place / "net.tflite"), "--input", str(folder)).stdout


def wave_file(samples: Array, sort: int, bits: int, channels: int = 1, hertz: int = 16000) -> bytes:
    """`samples`: real ones from -1 to 1, or whole ones of so many bits. `sort` 0xFFFE tells PCM in an extension."""
    if samples.dtype.kind == "f":
        raw = samples.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        raw = (samples + 128).astype(np.uint8).tobytes()
    else:
        raw = samples.astype("<i4").view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()
    more = struct.pack("<HHIH14s", 22, bits, 0, 1, b"") if sort == 0xFFFE else b""
    form = struct.pack("<HHIIHH", sort, channels, hertz, 0, channels * bits // 8, bits) + more
    chunks = b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
        for name, data in ((b"fmt ", form), (b"LIST", b"odd"), (b"data", raw))
    )
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


@pytest.fixture
def ear(tmp_path: Path) -> Path:
    """A model that takes 40 samples."""
    b = Builder("ear", DType.FLOAT32)
    (tmp_path / "ear.tflite").write_bytes(to_tflite(b.graph(b.fully_connected(b.input(1, 40), 2))))
    return tmp_path


@pytest.mark.parametrize(("sort", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (0xFFFE, 24), (3, 32), (3, 64)])
def test_sound(sort: int, bits: int, ear: Path) -> None:
    """Samples become numbers from -1 to 1, as many for each run as the input holds."""
    if sort == 3:
        wanted: Array = RNG.uniform(-1, 1, 101).astype(np.float32)
        samples = wanted
    else:
        samples = RNG.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), 101)
        samples[:2] = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        wanted = (samples / 2 ** (bits - 1)).astype(np.float32)
    (ear / "x.wav").write_bytes(wave_file(samples, sort, bits))
    (data,) = recordings(ear / "x.wav", diagmem.Source(ear / "ear.tflite").runnable)
    assert (len(data.runs), data.hertz) == (2, 16000)
    np.testing.assert_array_equal(np.concatenate([run[0].ravel() for run in data.runs]), wanted[:80])


def test_sound_as_the_model_takes_it(tmp_path: Path) -> None:
    """Whole numbers of 16 bits where the input has no scale, frames of two channels where it has two."""
    samples = RNG.integers(-32768, 32768, 24)
    (tmp_path / "x.wav").write_bytes(wave_file(samples, 1, 16, 2))
    for dtype, unit in ((DType.INT16, 1), (DType.FLOAT32, 32768)):
        b = Builder("two", dtype)
        graph = b.graph(b.input(1, 6, 2))
        tensor = replace(graph.tensors[graph.inputs[0]], quantisation=None)
        graph = replace(graph, tensors=tuple(tensor if t.index == tensor.index else t for t in graph.tensors))
        (data,) = recordings(tmp_path / "x.wav", graph)
        np.testing.assert_array_equal(data.runs[1][0], (samples[12:].reshape(1, 6, 2) / unit).astype(dtype.numpy))


def test_sound_that_is_refused(ear: Path) -> None:
    """Two channels where one is taken, what ends early, other formats, and rates that differ within a folder."""
    samples, folder = np.zeros(100, np.int64), ear / "sounds"
    folder.mkdir()
    right = wave_file(samples, 1, 16)
    for content, why in (
        (wave_file(samples, 1, 16, 2), "2 channels, and the input takes one"),
        (right[:-20], "ends 20 bytes early"),
        (wave_file(samples, 17, 16), "in format 17"),
        (wave_file(samples, 1, 32)[:36], "without format or samples"),
        (wave_file(samples[:30], 1, 16), "it holds 30 samples; the input takes 40"),
    ):
        (folder / "a.wav").write_bytes(content)
        done = call("run", str(ear / "ear.tflite"), "--input", str(folder))
        assert (done.returncode, done.stderr.count("\n"), why in done.stderr) == (2, 1, True), done.stderr
    (folder / "a.wav").write_bytes(right)
    assert call("run", str(ear / "ear.tflite"), "--input", str(folder)).returncode == 0
    (folder / "b.wav").write_bytes(wave_file(samples, 1, 16, 1, 44100))
    done = call("run", str(ear / "ear.tflite"), "--input", str(folder))
    assert (done.returncode, "'a.wav' has 16000 Hz, 'b.wav' has 44100 Hz" in done.stderr) == (2, True), done.stderr


PLACES = ("cortex-m4", "riscv32", "tflm", "litert")


def test_in_several_places(place: Path) -> None:
    """All give what the host does, in one table; with a changed one it would show as an error."""
    pytest.importorskip("tflite_micro")
    pytest.importorskip("ai_edge_litert")
    if not all(map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm", "riscv64-unknown-elf-gcc"))):
        pytest.skip("needs emulators")
    asked = ["--input", str(place / "x.npy"), "--on", ",".join(("host", *PLACES)), "--json", str(place / "j.json")]
    done = call("run", str(place / "net.tflite"), *asked)
    assert done.returncode == 0, done.stderr
    found = json.loads((place / "j.json").read_text())["models"]
    assert [one["on"] for one in found] == ["host", *PLACES]
    assert [[e["largest"] for e in one["error"]] for one in found] == [[], *[[0]] * 4]
    wanted = diagmem.run(MODEL, DATA)[OUTPUT.name]
    for name in PLACES[1:3]:
        np.testing.assert_array_equal(diagmem.run(MODEL, DATA, on=name)[OUTPUT.name], wanted)


@pytest.mark.parametrize("name", ["tflm", "cortex-m3"])
def test_state_begins_anew_with_each_file(name: str, tmp_path: Path) -> None:
    """In every place, and is kept within one."""
    pytest.importorskip("tflite_micro")
    if not all(map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm"))):
        pytest.skip("needs an emulator")
    (tmp_path / "net.tflite").write_bytes(state_files.to_tflite(STREAM))
    folder = tmp_path / "files"
    folder.mkdir()
    samples = sample_inputs(STREAM, 6)
    names = [STREAM.tensors[t].name for t in STREAM.inputs]
    for file, some in (("a.npz", samples[:2]), ("b.npz", samples[2:])):
        np.savez(folder / file, **{key: np.stack([run[n] for run in some]) for n, key in enumerate(names)})  # type: ignore[arg-type]
    options = ["--input", str(folder), "--raw", "--on", f"host,{name}", "--json", "-"]
    _, other = json.loads(call("run", str(tmp_path / "net.tflite"), *options).stdout)["models"]
    assert all(error["largest"] < (1e-5 if name == "tflm" else 1e-30) for error in other["error"])
    done = call("run", str(tmp_path / "net.tflite"), *options[:3], "--on", name, "-o", str(tmp_path / "y.npz"))
    assert done.returncode == 0, done.stderr
    made = np.load(tmp_path / "y.npz")
    wanted = [[values[t] for t in STREAM.outputs] for values in runs(STREAM, samples, (2,))]
    for number, key in enumerate(made.files):
        np.testing.assert_allclose(made[key].ravel(), np.stack([run[number] for run in wanted]).ravel(), 1e-5, 1e-5)


def test_pictures(place: Path) -> None:
    """Of another size and of grey; nothing is guessed about what pixels become."""
    image = pytest.importorskip("PIL.Image")
    grey = np.full((16, 24), 51, np.uint8)
    image.fromarray(grey).save(place / "x.png")
    asked = ["run", str(place / "net.tflite"), "--input", str(place / "x.png"), "-o", str(place / "out.npy")]
    assert "--pixels" in call(*asked).stderr
    assert call(*asked, "--pixels", "-1..1").returncode == 0
    wanted = diagmem.run(MODEL, np.full((8, 6, 3), -1 + np.float32(51) * np.float32(2 / 255), np.float32))
    np.testing.assert_array_equal(np.load(place / "out.npy"), wanted[OUTPUT.name])


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("x.txt", b"1 2 3", "its name ends in none of"),
        ("x.npy", b"\x93NUMPY\x01\x00", "no array"),
        ("x.npy", b"", "no array"),
        ("x.npz", b"PK\x03\x04", "no array"),
        ("x.bin", b"123", "it holds 3 bytes; the inputs of a run take 144"),
        ("x.wav", b"RIFF....", "no WAV file"),
        ("x.png", b"\x89PNG", "picture"),
    ],
)
def test_data_that_cannot_be_read(place: Path, name: str, content: bytes, why: str) -> None:
    """One line with the file's name, and status 2."""
    (place / name).write_bytes(content)
    done = call("run", str(place / "net.tflite"), "--input", str(place / name), "--pixels", "0..1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert why in done.stderr
    assert name in done.stderr


def test_pickles_are_not_opened(place: Path) -> None:
    """They would run code."""
    np.save(place / "bad.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    done = call("run", str(place / "net.tflite"), "--input", str(place / "bad.npy"))
    assert (done.returncode, "no array" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("0 1 2", "3 labels for 1 recordings of 20 runs"),
        ("0 x", "whole numbers"),
        ("7 " * 20, "has 4 classes"),
        ("-1 " * 20, "0"),
    ],
)
def test_labels_that_do_not_fit(place: Path, content: str, why: str) -> None:
    """One line with what was expected."""
    (place / "labels.txt").write_text(content)
    asked = ["--input", str(place / "x.npy"), "--labels", str(place / "labels.txt")]
    done = call("run", str(place / "net.tflite"), *asked)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert why in done.stderr


def test_expected_outputs(place: Path) -> None:
    """`verify --expect`: OK within the tolerance, else 1 and the value that is off; what does not match is refused."""
    model, y = str(place / "net.tflite"), place / "want.npy"
    made = diagmem.run(MODEL, DATA)[OUTPUT.name]
    np.save(y, made)
    asked = ["verify", model, "--input", str(place / "x.npy"), "--expect", str(y)]
    assert call(*asked).returncode == 0
    made[7, 2] += 0.25
    np.save(y, made)
    done = call(*asked)
    assert (done.returncode, "[7, 2]" in done.stdout) == (1, True)
    assert call(*asked, "--tolerance", "0.3").returncode == 0
    made[0, 0] = np.nan
    np.save(y, made)
    assert call(*asked, "--tolerance", "1e9").returncode == 1
    np.save(y, made[:3])
    done = call(*asked)
    assert (done.returncode, done.stderr.count("\n"), "takes 80 numbers" in done.stderr) == (2, 1, True)
    assert call("verify", model, "--input", str(place / "x.npy")).returncode == 2

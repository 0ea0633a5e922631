"""`diagmem run`: files of every kind, labels, several models, and what is wrong with data in one line."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest

import diagmem
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType
from diagmem.verification.running import taken
from tests.cli.calling import call
from tests.verification.test_running import GRAPH, INPUT, MODEL, OUTPUT

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
    assert (found["score"]["accuracy"], found["score"]["count"]) == (0.75, 20)
    np.testing.assert_array_equal(np.load(place / "out.npy"), diagmem.run(MODEL, DATA)[OUTPUT.name])


def test_several_models_against_one(place: Path) -> None:
    """A row for each; a model is no way off from itself."""
    b = Builder("other", DType.INT8)
    x = b.conv(b.input(1, 8, 6, 3), 4, 3, 2)
    other = to_tflite(b.graph(b.softmax(b.fully_connected(b.flatten(x), 4))))
    (place / "other.tflite").write_bytes(other)
    models = [str(place / "net.tflite"), str(place / "other.tflite")]
    done = call("run", *models, "--input", str(place / "x.npy"), "--against", models[0], "--json", "-")
    own, its = (one["score"]["against"][0] for one in json.loads(done.stdout)["models"])
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


def test_sound(tmp_path: Path) -> None:
    """Samples of 16 bits become numbers from -1 to 1, as many for each run as the input holds."""
    b = Builder("ear", DType.FLOAT32)
    (tmp_path / "ear.tflite").write_bytes(to_tflite(b.graph(b.fully_connected(b.input(1, 40), 2))))
    samples = RNG.integers(-32768, 32768, 100).astype("<i2")
    with wave.open(str(tmp_path / "x.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())
    asked = ["run", str(tmp_path / "ear.tflite"), "--input", str(tmp_path / "x.wav"), "-o", str(tmp_path / "y.npz")]
    done = call(*asked)
    assert done.returncode == 0, done.stderr
    wanted = diagmem.run(tmp_path / "ear.tflite", (samples[:80] / 32768).astype(np.float32).reshape(2, 40))
    (name,) = wanted
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")[name], wanted[name])


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

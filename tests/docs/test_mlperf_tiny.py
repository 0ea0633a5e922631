"""examples/mlperf_tiny.py: data as MLPerf Tiny's runner has them are read, and models judged as it judges them."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diagmem
from tests.cli.calling import call

EXAMPLE = Path(__file__).parents[2] / "examples" / "mlperf_tiny.py"
MODELS = {"ic01": "resnet8_int8", "kws01": "kws_dscnn_int8", "vww01": "vww_96_int8", "ad01": "autoencoder_int8"}
FILES, WINDOWS = 20, 5


def example() -> Any:
    spec = spec_from_file_location("mlperf_tiny", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def contents(name: str) -> list[bytes]:
    """Of the files, as long as the true ones are; sounds have some windows."""
    rng = np.random.default_rng(0)
    if name == "ad01":
        return [rng.normal(0, 20, 640 + 128 * (WINDOWS - 1)).astype("<f4").tobytes() for _ in range(FILES)]
    size = {"ic01": 32 * 32 * 3, "kws01": 490, "vww01": 96 * 96 * 3}[name]
    return [rng.integers(0, 256, size, np.uint8).tobytes() for _ in range(FILES)]


def written(folder: Path, labels: list[int], name: str) -> Path:
    """The files, and the list that names them."""
    folder.mkdir(exist_ok=True)
    window = ",2560,512" if name == "ad01" else ""
    lines = [f"s{n:03}.bin,{2 if window else 12},{label}{window}\r\n" for n, label in enumerate(labels)]
    (folder / "y_labels.csv").write_text("".join(lines))
    for n, data in enumerate(contents(name)):
        (folder / f"s{n:03}.bin").write_bytes(data)
    return folder


@pytest.mark.parametrize("name", ["ic01", "kws01", "vww01"])
def test_classes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of stored values that say what the bytes are, nine of ten get the label that the model gives: that is reached
    where the target is lower, and missed where one more is wrong than may be."""
    module, model = example(), f"zoo:{MODELS[name]}"
    tensor = diagmem.Source(model).runnable.tensors[diagmem.Source(model).runnable.inputs[0]]
    assert tensor.quantisation is not None
    scale, zero = tensor.quantisation.scales[0], tensor.quantisation.zero_points[0]
    # What the example takes for real numbers: pixels in their range, features by the reference model's scale.
    raw = [np.frombuffer(data, np.int8 if name == "kws01" else np.uint8).astype(np.float32) for data in contents(name)]
    units = {"kws01": (0.5847029, 83), "ic01": (1, 0), "vww01": (1 / 255, 0)}[name]
    stored = np.clip(np.rint((np.stack(raw) - units[1]) * units[0] / scale) + zero, -128, 127).astype(np.int8)
    made = diagmem.run(model, stored.reshape(FILES, *tensor.shape[1:]), raw=True)
    right = next(iter(made.values())).argmax(axis=1)
    for wrong in (2, 6):
        labels = [int(label) ^ 1 if n < wrong else int(label) for n, label in enumerate(right)]
        module.main(str(written(tmp_path / name, labels, name)), model)
        said = capsys.readouterr().out
        assert f"accuracy {(FILES - wrong) / FILES:.4f} on {FILES} samples" in said
        assert ("reached" in said) == ((FILES - wrong) / FILES >= module.TASKS[name].target)


def test_odd_sounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The area under the curve of what `diagmem run` says of the same windows."""
    module, model = example(), f"zoo:{MODELS['ad01']}"
    labels = np.random.default_rng(1).integers(0, 2, FILES).tolist()
    module.main(str(written(tmp_path / "ad01", labels, "ad01")), model)
    said = capsys.readouterr().out
    (tmp_path / "npy").mkdir()
    for n, data in enumerate(contents("ad01")):
        values = np.frombuffer(data, "<f4")
        windows = np.stack([values[128 * at : 128 * at + 640] for at in range(WINDOWS)])
        np.save(tmp_path / "npy" / f"{n:03}.npy", windows)
    (tmp_path / "labels.txt").write_text("\n".join(map(str, labels)))
    asked = ["--input", str(tmp_path / "npy"), "--labels", str(tmp_path / "labels.txt"), "--json", "-"]
    (found,) = json.loads(call("run", model, *asked).stdout)["models"]
    assert f"AUC {found['auc']:.4f} on {FILES} samples" in said


def test_its_lists_are_labels_too(tmp_path: Path) -> None:
    """`file,classes,class`, of files that hold stored values."""
    model = f"zoo:{MODELS['kws01']}"
    stored = np.stack([np.frombuffer(data, np.int8) for data in contents("kws01")])
    right = next(iter(diagmem.run(model, stored.reshape(FILES, 49, 10), raw=True).values())).argmax(axis=1)
    labels = [int(label) ^ (n < 5) for n, label in enumerate(right)]
    folder = written(tmp_path / "kws01", labels, "kws01")
    done = call("run", model, "--input", str(folder), "--labels", str(folder / "y_labels.csv"))
    assert done.returncode == 0, done.stderr
    assert "75.00 %" in done.stdout


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ad01, ic01, kws01, vww01"):
        example().main(str(tmp_path), "zoo:resnet8_int8")

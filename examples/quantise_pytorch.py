"""From a PyTorch module to 8-bit integers through onnxruntime's quantiser, and what it costs and loses on a chip.

    pip install . torch onnx onnxscript onnxruntime sympy
    python examples/quantise_pytorch.py build                  # a small network that is trained here
    python examples/quantise_pytorch.py build NUCLEO-L4R5ZI --all-settings

The table has accuracy on the test data, RAM, flash and time of the float32 and the 8-bit files, side by side. For your
own network replace `network`, `data` and `train`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from side_by_side import show

SIDE, CLASSES = 16, 4
BEST = {"per_channel": True, "activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
SETTINGS = {
    "int8": BEST,
    "one_scale": BEST | {"per_channel": False},
    "uint8": BEST | {"activation_type": QuantType.QUInt8},
    "uint8_weights": BEST | {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QUInt8},
    "qoperator": BEST | {"quant_format": QuantFormat.QOperator},
}
"""The first is what docs/quantise.md recommends; the others are to compare with."""


def network() -> torch.nn.Module:
    """Rectifiers right behind convolutions become part of them; so does batch normalisation, when it is exported."""
    layers: list[torch.nn.Module] = []
    for depth, width, stride in ((1, 8, 1), (8, 16, 2), (16, 32, 2)):
        layers += [torch.nn.Conv2d(depth, width, 3, stride, padding=1, bias=False), torch.nn.BatchNorm2d(width)]
        layers.append(torch.nn.ReLU())
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, CLASSES))


def data(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy stripes in four directions."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=random)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    ways = torch.stack([x, y, x + y, x - y])[labels]
    phases = torch.rand(count, 1, 1, generator=random) * 6.3
    images = torch.sin(ways * 0.9 + phases) + torch.randn(count, SIDE, SIDE, generator=random) * 2
    return images[:, None], labels


def train(net: torch.nn.Module) -> None:
    images, labels = data(1024, seed=0)
    optimiser = torch.optim.Adam(net.parameters(), 0.01)
    for step in range(60):
        some = slice(step % 8 * 128, step % 8 * 128 + 128)
        loss = torch.nn.functional.cross_entropy(net(images[some]), labels[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    """A hundred inputs as the chip will see them: their ranges set the scales."""

    def __init__(self, name: str) -> None:
        self.inputs: Iterator[dict[str, Any]] = iter([{name: one[None].numpy()} for one in data(100, seed=1)[0]])

    def get_next(self) -> dict[str, Any] | None:
        return next(self.inputs, None)


def main(folder: Path, chip: str = "NUCLEO-L4R5ZI", *flags: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    net = network()
    train(net)
    real, ready = folder / "float32.onnx", folder / "ready.onnx"
    example = (torch.zeros(1, 1, SIDE, SIDE),)
    # In the mode for inference, one input at a time, and the weights in the file itself.
    torch.onnx.export(net.eval(), example, real, dynamo=True, external_data=False, input_names=["image"])
    quant_pre_process(real, ready)
    made = [real]
    for name in SETTINGS if "--all-settings" in flags else ["int8"]:
        made.append(folder / f"{name}.onnx")
        quantize_static(ready, made[-1], Calibration("image"), **SETTINGS[name])
    images, labels = data(200, seed=2)
    show(made, images.numpy(), labels.numpy(), chip)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

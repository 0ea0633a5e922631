"""Instructions for each multiply-accumulate of our kernels, layer by layer: on a Cortex-M4 plain C, the fastest kernels
for the DSP extension and the floating-point unit, and those of them that take no scratch; on a Cortex-M55 those for
Helium.

One layer is one program with random weights, run once in QEMU, -O2, from the call to its return. What an element takes
that is only moved or compared (ADD, poolings) is given for each output. With a path as argument, the table's picture is
written there as SVG.

With the path of CMSIS-NN's sources in the environment (CMSIS_NN=path) there is a column for its kernels too, built with
the same options and called in the place of ours, with the same numbers.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from cmsis_nn import CmsisNN

from diagmem.model.graph import DType, Node, Padding, Quantisation
from diagmem.ops import kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.reports.drawing import Drawing, line, rect, text
from diagmem.tracing.model import side_by_side
from diagmem.verification.cortex_m import CORES, Memory, run_on_core
from diagmem.verification.reference import sample_inputs
from tests.ops.sampling import activation, constant, node_of

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.ops.fitting import fitted


class Kernels(NamedTuple):
    """A library, and the core that runs it."""

    library: str
    core: str = "cortex-m4"


COLUMNS = {
    "plain C": Kernels("diagmem"),
    "DSP": Kernels("diagmem-dsp"),
    "DSP, no scratch": Kernels("diagmem-dsp/all"),
    "Helium": Kernels("diagmem-mve", "cortex-m55"),
}
OTHER = "CMSIS-NN"
COLOURS = ("t2", "made", "used", "held", "scratch")


class Layer(NamedTuple):
    """A layer by name, as a node without numbers; on 8-bit integers, or on single precision."""

    name: str
    node: Node
    dtype: DType = DType.INT8


class Measured(NamedTuple):
    """Instructions by the name of the library, and what they are divided by."""

    name: str
    per: str
    numbers: tuple[float | None, ...]


def layers() -> list[Layer]:
    """The shapes of MLPerf Tiny's networks, and some that fit the kernels less well."""
    return [
        Layer("conv 3x3x3 -> 8, 48x48, stride 2", _conv((96, 96, 3), 8, 3, 2)),
        Layer("conv 3x3x16 -> 16, 32x32", _conv((32, 32, 16), 16, 3)),
        Layer("conv 3x3x64 -> 64, 8x8", _conv((8, 8, 64), 64, 3)),
        Layer("conv 10x4x1 -> 64, 25x5, stride 2", _conv((49, 10, 1), 64, (10, 4), 2)),
        Layer("pointwise 8 -> 16, 48x48", _conv((48, 48, 8), 16, 1)),
        Layer("pointwise 64 -> 64, 25x5", _conv((25, 5, 64), 64, 1)),
        Layer("pointwise 128 -> 128, 6x6", _conv((6, 6, 128), 128, 1)),
        Layer("pointwise 30 -> 10, 12x12", _conv((12, 12, 30), 10, 1)),
        Layer("depthwise 3x3, 48x48x8", _depthwise((48, 48, 8), 3)),
        Layer("depthwise 3x3, 6x6x128", _depthwise((6, 6, 128), 3)),
        Layer("depthwise 5x5, 12x12x32", _depthwise((12, 12, 32), 5)),
        Layer("fully connected 640 -> 128", _connected(640, 128)),
        Layer("fully connected 64 -> 12", _connected(64, 12)),
        Layer("ADD 32x32x16", _binary("ADD", (32, 32, 16))),
        Layer("MUL 32x32x16", _binary("MUL", (32, 32, 16))),
        Layer("average pool 8x8, 8x8x64", _pool("AVERAGE_POOL_2D", (8, 8, 64), 8)),
        Layer("max pool 2x2, 16x16x32", _pool("MAX_POOL_2D", (16, 16, 32), 2)),
        Layer("float32 conv 3x3x16 -> 16, 32x32", _conv((32, 32, 16), 16, 3), DType.FLOAT32),
        Layer("float32 pointwise 64 -> 64, 25x5", _conv((25, 5, 64), 64, 1), DType.FLOAT32),
        Layer("float32 depthwise 3x3, 12x12x64", _depthwise((12, 12, 64), 3), DType.FLOAT32),
        Layer("float32 fully connected 640 -> 128", _connected(640, 128), DType.FLOAT32),
    ]


def main(arguments: Sequence[str]) -> None:
    if not shutil.which("arm-none-eabi-gcc") or not shutil.which("qemu-system-arm"):
        print("kernels on Cortex-M4: skipped, for arm-none-eabi-gcc or qemu-system-arm is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        given = os.environ.get("CMSIS_NN")
        other = CmsisNN.built(Path(given), Path(place), CORES["cortex-m4"]) if given else None
        names = [*COLUMNS, *([OTHER] if other else [])]
        print(f"| layer | instructions per | {' | '.join(names)} |")
        print(f"|---|---|{'---:|' * len(names)}")
        found = []
        for layer in layers():
            found.append(measured(layer, other))
            numbers = " | ".join("" if number is None else f"{number:.2f}" for number in found[-1].numbers)
            print(f"| {layer.name} | {found[-1].per} | {numbers} |", flush=True)
    if arguments:
        Path(arguments[0]).write_text(picture(found, names).svg(), encoding="utf-8")


def measured(layer: Layer, other: CmsisNN | None) -> Measured:
    node = _with_numbers(layer)
    macs = kinds()[node.op.kind].macs(node)
    counts = [instructions(node, kernels) for kernels in COLUMNS.values()]
    if other is not None:
        own = other.instead_of(node)
        counts.append(None if own is None else instructions(node, Kernels("diagmem"), own))
    per = macs or node.output.elems
    return Measured(
        layer.name, "MAC" if macs else "output", tuple(None if count is None else count / per for count in counts)
    )


def instructions(node: Node, kernels: Kernels, linked: Sequence[str] = ()) -> int | None:
    program = side_by_side([node], kernels.library)
    run = run_on_core(program, sample_inputs(program.graph, 1), CORES[kernels.core], Memory(linked=tuple(linked)))
    if run.failure is not None or run.instructions is None:
        raise SystemExit(f"{node.op.kind}: {run.failure or 'instructions were not counted'}")
    return run.instructions


def picture(found: Sequence[Measured], names: Sequence[str]) -> Drawing:
    """Bars for the layers that multiply."""
    rows = [row for row in found if row.per == "MAC"]
    left, scale, bar = 250, 60.0, 9
    pitch = (bar + 2) * len(names) + 7
    height = 50 + len(rows) * pitch
    parts = [text(10, 22, "instructions per multiply-accumulate, Cortex-M4; Helium: Cortex-M55", "strong")]
    for n, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        parts += [rect(left + 115 * n, 32, 10, 10, colour), text(left + 15 + 115 * n, 41, name)]
    for n, row in enumerate(rows):
        top = 56 + pitch * n
        parts.append(text(10, top + pitch / 2 - 2, row.name))
        for k, (number, colour) in enumerate(zip(row.numbers, COLOURS, strict=False)):
            if number is not None:
                parts.append(rect(left, top + k * (bar + 2), number * scale, bar, colour))
                parts.append(text(left + number * scale + 5, top + k * (bar + 2) + 8, f"{number:.2f}"))
    parts.append(line(left, 50, left, height, "grid"))
    widest = max(number for row in rows for number in row.numbers if number is not None)
    title = f"Instructions for each multiply-accumulate of layers: {', '.join(names)}"
    return Drawing(left + widest * scale + 50, height + 10, "".join(parts), title)


def _conv(image: Sequence[int], depth: int, kernel: int | tuple[int, int], stride: int = 1) -> Node:
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    inputs = [activation((1, *image)), constant((depth, height, width, image[2])), constant((depth,))]
    return node_of(kinds()["CONV_2D"], "CONV_2D", Conv2D(Padding.SAME, stride, stride), inputs)


def _depthwise(image: Sequence[int], kernel: int) -> Node:
    inputs = [activation((1, *image)), constant((1, kernel, kernel, image[2])), constant((image[2],))]
    return node_of(kinds()["DEPTHWISE_CONV_2D"], "DEPTHWISE_CONV_2D", DepthwiseConv2D(), inputs)


def _connected(size: int, outputs: int) -> Node:
    inputs = [activation((1, size)), constant((outputs, size)), constant((outputs,))]
    return node_of(kinds()["FULLY_CONNECTED"], "FULLY_CONNECTED", FullyConnected(), inputs)


def _binary(name: str, image: Sequence[int]) -> Node:
    return node_of(kinds()[name], name, Binary(), [activation((1, *image)), activation((1, *image))])


def _pool(name: str, image: Sequence[int], kernel: int) -> Node:
    attributes = Pool2D(Padding.VALID, kernel, kernel, kernel, kernel)
    return node_of(kinds()[name], name, attributes, [activation((1, *image))])


def _with_numbers(layer: Layer) -> Node:
    """Integers have weights as converters make them, and outputs as after a ReLU."""
    node = layer.node
    found = next(one for one in (fitted(node, seed) for seed in range(9)) if one.input(0).dtype is layer.dtype)
    has_weights = node.op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    if layer.dtype is DType.FLOAT32 or not has_weights:
        return found
    filters = found.input(1)
    if filters.data is None or found.output.quantisation is None:
        raise SystemExit(f"{node.op.kind}: it has no numbers")
    quiet = replace(filters, data=np.clip(filters.data // 3, -127, 127).astype(np.int8))
    output = replace(found.output, quantisation=Quantisation(found.output.quantisation.scales, (-128,)))
    return replace(found, inputs=(found.inputs[0], quiet, *found.inputs[2:]), outputs=(output,))


if __name__ == "__main__":
    main(sys.argv[1:])

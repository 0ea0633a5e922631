"""Kernels of CMSIS-NN, from sources that the user has, in the place of ours: a layer's program is linked with a
function that calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Node, Window2D
from diagmem.ops.convolution import conv_2d, depthwise_conv_2d
from diagmem.ops.elementwise.binary import product_requantisation, sum_of
from diagmem.ops.numerics.quantised import Requantisation, integer_range, zero_point_of
from diagmem.ops.numerics.weighted_sums import bias_of, requantisation_of
from diagmem.ops.pooling import pool_2d
from diagmem.verification import tools
from diagmem.verification.cortex_m import Core

PARTS = ("BasicMath", "Convolution", "FullyConnected", "NNSupport", "Pooling")
SCRATCH_BYTES = 16384
"""More than any layer of the benchmark asks for."""

START = """
#include <stdint.h>
#include <stddef.h>
#include "arm_nnfunctions.h"
void *model_input_in(void *arena, int index);
const void *model_output_in(const void *arena, int index);
"""

CALL = """
static int32_t scratch[{words}];
static const cmsis_nn_context context = {{scratch, sizeof scratch}};
void __wrap_model_invoke_in(void *arena) {{
    const int8_t *const in = model_input_in(arena, 0);
    int8_t *const out = (int8_t *)(uintptr_t)model_output_in(arena, 0);
    {call};
}}
"""


@dataclass(frozen=True, slots=True)
class CmsisNN:
    """`root`: its sources; `place`: where objects are; `core`: what they are built for."""

    root: Path
    place: Path
    core: Core

    @classmethod
    def built(cls, root: Path, place: Path, core: Core) -> CmsisNN:
        """Compiles what the layers may call."""
        found = cls(root.resolve(), place, core)
        every = (path for part in PARTS for path in (found.root / "Source" / f"{part}Functions").glob("*.c"))
        sources = [path for path in every if not path.stem.endswith(("f16", "f32"))]
        if not sources:
            raise SystemExit(f"CMSIS_NN={root}: there are no sources of CMSIS-NN; give the folder that has Source/")
        found._compile(sorted(map(str, sources)))
        tools.build([core.made_by.tool("ar"), "rcs", "libcmsis_nn.a", *(f"{Path(s).stem}.o" for s in sources)], place)
        return found

    def instead_of(self, node: Node) -> Sequence[str] | None:
        """What the linker is told so that a program of the node calls them; None where there is no such kernel."""
        text = None if node.input(0).dtype is not DType.INT8 else _source(node)
        if text is None:
            return None
        (self.place / "layer.c").write_text(START + text, encoding="utf-8")
        self._compile(["layer.c"])
        return [str(self.place / "layer.o"), str(self.place / "libcmsis_nn.a"), "-Wl,--wrap=model_invoke_in"]

    def _compile(self, sources: Sequence[str]) -> None:
        made_by = self.core.made_by
        flags = [*made_by.flags, *self.core.flags, "-O2", "-ffunction-sections", f"-I{self.root / 'Include'}"]
        tools.build([made_by.tool("gcc"), *flags, "-c", *sources], self.place)


def _source(node: Node) -> str | None:
    kind = node.op.kind
    if kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        return _convolution(node)
    if kind == "FULLY_CONNECTED":
        return _connected(node)
    if kind in ("ADD", "MUL"):
        return _pairwise(node)
    return _pooled(node) if kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D") else None


def _convolution(node: Node) -> str:
    is_depthwise = node.op.kind == "DEPTHWISE_CONV_2D"
    window = (depthwise_conv_2d if is_depthwise else conv_2d).KIND.window(node)
    output = requantisation_of(node, 3 if is_depthwise else 0)
    multiplier = "1, " if is_depthwise else ""
    offsets = f"{-zero_point_of(node.input(0))}, {output.zero_point}, {multiplier}"
    values = f"{offsets}{_steps(window)}, {{1, 1}}, {{{output.low}, {output.high}}}"
    kind, function = ("dw_conv", "depthwise_conv") if is_depthwise else ("conv", "convolve")
    call = (
        f"arm_{function}_wrapper_s8(&context, &how, &scales, &image, in, &kernel, filter, &channels, bias, &made, out)"
    )
    scales = "static const cmsis_nn_per_channel_quant_params scales = {mantissa, shift};"
    how = f"static const cmsis_nn_{kind}_params how = {{{values}}};"
    return _weighted(node, output) + "\n".join([scales, how]) + _called(call)


def _connected(node: Node) -> str:
    output = requantisation_of(node, 0)
    offsets = f"{-zero_point_of(node.input(0))}, 0, {output.zero_point}, {{{output.low}, {output.high}}}"
    filters = node.input(1).quantisation
    per_channel = int(filters is not None and filters.per_channel)
    outputs, size = node.input(1).shape
    dims = f"static const cmsis_nn_dims rows = {{{node.input(0).elems // size}, 1, 1, {size}}};\n"
    dims += f"static const cmsis_nn_dims weights = {{{size}, 1, 1, {outputs}}};\n"
    dims += f"static const cmsis_nn_dims found = {{{node.input(0).elems // size}, 1, 1, {outputs}}};\n"
    how = f"static const cmsis_nn_fc_params how = {{{offsets}}};\n"
    how += f"static const cmsis_nn_quant_params scales = {{mantissa, shift, {per_channel}}};"
    operands = "&rows, in, &weights, filter, &found, bias, &found, out"
    call = f"arm_fully_connected_wrapper_s8(&context, &how, &scales, {operands})"
    return _tables(node, output) + dims + how + _called(call)


def _pairwise(node: Node) -> str:
    first, second = (-zero_point_of(node.input(i)) for i in (0, 1))
    other = "(const int8_t *)model_input_in(arena, 1)"
    if node.op.kind == "MUL":
        end = _ending(product_requantisation(node))
        return _called(f"arm_elementwise_mul_s8(in, {other}, {first}, {second}, out, {end}, {node.output.elems})")
    way = sum_of(node)
    (m, shift), (n, other_shift) = way.inputs
    scaled = f"{first}, {m}, {shift}, {second}, {n}, {other_shift}, {way.left_shift}"
    return _called(f"arm_elementwise_add_s8(in, {other}, {scaled}, out, {_ending(way.output)}, {node.output.elems})")


def _pooled(node: Node) -> str:
    low, high = integer_range(node.attributes.activation, node.output)
    window = pool_2d.KIND.window(node)
    how = f"static const cmsis_nn_pool_params how = {{{_steps(window)}, {{{low}, {high}}}}};\n"
    kernel = f"static const cmsis_nn_dims kernel = {{1, {window.rows.kernel}, {window.cols.kernel}, 1}};"
    name = "avgpool" if node.op.kind == "AVERAGE_POOL_2D" else "max_pool"
    return _images(node) + how + kernel + _called(f"arm_{name}_s8(&context, &how, &image, in, &kernel, &made, out)")


def _called(call: str) -> str:
    return CALL.format(words=SCRATCH_BYTES // 4, call=call)


def _steps(window: Window2D) -> str:
    """Strides and padding, width first."""
    cols, rows = window.cols, window.rows
    return f"{{{cols.stride}, {rows.stride}}}, {{{cols.pad_before}, {rows.pad_before}}}"


def _ending(output: Requantisation) -> str:
    return f"{output.zero_point}, {output.mantissas[0]}, {output.shifts[0]}, {output.low}, {output.high}"


def _images(node: Node) -> str:
    return "".join(
        f"static const cmsis_nn_dims {name} = {{{', '.join(map(str, tensor.shape))}}};\n"
        for name, tensor in (("image", node.input(0)), ("made", node.output))
    )


def _weighted(node: Node, output: Requantisation) -> str:
    shape = ", ".join(map(str, node.input(1).shape))
    dims = f"static const cmsis_nn_dims kernel = {{{shape}}}, channels = {{1, 1, 1, {node.output.shape[-1]}}};\n"
    return _images(node) + dims + _tables(node, output)


def _tables(node: Node, output: Requantisation) -> str:
    bias = bias_of(node)
    count = node.output.shape[-1]
    values = np.zeros(count, np.int32) if bias is None else bias.data
    return (
        _table("const int8_t", "filter", node.input(1).data)
        + _table("const int32_t", "bias", values)
        + _table("int32_t", "mantissa", output.mantissas)
        + _table("int32_t", "shift", output.shifts)
    )


def _table(kind: str, name: str, values: npt.NDArray[Any] | None) -> str:
    if values is None:
        raise SystemExit(f"{name}: the layer has no numbers")
    return f"static {kind} {name}[] = {{{', '.join(map(str, values.reshape(-1).tolist()))}}};\n"

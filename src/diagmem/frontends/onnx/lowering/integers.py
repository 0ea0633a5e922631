"""Operators on whole numbers: signs, rests, shifts."""

from __future__ import annotations

from diagmem.frontends.onnx.builder import Value, dtype_of, is_integer, like
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts, composed
from diagmem.frontends.onnx.lowering.arithmetic import binary_of
from diagmem.frontends.onnx.proto import TYPES, OnnxNode


def sign(parts: Parts, x: str) -> None:
    value = parts.im.values[x]
    zero, to = like(value, 0).array, next(n for n, name in TYPES.items() if name == dtype_of(value).value)
    above, below = (parts("Cast", parts(kind, x, zero), to=to) for kind in ("Greater", "Less"))
    parts.end("Sub", above, below)


def modulo(im: Importer, node: OnnxNode) -> Value | None:
    """The rest has the sign of the divisor; with `fmod`, that of the dividend."""
    first, second = im.input(node, 0), im.input(node, 1)
    if not im.attribute(node, "fmod", 0):
        return binary_of(im, "FLOOR_MOD", first, second, node.outputs[0])
    parts, (x, y) = Parts(im, node), node.inputs
    if is_integer(first):
        parts.end("Sub", x, parts("Mul", parts("Div", x, y), y))
    else:
        parts.end("Mul", parts("Sign", x), parts("Mod", parts("Abs", x), parts("Abs", y)))
    return None


LOWERINGS: dict[str, Lowering] = {"Sign": composed(sign), "Mod": modulo}

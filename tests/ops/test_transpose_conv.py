"""TRANSPOSE_CONV gathers exactly what a scattering kernel would have added up."""

from __future__ import annotations

from hypothesis import given

from diagmem.model.graph import Nhwc, Node, Window2D
from diagmem.ops.convolution.transpose_conv import IMAGE, KIND
from diagmem.ops.orders import Order
from tests.ops.cases import nodes_of
from tests.ops.simulation import by_step
from tests.profiles import examples


def scattered(node: Node) -> set[tuple[int, int]]:
    """(output element, image element) by the definition: image pixel (y, x) adds to y*stride - pad + k."""
    attributes, image, out = node.attributes, Nhwc.of(node.input(IMAGE)), Nhwc.of(node.output)
    kernel = Nhwc.of(node.input(1))
    strides = attributes.stride_h, attributes.stride_w
    window = Window2D.resolve(out, (kernel.height, kernel.width), strides, padding=attributes.padding)
    pairs = set()
    for n in range(image.batch):
        for y in range(image.height):
            for x in range(image.width):
                for ky in range(kernel.height):
                    for kx in range(kernel.width):
                        out_y = y * strides[0] - window.rows.pad_before + ky
                        out_x = x * strides[1] - window.cols.pad_before + kx
                        if 0 <= out_y < out.height and 0 <= out_x < out.width:
                            pixel_out = (n * out.height + out_y) * out.width + out_x
                            pixel_in = (n * image.height + y) * image.width + x
                            pairs.add((pixel_out, pixel_in))
    return {
        (pixel_out * out.depth + o, pixel_in * image.depth + i)
        for pixel_out, pixel_in in pairs
        for o in range(out.depth)
        for i in range(image.depth)
    }


@examples(100)
@given(nodes_of(KIND))
def test_gather_equals_scatter(node: Node) -> None:
    """Each output element reads every image element that reaches it, and no other."""
    reads = by_step(KIND.accesses(node, Order.REFERENCE).reads[IMAGE])
    assert {(step, element) for step, elements in reads.items() for element in elements} == scattered(node)

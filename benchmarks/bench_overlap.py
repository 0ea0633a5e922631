"""Time of O_s by each method, over all operations of the paper's eleven models, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable

from diagmem.frontends import zoo
from diagmem.kernels import library
from diagmem.model.graph import Node
from diagmem.ops import kind_of
from diagmem.ops.accesses import replayed_separation
from diagmem.ops.kind import OpKind
from diagmem.ops.orders import Order

PAPER_MODELS = (
    "mobilenet_v1_1.0_224",
    "mobilenet_v1_1.0_224_int8",
    "mobilenet_v1_0.25_224",
    "mobilenet_v1_0.25_128_int8",
    "mobilenet_v2_0.35_224",
    "mobilenet_v2_1.0_224",
    "inception_v4",
    "inception_resnet_v2",
    "nasnet_mobile",
    "densenet_121",
    "resnet50_v2",
)
LARGE_MACS = 100_000_000
ORDER = Order.REFERENCE


def exact(kind: OpKind, node: Node) -> None:
    kind.separation(node, 0, ORDER)


def analytical(kind: OpKind, node: Node) -> None:
    kind.analytical(node, 0)


def algorithmic(kind: OpKind, node: Node) -> None:
    replayed_separation(kind.accesses(node, ORDER), 0, 0, node.input(0).dtype.size_bytes, node.output.dtype.size_bytes)


def seconds(work: Callable[[OpKind, Node], None], ops: list[tuple[OpKind, Node]]) -> float:
    start = time.perf_counter()
    for kind, node in ops:
        work(kind, node)
    return time.perf_counter() - start


def main() -> None:
    print("O_s by method, seconds for all windowed operations of a model (CONV_2D, DEPTHWISE_CONV_2D, pools)")
    print(f"{'':28}{'':5}{'':10}{'':12}{'exact /':>12}{'':13}{'algorithmic / exact,':>24}")
    print(
        f"{'model':28}{'ops':>5}{'exact':>10}{'analytical':>12}{'analytical':>12}{'algorithmic':>13}{'large convs':>24}"
    )
    for name in PAPER_MODELS:
        ops = [
            (kind, node)
            for node in zoo.build(name).nodes
            if (kind := kind_of(node.op.kind)) and kind.analytical(node, 0) is not None
        ]
        fast, line = (min(seconds(work, ops) for _ in range(3)) for work in (exact, analytical))
        slow = seconds(algorithmic, ops)
        large = [(kind, node) for kind, node in ops if node.op.kind == "CONV_2D" and kind.macs(node) > LARGE_MACS]
        ratio = seconds(algorithmic, large) / seconds(exact, large) if large else float("nan")
        print(f"{name:28}{len(ops):5}{fast:10.4f}{line:12.4f}{fast / line:12.2f}{slow:13.2f}{ratio:24.0f}")
    graph = zoo.build("inception_resnet_v2")
    lib = library("diagmem")
    start = time.perf_counter()
    for node in graph.nodes:
        kind, order = kind_of(node.op.kind), lib.order(node)
        if kind and order:
            for position, _ in node.activations():
                kind.separation(node, position, order)
    print(f"all exact overlaps of inception_resnet_v2, every kind: {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()

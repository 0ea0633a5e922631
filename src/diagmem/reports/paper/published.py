"""What the paper prints. KB is 1024 bytes."""

from __future__ import annotations

from dataclasses import dataclass

CITATION = (
    "P. Blacker, C. P. Bridges, S. Hadfield: Diagonal Memory Optimisation for Machine Learning on Micro-controllers"
)

EXAMPLE = "mobilenet_v1_0.25_128_int8"
"""The model that the paper explains itself with."""


@dataclass(frozen=True, slots=True)
class PeakRow:
    """A row of Table III: peak memory in KB. `is_sequential`: one of the six that the paper calls so."""

    model: str
    title: str
    original_kb: int
    optimised_kb: int
    saving: str
    is_sequential: bool


TABLE_III = (
    PeakRow("mobilenet_v1_1.0_224", "MobileNet v1 1.0 224", 4704, 3136, "33.3 %", True),
    PeakRow("mobilenet_v1_1.0_224_int8", "MobileNet v1 1.0 224 (8 bit)", 1176, 784, "33.3 %", True),
    PeakRow("mobilenet_v1_0.25_224", "MobileNet v1 0.25 224", 1176, 786, "33.2 %", True),
    PeakRow("mobilenet_v1_0.25_128_int8", "MobileNet v1 0.25 128 (8 bit)", 96, 64, "33.1 %", True),
    PeakRow("mobilenet_v2_0.35_224", "MobileNet v2 0.35 224", 2940, 2352, "20 %", True),
    PeakRow("mobilenet_v2_1.0_224", "MobileNet v2 1.0 224", 5880, 4704, "20 %", True),
    PeakRow("inception_v4", "Inception v4", 10879, 10079, "7.35 %", False),
    PeakRow("inception_resnet_v2", "Inception ResNet v2", 8399, 5504, "34.4 %", False),
    PeakRow("nasnet_mobile", "Nasnet Mobile", 4540, 4540, "None", False),
    PeakRow("densenet_121", "DenseNet 121", 8624, 8232, "4.55 %", False),
    PeakRow("resnet50_v2", "ResNet 50 v2", 10976, 10976, "None", False),
)


@dataclass(frozen=True, slots=True)
class Layer:
    """An operation of a zoo model by its shapes: (height, width, channels) of input and output."""

    model: str
    source: tuple[int, int, int]
    target: tuple[int, int, int]


TABLE_I = Layer("mobilenet_v2_1.0_224", (112, 112, 96), (56, 56, 96))
"""Specification of the second depthwise convolution "in MobileNet": it is MobileNet v2's."""

TABLE_I_PRINTED = (
    ("input shape (w, h, c)", "112, 112, 96"),
    ("filter shape (w, h, x, y)", "3, 3, 96, 1"),
    ("output shape (w, h, c)", "56, 56, 96"),
    ("stride (w, h)", "2, 2"),
    ("dilation (w, h)", "1, 1"),
)


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """A row of Table II: O_s in bytes as printed, and the layer that the row's label names."""

    title: str
    exact_bytes: int
    estimate_bytes: int
    error: str
    layer: Layer


TABLE_II = (
    EstimateRow(
        *("mobilenet v1 1.0 224", 1204224, 1193376, "0.18 %"),
        Layer("mobilenet_v1_1.0_224", (112, 112, 32), (112, 112, 64)),
    ),
    EstimateRow("mobilenet v2 1.0 224", 1605632, 1598400, "0.15 %", TABLE_I),
    EstimateRow(
        *("Inception ResNet v2", 2746884, 2746884, "0 %"),
        Layer("inception_resnet_v2", (147, 147, 32), (147, 147, 64)),
    ),
)


@dataclass(frozen=True, slots=True)
class Splitting:
    """Section II-A: two operations split by rows of the second one's output."""

    pieces: int
    rows: int
    peak_bytes: int
    repeated_elems: int


SPLITTING = Splitting(4, 18, 66 * 1024, 6144)

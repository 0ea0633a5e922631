"""Small models with weights, and C compilers to try on them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.frontends import tflite
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType, Graph
from diagmem.ops import Activation

COMPILERS = ("gcc", "clang", "arm-none-eabi-gcc")


def tiny(dtype: DType = DType.INT8, name: str = "tiny") -> Graph:
    """A convolution, a residual, and a classifier: most of what the real ones are made of."""
    b = Builder(name, dtype)
    x = b.conv(b.input(1, 8, 8, 3), 8, 3, 2, activation=Activation.RELU)
    y = b.conv(b.depthwise(x, 3), 8, 1)
    x = b.average_pool(b.max_pool(b.add(x, y), 2, 2), 2, 2)
    return with_weights(b.graph(b.softmax(b.fully_connected(b.flatten(x), 5))))


def with_weights(graph: Graph, seed: int = 0) -> Graph:
    return tflite.parse(to_tflite(graph, seed), graph.name)


def program(graph: Graph, **options: Any) -> Program:
    return Program.of(pipeline.plan(graph, **options))


def compiler(name: str) -> str:
    """Its path; skips the test where there is none."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}")
    return path


def write(files: dict[str, bytes], directory: Path) -> None:
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)

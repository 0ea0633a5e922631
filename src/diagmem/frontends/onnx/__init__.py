"""ONNX models. The one entry is `parse`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from diagmem.frontends.checks import check_sizes
from diagmem.frontends.onnx.importer import NEWEST_OPSET, OLDEST_OPSET, Importer
from diagmem.frontends.onnx.lowering import LOWERINGS
from diagmem.frontends.onnx.reading import read_model
from diagmem.frontends.tflite.subgraphs import with_lists_joined
from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph, Shape
from diagmem.ops.signature import check_signatures


def parse(
    content: bytes,
    name: str,
    directory: Path | None = None,
    shapes: Mapping[str, Shape] | None = None,
    channels_last: bool = False,
) -> Graph:
    """The graph in the bytes of an ONNX file. `directory`: where its external data may lie."""
    try:
        model = read_model(content, directory)
        if not OLDEST_OPSET <= model.opset <= NEWEST_OPSET:
            raise ModelError(f"opset {model.opset} is not supported; {OLDEST_OPSET} to {NEWEST_OPSET} are")
        importer = Importer(model, shapes or {}, channels_last)
        graph = importer.graph(name, LOWERINGS)
        graph = with_lists_joined(graph) if importer.looked_at else graph
        check_sizes(graph)
        return check_signatures(graph)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None

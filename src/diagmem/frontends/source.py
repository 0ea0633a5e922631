"""Where a model comes from: a file of TensorFlow Lite or ONNX, bytes, or the zoo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from diagmem.frontends.checks import check_sizes, with_shapes
from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph, Shape
from diagmem.ops.signature import check_signatures

ZOO_PREFIX = "zoo:"
TFLITE_SUFFIX, ONNX_SUFFIX = ".tflite", ".onnx"
TFLITE_MARK, ONNX_START = b"TFL3", b"\x08"


@dataclass(frozen=True)
class Source:
    """A model as it was named: a path to a .tflite or .onnx file, its bytes, `zoo:NAME`, or a graph that has no file.
    It is opened and parsed once, when that is first needed.

    `shapes`: those of inputs, by name, in place of the model's own; all others are inferred anew. `channels_last`:
    images go in and out with their channels last, whatever the order in an ONNX file. `title`: what bytes are called;
    they have no name of their own."""

    model: str | Path | bytes | Graph
    shapes: Mapping[str, Shape] = field(default_factory=dict, hash=False)
    channels_last: bool = False
    title: str = "model"

    @classmethod
    def exported(cls, model: object, example_inputs: Any = None, **rest: Any) -> Source:
        """A module of PyTorch or a model of Keras, through its own exporter. `example_inputs`: what a module of PyTorch
        is called with, a tensor or a tuple of them. `rest`: the other fields."""
        from diagmem.frontends.exporters import exported

        return cls(exported(model, example_inputs), **{"title": type(model).__name__, **rest})

    @property
    def is_from_zoo(self) -> bool:
        return isinstance(self.model, str) and self.model.startswith(ZOO_PREFIX)

    @property
    def name(self) -> str:
        """Its file's name without the suffix, or its name in the zoo."""
        if isinstance(self.model, bytes | Graph):
            return self.title if isinstance(self.model, bytes) else self.model.name
        return str(self.model)[len(ZOO_PREFIX) :] if self.is_from_zoo else Path(self.model).stem

    @property
    def label(self) -> str:
        """As it was named, for messages."""
        return str(self.model) if isinstance(self.model, str | Path) else self.name

    @cached_property
    def content(self) -> bytes:
        """The bytes of the file; for one of the zoo, of the file that it makes with random weights."""
        if isinstance(self.model, bytes):
            return self.model
        if isinstance(self.model, Graph):
            raise ModelError(f"{self.name}: the graph has no file")
        if self.is_from_zoo:
            from diagmem.frontends.tflite.writer import to_tflite

            return to_tflite(self.graph)
        from diagmem.frontends.tflite.reader import content

        return content(Path(self.model))

    @cached_property
    def is_onnx(self) -> bool:
        """Whether it is an ONNX file: by its name, else by its first bytes."""
        if self.is_from_zoo or isinstance(self.model, Graph):
            return False
        if not isinstance(self.model, bytes) and Path(self.model).suffix in (TFLITE_SUFFIX, ONNX_SUFFIX):
            return Path(self.model).suffix == ONNX_SUFFIX
        return self.content[:1] == ONNX_START and self.content[4:8] != TFLITE_MARK

    @property
    def has_file(self) -> bool:
        return not isinstance(self.model, Graph)

    @cached_property
    def graph(self) -> Graph:
        """One of the zoo has no weights."""
        if self.is_from_zoo:
            from diagmem.frontends import zoo

            return with_shapes(zoo.build(self.name), self.shapes)
        return self.runnable

    @cached_property
    def runnable(self) -> Graph:
        """With weights; one of the zoo gets random ones."""
        if isinstance(self.model, Graph):
            graph = with_shapes(self.model, self.shapes)
            check_sizes(graph)
            return check_signatures(graph)
        return self.parsed(self.content)

    def graph_for(self, *needs_weights: object) -> Graph:
        """The graph to plan, with weights if any of these is set: the pool that they are copied to, since how they lie
        there depends on their values; the chip whose flash they take; the core that runs them; a plan that places
        them. To make them for a model of the zoo takes time."""
        return self.runnable if any(needs_weights) else self.graph

    def parsed(self, content: bytes) -> Graph:
        """The graph in another file of the same model."""
        if self.is_onnx:
            from diagmem.frontends import onnx

            folder = None if isinstance(self.model, bytes | Graph) else Path(self.model).parent
            return onnx.parse(content, self.name, folder, self.shapes, self.channels_last)
        from diagmem.frontends import tflite

        return tflite.parse(content, self.name, None if self.is_from_zoo else self.shapes)

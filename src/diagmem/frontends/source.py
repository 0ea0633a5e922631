"""Where a model comes from: a file, bytes, or the zoo."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph
from diagmem.ops.signature import check_signatures

ZOO_PREFIX = "zoo:"


@dataclass(frozen=True)
class Source:
    """A model as it was named: a path to a .tflite file, its bytes, `zoo:NAME`, or a graph that has no file. It is
    opened and parsed once, when that is first needed."""

    model: str | Path | bytes | Graph

    @property
    def is_from_zoo(self) -> bool:
        return isinstance(self.model, str) and self.model.startswith(ZOO_PREFIX)

    @property
    def name(self) -> str:
        """Its file's name without the suffix, or its name in the zoo."""
        if isinstance(self.model, bytes | Graph):
            return "model" if isinstance(self.model, bytes) else self.model.name
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

    @property
    def has_file(self) -> bool:
        return not isinstance(self.model, Graph)

    @cached_property
    def graph(self) -> Graph:
        """One of the zoo has no weights."""
        if self.is_from_zoo:
            from diagmem.frontends import zoo

            return zoo.build(self.name)
        return self.runnable

    @cached_property
    def runnable(self) -> Graph:
        """With weights; one of the zoo gets random ones."""
        if isinstance(self.model, Graph):
            return check_signatures(self.model)
        from diagmem.frontends import tflite

        return tflite.parse(self.content, self.name)

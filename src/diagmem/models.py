"""Where a model comes from: a file, bytes, or the zoo."""

from __future__ import annotations

from pathlib import Path

from diagmem.graph import Graph

ZOO_PREFIX = "zoo:"


def load(model: str | Path | bytes | Graph) -> Graph:
    """The graph of a .tflite file (a path, or its bytes), of `zoo:NAME`, or the graph itself."""
    if isinstance(model, Graph):
        return model
    if isinstance(model, str) and model.startswith(ZOO_PREFIX):
        from diagmem import zoo

        return zoo.build(model[len(ZOO_PREFIX) :])
    from diagmem.frontends import tflite

    return tflite.parse(model, "model") if isinstance(model, bytes) else tflite.read(model)


def name_of(model: str | Path) -> str:
    """What a model is called: its file's name without the suffix, or its name in the zoo."""
    is_zoo = isinstance(model, str) and model.startswith(ZOO_PREFIX)
    return str(model)[len(ZOO_PREFIX) :] if is_zoo else Path(model).stem


def content(model: str | Path) -> bytes:
    """The bytes of a .tflite file; for `zoo:NAME`, of the file that the model makes with random weights."""
    if isinstance(model, str) and model.startswith(ZOO_PREFIX):
        from diagmem import zoo
        from diagmem.zoo.writer import to_tflite

        return to_tflite(zoo.build(model[len(ZOO_PREFIX) :]))
    from diagmem.frontends.tflite import LARGEST_FILE_BYTES

    with Path(model).open("rb") as file:
        return file.read(LARGEST_FILE_BYTES + 1)

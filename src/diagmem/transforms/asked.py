"""Tensors that the firmware asks for by name: values to be found after a run, and the next frames of inputs.

A value that is to be found after the run is an output of the model. The next frame of an input, which is written while
the model runs, is an input that the run leaves alone: it is there before and after it, so it is an output as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph, Tensor


def next_frame_name(name: str) -> str:
    """What the tensor is called that holds the next frame of an input."""
    return f"{name} (next frame)"


def as_asked(model: Graph, keep: Sequence[str], double_buffer: Sequence[str]) -> Graph:
    """The model with more outputs, whose values survive the run, and with places for next frames."""
    return _with_next_frames(_with_kept(model, keep), double_buffer)


def _with_kept(model: Graph, names: Sequence[str]) -> Graph:
    """The values of these tensors survive the run, and have an accessor in C."""
    kept = (tensor_named(model, name).index for name in names)
    outputs = tuple(dict.fromkeys((*model.outputs, *kept)))
    return model if outputs == model.outputs else replace(model, outputs=outputs)


def _with_next_frames(model: Graph, names: Sequence[str]) -> Graph:
    """With a tensor more for each of these inputs, which no op touches; those that are there already stay."""
    tensors, there = list(model.tensors), {tensor.name for tensor in model.tensors}
    for name in (name for name in dict.fromkeys(names) if next_frame_name(name) not in there):
        tensor = tensor_named(model, name)
        if tensor.index not in model.inputs:
            raise PlanError(f"'{one_line(name, 60)}' is no input of the model: it has no next frame")
        tensors.append(replace(tensor, index=len(tensors), name=next_frame_name(name)))
    added = range(len(model.tensors), len(tensors))
    inputs, outputs = (*model.inputs, *added), (*model.outputs, *added)
    return replace(model, tensors=tuple(tensors), inputs=inputs, outputs=outputs) if added else model


def next_frames(graph: Graph, names: Sequence[str]) -> dict[int, int]:
    """For each of these inputs, the tensor that holds its next frame."""
    return {tensor_named(graph, n).index: tensor_named(graph, next_frame_name(n)).index for n in dict.fromkeys(names)}


def tensor_named(graph: Graph, name: str) -> Tensor:
    """The tensor of that name that lies in RAM; PlanError names those that are spelled alike."""
    held = [tensor for tensor in graph.tensors if not tensor.is_constant and tensor.view is None]
    found = [tensor for tensor in held if tensor.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise PlanError(f"{len(found)} tensors are called '{one_line(name, 60)}': this cannot say which")
    import difflib

    near = difflib.get_close_matches(name, [tensor.name for tensor in held], n=3, cutoff=0.5)
    names = near or [tensor.name for tensor in held[:3]]
    hint = " or ".join(f"'{one_line(known, 60)}'" for known in names)
    raise PlanError(f"no tensor in RAM is called '{one_line(name, 60)}'; did you mean {hint}?")


def check_external(graph: Graph, names: Sequence[str]) -> None:
    """Only what comes from the caller, or goes there, can lie with it."""
    for name in names:
        if tensor_named(graph, name).index not in (*graph.inputs, *graph.outputs):
            raise PlanError(f"'{one_line(name, 60)}' is no input or output of the model: it cannot lie with the caller")

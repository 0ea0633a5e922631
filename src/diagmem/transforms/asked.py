"""Tensors that the firmware asks for by name: values to be kept after a run, and the next frames of inputs.

A value that is kept is an output of the model. The next frame of an input is written while the model runs, so it is an
input that no op touches, and an output as well.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph, Tensor


def next_frame_name(name: str) -> str:
    """What the tensor is called that holds the next frame of an input."""
    return f"{name} (next frame)"


def as_asked(model: Graph, keep: Sequence[str], double_buffer: Sequence[str], apart: Collection[str]) -> Graph:
    """The model with `keep` among its outputs, so that their values survive the run and have an accessor in C, and with
    one more tensor for each input in `double_buffer` that has no next frame yet. Tensors in `apart` become no parts of
    others."""
    kept = (tensor_named(model, name).index for name in keep)
    outputs = tuple(dict.fromkeys((*model.outputs, *kept)))
    own = frozenset(t.index for t in model.tensors if t.name in apart)
    model = model if (outputs, own) == (model.outputs, model.apart) else replace(model, outputs=outputs, apart=own)
    tensors, there = list(model.tensors), {tensor.name for tensor in model.tensors}
    for name in (name for name in dict.fromkeys(double_buffer) if next_frame_name(name) not in there):
        tensor = tensor_named(model, name)
        if tensor.index not in model.inputs:
            raise PlanError(f"'{one_line(name, 60)}' is not an input of the model: it has no next frame")
        tensors.append(replace(tensor, index=len(tensors), name=next_frame_name(name)))
    added = range(len(model.tensors), len(tensors))
    inputs, outputs = (*model.inputs, *added), (*model.outputs, *added)
    return replace(model, tensors=tuple(tensors), inputs=inputs, outputs=outputs) if added else model


def next_frames(graph: Graph, names: Sequence[str]) -> dict[int, int]:
    """For each of these inputs, the tensor that holds its next frame."""
    return {tensor_named(graph, n).index: tensor_named(graph, next_frame_name(n)).index for n in dict.fromkeys(names)}


def tensor_named(graph: Graph, name: str) -> Tensor:
    """The tensor of that name in RAM; a PlanError suggests similar names."""
    held = [tensor for tensor in graph.tensors if not tensor.is_constant and tensor.view is None]
    found = [tensor for tensor in held if tensor.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise PlanError(f"{len(found)} tensors are called '{one_line(name, 60)}': the name is ambiguous")
    import difflib

    near = difflib.get_close_matches(name, [tensor.name for tensor in held], n=3, cutoff=0.5)
    names = near or [tensor.name for tensor in held[:3]]
    hint = " or ".join(f"'{one_line(known, 60)}'" for known in names)
    raise PlanError(f"no tensor in RAM is called '{one_line(name, 60)}'; did you mean {hint}?")


def check_external(graph: Graph, names: Sequence[str]) -> None:
    """Only inputs and outputs can lie in the caller's memory."""
    for name in names:
        if tensor_named(graph, name).index not in (*graph.inputs, *graph.outputs):
            raise PlanError(f"'{one_line(name, 60)}' is not an input or output of the model: the caller cannot hold it")

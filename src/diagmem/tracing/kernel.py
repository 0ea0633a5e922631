"""Kernels that are not ours: a call, the files that the kernel is in, and where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagmem.frontends.source import Source
from diagmem.model.errors import TraceError, content_of, one_line
from diagmem.model.graph import Graph, Node
from diagmem.model.tables import parsed_toml
from diagmem.tracing import cortex_m, native
from diagmem.tracing.calls import Call, Role, parse_call
from diagmem.tracing.recording import Executable
from diagmem.tracing.toolchain import Elf, Machine

NATIVE = "x86"
PLACES = (NATIVE, *cortex_m.CORES)
"""Where code can be traced."""

DEFAULT_CORE = "cortex-m4"
_ARCHIVE = b"!<arch>\n"


@dataclass(frozen=True, slots=True)
class KernelCall:
    """`node`: the operation of a model that the call computes, if given."""

    call: Call
    node: Node | None = None


def read_calls(text_or_path: str) -> list[KernelCall]:
    """A call in writing, or those of a TOML file:

    model = "net.tflite"

    [[calls]]
    call = "conv(input int8[64], output int8[64], constant int8[9])"
    op = 3
    """
    if not text_or_path.endswith(".toml"):
        return [KernelCall(parse_call(text_or_path))]
    path = Path(text_or_path)
    try:
        content = parsed_toml(content_of(path).decode())
    except ValueError as error:
        raise TraceError(f"{path.name}: {error}") from None
    calls, model = content.get("calls"), content.get("model")
    if not isinstance(calls, list) or not calls or not all(isinstance(c, dict) for c in calls):
        raise TraceError(f'{path.name}: it must have at least one [[calls]] with call = "kernel(…)"')
    graph = None if model is None else Source(str(model) if ":" in str(model) else path.parent / str(model)).graph
    return [_kernel_call(f"{path.name}, call {number}", entry, graph) for number, entry in enumerate(calls)]


def _kernel_call(where: str, entry: dict[str, Any], graph: Graph | None) -> KernelCall:
    unknown = sorted(set(entry) - {"call", "op"})
    if unknown or not isinstance(entry.get("call"), str):
        raise TraceError(
            f"{where}: {f'unknown key {one_line(unknown[0])}' if unknown else 'call is missing'}; keys: call, op"
        )
    call, op = parse_call(entry["call"]), entry.get("op")
    if op is None:
        return KernelCall(call)
    if graph is None:
        raise TraceError(f'{where}: op = {one_line(str(op))} needs a model; add model = "FILE.tflite" above the calls')
    if not isinstance(op, int) or not 0 <= op < len(graph.ops):
        raise TraceError(f"{where}: op = {one_line(str(op))}; the model's ops are 0 to {len(graph.ops) - 1}")
    # A call that computes an operation has the operation's inputs in RAM and its outputs, in the same order.
    node = graph.nodes[op]
    for role, tensors in ((Role.INPUT, [t for _, t in node.activations()]), (Role.OUTPUT, list(node.outputs))):
        given, needed = [len(p) for p in call.places(role)], [t.size_bytes for t in tensors]
        if given != needed:
            raise TraceError(f"{where}: {role.value}s of {given} bytes; {node.label} has {needed}")
    return KernelCall(call, node)


def kernel_program(call: Call, files: Sequence[Path], on: str | None, place: Path) -> tuple[Executable, str]:
    """The program that makes the call, built in the directory `place`, and where it runs. `files`: objects, archives or
    one linked ELF file; `on`: None for the machine that they are built for, Cortex-M4 for ARM."""
    elfs = [Elf.read(path) for path in files if content_of(path)[: len(_ARCHIVE)] != _ARCHIVE]
    machines = {elf.machine for elf in elfs}
    if len(machines) > 1:
        raise TraceError("the files are built for different machines: " + ", ".join(e.name for e in elfs))
    is_native = on == NATIVE if on or not machines else machines == {Machine.X86_64}
    if machines and is_native != (machines == {Machine.X86_64}):
        raise TraceError(f"{elfs[0].name}: built for {elfs[0].machine.name}, which does not run on {on}")
    if is_native:
        return native.build_call(call, files, place), NATIVE
    core = cortex_m.CORES[on or DEFAULT_CORE]
    if len(files) == 1 and elfs and not elfs[0].is_object:
        return cortex_m.CortexMProgram(elfs[0], call, core), core.name
    linked = cortex_m.linked(files, call.function, core, place)
    return cortex_m.CortexMProgram(Elf.read(linked), call, core), core.name

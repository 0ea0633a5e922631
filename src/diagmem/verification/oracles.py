"""Other people's runtimes, where they are installed: a second opinion on what numpy computes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.model_chain import Wired, order_of
from diagmem.frontends.onnx.proto import read_model
from diagmem.frontends.source import Source
from diagmem.frontends.tflite import has_shapes_of_file
from diagmem.model.graph import DType, Graph, Node
from diagmem.ops.state import changed_variables
from diagmem.verification import reference, tflm
from diagmem.verification.deviations import LITERT, ONNXRUNTIME, TFLM, Deviation, deviations
from diagmem.verification.harness import Inputs
from diagmem.verification.inputs import restarts
from diagmem.verification.reference import differing
from diagmem.verification.tflm import TflmError

RELATIVE_TOLERANCE = 1e-4
"""Of the largest output, for float32: runtimes add up in different orders. Integers must be equal."""

Array = npt.NDArray[Any]
Outputs = Sequence[Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Opinion:
    """What another runtime makes of a model. `disagreement`: how it differs from numpy, where nothing explains that.
    `deviations`: the documented ones that show, one line each. `is_exact`: float32 outputs are the same bit for bit."""

    oracle: str
    disagreement: str | None = None
    deviations: tuple[str, ...] = ()
    is_exact: bool = False


def second_opinion(source: Source, graph: Graph, inputs: Inputs) -> Opinion | None:
    """What a runtime that is installed has to say; None where there is none, or where it does not run the model, which
    says nothing against ours."""
    if source.is_onnx:
        return _onnxruntime_opinion(source, graph, inputs)
    content = source.content
    for name, run in ((TFLM, _tflm), (LITERT, _litert)):
        if _is_judge(name, content, graph):
            try:
                return _compared(name, graph, inputs, run(content, graph, inputs))
            except (TflmError, ValueError, RuntimeError):
                continue
    return None


def _onnxruntime_opinion(source: Source, graph: Graph, inputs: Inputs) -> Opinion | None:
    if not importlib.util.find_spec("onnxruntime"):
        return None
    try:
        theirs = outputs_of(source, inputs)
    except Refused:
        return None
    return _compared(ONNXRUNTIME, graph, inputs, theirs)


def _is_judge(name: str, content: bytes, graph: Graph) -> bool:
    """LiteRT rounds once where TFLM's kernels, and so ours, round twice: of signed integers it is no judge of single
    bits. Unsigned ones, which TFLM does not know, are computed as LiteRT does. TFLM infers no shapes."""
    if name == TFLM:
        return tflm.is_installed() and has_shapes_of_file(content, graph)
    in_ram = {t.dtype for t in graph.tensors if not t.is_constant}
    return importlib.util.find_spec("ai_edge_litert") is not None and not in_ram & {DType.INT8, DType.INT16}


def _tflm(content: bytes, graph: Graph, inputs: Inputs) -> Outputs:
    tensors = [graph.tensors[t] for t in graph.outputs]
    return [
        [np.frombuffer(raw, t.dtype.numpy).reshape(t.shape) for raw, t in zip(run, tensors, strict=True)]
        for run in tflm.run(content, graph, inputs).outputs
    ]


def _litert(content: bytes, graph: Graph, inputs: Inputs) -> Outputs:
    """Variables start anew where the inputs do."""
    again = restarts(graph, len(inputs))
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    found: list[list[npt.NDArray[Any]]] = []
    for number, run in enumerate(inputs):
        if not number or number in again:
            # Nothing else sets resource variables back.
            interpreter = Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
            for detail, values in zip(interpreter.get_input_details(), run, strict=False):
                interpreter.resize_tensor_input(detail["index"], values.shape)
            interpreter.allocate_tensors()
        for detail, values in zip(interpreter.get_input_details(), run, strict=True):
            interpreter.set_tensor(detail["index"], values)
        interpreter.invoke()
        found.append([interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()])
    return found


def _compared(oracle: str, graph: Graph, inputs: Inputs, theirs: Outputs) -> Opinion:
    """Where the runtime differs from numpy, it must do so as documented: what it is known to compute instead is
    computed too, and where nobody can say what that is, only outputs that depend on it may differ."""
    again = restarts(graph, len(inputs))
    ours = list(reference.runs(graph, inputs, again))
    if _difference(graph, ours, theirs) is None:
        return Opinion(oracle)
    known = list(deviations(oracle, graph))
    instead = {node.op.index: found.theirs for node, found in known if found.theirs is not None}
    unclear = _behind(graph, [node for node, found in known if found.theirs is None])
    documented = list(reference.runs(graph, inputs, again, instead))
    disagreement = _difference(graph, documented, theirs, unclear)
    if disagreement is not None:
        return Opinion(oracle, disagreement)
    return Opinion(oracle, None, tuple(_lines(known)))


def _lines(known: Iterable[tuple[Node, Deviation]]) -> Iterator[str]:
    """One for each deviation, with the first op that shows it."""
    found: dict[Deviation, list[Node]] = {}
    for node, why in known:
        found.setdefault(why, []).append(node)
    for why, nodes in found.items():
        yield f"{nodes[0].label}{f' and {len(nodes) - 1} more' if len(nodes) > 1 else ''}: {why.why}"


def _behind(graph: Graph, nodes: Iterable[Node]) -> frozenset[int]:
    """Tensors that depend on what some nodes compute, in this run or in one before."""
    found = {t for node in nodes for t in node.op.outputs}
    known = -1
    while len(found) > known:
        known = len(found)
        for node in graph.nodes:
            if found.intersection(node.op.inputs):
                found.update((*node.op.outputs, *changed_variables(node)))
    return frozenset(found)


def _difference(
    graph: Graph, ours: Sequence[Mapping[int, Array]], theirs: Outputs, unclear: frozenset[int] = frozenset()
) -> str | None:
    for run, (values, found) in enumerate(zip(ours, theirs, strict=True)):
        for number, (t, their) in enumerate(zip(graph.outputs, found, strict=True)):
            if t not in unclear and not _agrees(values[t], their, graph.tensors[t].dtype):
                return f"input {run}: output {number} is not what numpy computes"
    return None


def _agrees(ours: Array, theirs: Array, dtype: DType) -> bool:
    """What is no number, or infinite, must be so on both sides."""
    if dtype is not DType.FLOAT32:
        return bool(np.array_equal(ours, theirs))
    largest = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=1e-6))
    return bool(np.allclose(ours, theirs, rtol=0, atol=RELATIVE_TOLERANCE * largest, equal_nan=True))


TO_CHANNELS_FIRST, TO_CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


SETTINGS = {False: "session.qdqisint8allowed", True: "session.x64quantprecision"}
"""For 8-bit activations with a sign and without: the one keeps them as they are, the other does not saturate. Both at
once are refused. By default it saturates sums of 8-bit products on processors without dot-product instructions, and
computes parts of a quantised network in float32; with these it computes what the file says on all of them."""


class Refused(Exception):
    """onnxruntime does not run the model."""


def outputs_of(source: Source, inputs: Inputs) -> Outputs:
    """What onnxruntime makes of each run's inputs, in the order of the graph's own."""
    session = _session(source)
    names = [value.name for value in session.get_inputs()]
    turned = source.channels_last
    found = []
    try:
        for run in inputs:
            given = [_turned(values, TO_CHANNELS_FIRST) if turned else values for values in run]
            made = session.run(None, dict(zip(names, given, strict=True)))
            found.append([_turned(values, TO_CHANNELS_LAST) if turned else np.asarray(values) for values in made])
    except Exception as error:
        # It has exceptions of its own for each way in which a model may fail.
        raise Refused(str(error)) from error
    return found


def _session(source: Source) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry(SETTINGS[is_unsigned(source)], "1")
    model = source.content if isinstance(source.model, bytes) else str(source.model)
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Refused(str(error)) from error


def is_unsigned(source: Source) -> bool:
    """Whether activations are quantised to 8 bits without a sign."""
    directory = None if isinstance(source.model, bytes | Graph) else Path(source.model).parent
    model = read_model(source.content, directory)
    zeros = (node.inputs[2] for node in model.nodes if node.kind == "QuantizeLinear" and len(node.inputs) > 2)
    return any(name in model.constants and model.constants[name].dtype == np.uint8 for name in zeros)


def _turned(values: npt.NDArray[Any], axes: tuple[int, ...]) -> npt.NDArray[Any]:
    return values.transpose(axes) if values.ndim == 4 else values


Runs = list[list[Array]]
"""For each run, the values of some tensors."""

ONE_BY_ONE = "the models one by one"


def opinion_of_parts(source: Wired, graph: Graph, inputs: Inputs) -> Opinion:
    """Whether the graph gives what its models give, each of them run with what those before it have given. `graph`:
    that of all, with the inputs. Other runtimes that are installed are asked about each model."""
    made: dict[str, Runs] = {}
    given = _own_inputs(source, inputs)
    deviations: list[str] = []
    for name in order_of(list(source.parts), source.wires):
        part = source.parts[name]
        for wire in (wire for wire in source.wires if wire.reader == name):
            shape = part.runnable.tensors[part.runnable.inputs[wire.input]].shape
            for run, outputs in enumerate(made[wire.maker]):
                given[name][run][wire.input] = outputs[wire.output].reshape(shape)
        single = _single_runs(given[name], source.times(name))
        opinion = second_opinion(part, part.runnable, single) if part.has_file else None
        if opinion is not None and opinion.disagreement is not None:
            return Opinion(opinion.oracle, f"model '{name}': {opinion.disagreement}")
        deviations += [] if opinion is None else [f"model '{name}': {opinion.oracle}: {d}" for d in opinion.deviations]
        made[name] = _outputs(part.runnable, single, source.times(name))
    return Opinion(ONE_BY_ONE, _parts_difference(source, graph, inputs, made), tuple(deviations), is_exact=True)


def _own_inputs(source: Wired, inputs: Inputs) -> dict[str, Runs]:
    """For each model, its inputs as far as the caller gives them; where another model does there is nothing yet."""
    wired = {(wire.reader, wire.input) for wire in source.wires}
    found: dict[str, Runs] = {name: [] for name in source.parts}
    for run in inputs:
        left = iter(run)
        for name, part in source.parts.items():
            count = len(part.runnable.inputs) * source.times(name)
            found[name].append([np.empty(0) if (name, n) in wired else next(left) for n in range(count)])
    return found


def _single_runs(inputs: Inputs, times: int) -> Runs:
    """The inputs of a model that runs several times in each run of all, run by run."""
    return [[run[i] for i in part] for run in inputs for part in np.split(np.arange(len(run)), times)]


def _outputs(graph: Graph, inputs: Inputs, times: int = 1) -> Runs:
    """What a model gives in each run of all, in which it runs several times."""
    again = [times * run for run in restarts(graph, len(inputs) // times)]
    single = [[values[t] for t in graph.outputs] for values in reference.runs(graph, inputs, again)]
    return [
        [np.stack(found) for found in zip(*single[n : n + times], strict=True)] for n in range(0, len(single), times)
    ]


def _parts_difference(source: Wired, graph: Graph, inputs: Inputs, made: dict[str, Runs]) -> str | None:
    """Between the outputs of the graph, and those of its models that are not wired."""
    wired = {(wire.maker, wire.output) for wire in source.wires}
    left = [
        (name, n) for name, p in source.parts.items() for n in range(len(p.runnable.outputs)) if (name, n) not in wired
    ]
    for run, ours in enumerate(_outputs(graph, inputs)):
        for number, (name, output) in enumerate(left):
            if differing(_flat(ours[number]), _flat(made[name][run][output])).any():
                return f"input {run}: output {number} is not what '{name}' gives"
    return None


def _flat(values: Sequence[Any] | Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1)

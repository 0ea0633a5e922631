"""Other people's runtimes, where they are installed: a second opinion on what numpy computes.

Where they are known to differ from what is computed here is the table of docs/compatibility.md, as code: one list for
all who compare. `verify` calls a difference that is in it documented, and the tests of the references leave it out.
Where it is known what the other runtime computes instead, `theirs` computes it, so that a difference can be held
against what is documented, bit for bit.
"""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.reading import read_model
from diagmem.frontends.source import Source
from diagmem.frontends.tflite import has_shapes_of_file
from diagmem.model.errors import DiagmemError, install_command, one_line
from diagmem.model.graph import DType, Graph, Node
from diagmem.model.tables import table, tuples
from diagmem.ops import Activation, kinds
from diagmem.ops.kind import Array, Values
from diagmem.ops.matrix.products import dense_sums
from diagmem.ops.numerics.quantised import quantised, rounds_to_even, scale_of, zero_point_of
from diagmem.ops.numerics.weighted_sums import is_hybrid, is_rounded_once, rounded_once
from diagmem.ops.options import TYPE_CODES
from diagmem.ops.state import changed_variables
from diagmem.transforms.cleanup import drop_dead
from diagmem.verification import reference, tflm
from diagmem.verification.harness import Inputs
from diagmem.verification.reference import Reference, restarts
from diagmem.verification.tflm import TflmError

TFLM, LITERT, ONNXRUNTIME = "tflm", "litert", "onnxruntime"


@dataclass(frozen=True, slots=True)
class Deviation:
    """`applies`: to which nodes of the kinds. `theirs`: what the runtime computes, None where nobody can say."""

    runtime: str
    kinds: tuple[str, ...]
    why: str
    applies: Callable[[Node], bool]
    theirs: Reference | None = None


def deviation(runtime: str, node: Node) -> Deviation | None:
    """Why this runtime is not followed at a node; None: it is."""
    found = (d for d in DEVIATIONS if d.runtime == runtime and node.op.kind in d.kinds and d.applies(node))
    return next(found, None)


def deviations(runtime: str, graph: Graph) -> Iterator[tuple[Node, Deviation]]:
    """The nodes of a graph at which a runtime is not followed."""
    for node in graph.nodes:
        found = deviation(runtime, node)
        if found is not None:
            yield node, found


def _is_rescaled(node: Node) -> bool:
    given, made = node.input(0).quantisation, node.output.quantisation
    return (
        given is not None and made is not None and (given.scales, given.zero_points) != (made.scales, made.zero_points)
    )


def _clamped_as_stored(node: Node, inputs: Values) -> tuple[Array, ...]:
    """RELU6 between the stored numbers that stand for 0 and 6 in the input, whatever the output's scale."""
    data, given = inputs[0], node.input(0)
    assert data is not None
    info = np.iinfo(given.dtype.numpy)
    six = np.clip(quantised(6.0, given), info.min, info.max)
    return (np.clip(data, zero_point_of(given), int(six)).astype(data.dtype).reshape(node.output.shape),)


def _without_activation(node: Node, inputs: Values) -> tuple[Array, ...]:
    attributes = replace(node.attributes, activation=Activation.NONE)
    return kinds()[node.op.kind].reference(replace(node, op=replace(node.op, attributes=attributes)), inputs)


def _has_no_channels(node: Node) -> bool:
    """Blocks along all axes but the first."""
    return len(node.input(0).shape) == 1 + node.input(1).elems


def _is_padded_or_has_no_channels(node: Node) -> bool:
    padding = node.input(2).data
    return _has_no_channels(node) or padding is None or bool(np.any(padding))


def _has_narrow_bias(node: Node) -> bool:
    bias = node.inputs[-1]
    return node.output.dtype is DType.INT16 and bias is not None and bias.dtype is DType.INT32


def _hides_narrow_bias(node: Node) -> bool:
    """The option for the type of biases does not say it."""
    return _has_narrow_bias(node) and getattr(node.attributes, "bias_type", 0) != TYPE_CODES[DType.INT32]


def _is_shifted_out(node: Node) -> bool:
    """A factor of some channel is beyond all shifts of a 32-bit number."""
    data, held, made = (
        node.input(kinds()[node.op.kind].takes.data),
        node.input(1).quantisation,
        node.output.quantisation,
    )
    scales = () if held is None or made is None else held.scales
    return any(scale_of(data) * scale > 2**31 * scale_of(node.output) for scale in scales)


def _dense_rounded_once(node: Node, inputs: Values) -> tuple[Array, ...]:
    sums, bias = dense_sums(node, *inputs[:2]), inputs[2] if len(inputs) > 2 else None
    return (rounded_once(node, sums, bias).reshape(node.output.shape),)


def _leaves_places(node: Node) -> bool:
    """Only classes one by one fill all places with zeros, and then one for each detection alone."""
    return not node.attributes.use_regular_nms or node.attributes.max_classes_per_detection > 1


def _is_no_plain_slice(node: Node) -> bool:
    """Not one slice, from a begin to an end, for each axis."""
    a = node.attributes
    return bool(a.ellipsis_mask or a.new_axis_mask or a.offset) or node.input(1).elems < len(node.input(0).shape)


def _is_own_mean(node: Node) -> bool:
    """A ReduceMean, which onnxruntime computes in float32; a pool of the whole image keeps its axes."""
    return rounds_to_even(node.output) and not node.attributes.keep_dims


def _mean_of_reals(node: Node, inputs: Values) -> tuple[Array, ...]:
    """Float32 values, their mean, and that rounded."""
    data, given = np.asarray(inputs[0]), node.input(0)
    reals = (data.astype(np.int64) - zero_point_of(given)).astype(np.float32) * np.float32(scale_of(given))
    mean = reals.astype(np.float64).mean(axis=tuple(node.input(1).ints)).astype(np.float32)
    found = np.rint(mean / np.float32(scale_of(node.output))) + zero_point_of(node.output)
    return (np.clip(found, -128, 127).astype(np.int8).reshape(node.output.shape),)


def _waits_for_frames(node: Node) -> bool:
    """After the first one, or between stacks."""
    return bool(node.attributes.right) or node.attributes.step > 1


APPLIES: Mapping[str, Callable[[Node], bool]] = {
    "own_mean": _is_own_mean,
    "rescaled": _is_rescaled,
    "rescaled_and_signed": lambda node: _is_rescaled(node) and node.output.dtype is not DType.UINT8,
    "clamped_sum_of_32_bits": lambda node: (
        node.output.dtype is DType.INT32 and node.attributes.activation is not Activation.NONE
    ),
    "no_channels": _has_no_channels,
    "padded_or_no_channels": _is_padded_or_has_no_channels,
    "more_than_four_axes": lambda node: node.input(1).elems > 4,
    "no_plain_slice": _is_no_plain_slice,
    "some_frequencies": lambda node: (node.attributes.start, node.attributes.end) != (0, node.output.elems),
    "waits_for_samples": lambda node: bool(node.attributes.missing),
    "waits_for_frames": _waits_for_frames,
    "several_classes": lambda node: bool(node.attributes.slots > 1),
    "leaves_places": _leaves_places,
    "narrow_bias": _has_narrow_bias,
    "hidden_narrow_bias": _hides_narrow_bias,
    "shifted_out": _is_shifted_out,
    "hybrid": is_hybrid,
    "half_weights": lambda node: node.input(1).dtype is DType.FLOAT16,
    "not_rounded_once": lambda node: node.output.dtype in (DType.INT8, DType.INT16) and not is_rounded_once(node),
    "int8": lambda node: node.output.dtype is DType.INT8,
    "int16": lambda node: node.output.dtype is DType.INT16,
    "no_float32": lambda node: node.input(0).dtype is not DType.FLOAT32,
    "scalar": lambda node: node.output.elems == 1,
}
"""To which nodes a deviation applies, as deviations.toml calls it."""

_THEIRS = (
    *(_mean_of_reals, _clamped_as_stored, _without_activation),
    _dense_rounded_once,
)
THEIRS: Mapping[str, Reference] = {theirs.__name__.lstrip("_"): theirs for theirs in _THEIRS}

DEVIATIONS = tuple(
    Deviation(runtime, row["kinds"], row["why"], APPLIES[row["where"]], THEIRS.get(row.get("theirs", "")))
    for row in tuples(table(__package__, "deviations"))["deviations"]
    for runtime in row["runtimes"]
)
"""Nodes for which a runtime is not followed, and why."""


RELATIVE_TOLERANCE = 1e-4
"""Of the largest output, for float32: runtimes add up in different orders. Integers must be equal."""

Outputs = Sequence[Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Opinion:
    """What another runtime makes of a model; `oracle` is empty where none runs it. `disagreement`: how it differs from
    numpy, where nothing explains that. `deviations`: the documented ones that show, one line each. `is_exact`: float32
    outputs are the same bit for bit. `ops`: how many make the outputs; `unseen`: those of them that nobody has
    compared. `silent`: which runtimes say nothing, and why. `ill_conditioned`: on how many inputs no more can be said
    than that rounding alone may make such a difference."""

    oracle: str = ""
    disagreement: str | None = None
    deviations: tuple[str, ...] = ()
    is_exact: bool = False
    ops: int = 0
    unseen: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    ill_conditioned: int = 0

    @property
    def seen(self) -> int:
        return self.ops - len(self.unseen)


class Refused(DiagmemError):
    """A runtime is not there, or does not run the model."""


def second_opinion(source: Source, graph: Graph, inputs: Inputs) -> Opinion:
    """What a runtime that is installed has to say: TensorFlow Lite Micro, and LiteRT where that does not run the model
    or leaves something open. That one does not run it says nothing against ours."""
    labels = tuple(node.label for node in _makers(graph, graph.outputs))
    found = Opinion(ops=len(labels), unseen=labels)
    if not source.has_file:
        return replace(found, silent=("it has no file that another runtime could read",))
    for name in (ONNXRUNTIME,) if source.is_onnx else (TFLM, LITERT):
        try:
            theirs = outputs_in(name, source, graph, inputs, restarts(graph, len(inputs)))
        except (Refused, TflmError) as reason:
            found = replace(found, silent=(*found.silent, f"{name}: {reason}"))
            continue
        opinion = replace(_compared(name, graph, inputs, theirs), ops=len(labels), silent=found.silent)
        if opinion.disagreement is not None or not opinion.unseen:
            return opinion
        found = min(opinion, found, key=lambda either: len(either.unseen))
    return found


def outputs_in(runtime: str, source: Source, graph: Graph, inputs: Inputs, again: Sequence[int]) -> Outputs:
    """What a runtime makes of each run's inputs, in the order of the graph's outputs. `again`: before which runs state
    begins anew."""
    if source.is_onnx != (runtime == ONNXRUNTIME):
        raise Refused(f"it runs {'.onnx' if runtime == ONNXRUNTIME else '.tflite'} files only")
    if runtime == ONNXRUNTIME:
        return outputs_of(source, inputs)
    return (_tflm if runtime == TFLM else _litert)(source.content, graph, inputs, again)


def _makers(graph: Graph, outputs: Sequence[int]) -> list[Node]:
    """The nodes on which some of the outputs depend."""
    numbers = {op.number for op in drop_dead(replace(graph, outputs=tuple(outputs)), lambda op: True).ops}
    return [node for node in graph.nodes if node.op.number in numbers]


def _tflm(content: bytes, graph: Graph, inputs: Inputs, again: Sequence[int]) -> Outputs:
    if not has_shapes_of_file(content, graph):
        raise Refused("the file leaves shapes open, which it does not infer")
    tensors = [graph.tensors[t] for t in graph.outputs]
    return [
        [np.frombuffer(raw, t.dtype.numpy).reshape(t.shape) for raw, t in zip(run, tensors, strict=True)]
        for run in tflm.run(content, graph, inputs, again).outputs
    ]


def _litert(content: bytes, graph: Graph, inputs: Inputs, again: Sequence[int]) -> Outputs:
    """In a process of its own, which some models end."""
    if importlib.util.find_spec("ai_edge_litert") is None:
        raise Refused(f"it is not installed; install it with: {install_command('verify')}")
    command = [sys.executable, "-m", "diagmem.verification.litert_worker"]
    asked = pickle.dumps((content, [list(run) for run in inputs], tuple(again)))
    try:
        done = subprocess.run(command, input=asked, capture_output=True, check=False, timeout=tflm.TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Refused("it did not finish in time; try fewer inputs") from error
    if done.returncode:
        raise Refused(f"it ended with {done.returncode}")
    answer = pickle.loads(done.stdout)
    if isinstance(answer, str):
        raise Refused(one_line(answer, 160))
    found: Outputs = answer
    return found


def _compared(oracle: str, graph: Graph, inputs: Inputs, theirs: Outputs) -> Opinion:
    """Where the runtime differs from numpy, it must do so as documented: what it is known to compute instead is
    computed too, and where nobody can say what that is, only outputs that depend on it may differ."""
    again, doubtful = restarts(graph, len(inputs)), 0
    if _difference(graph, list(reference.runs(graph, inputs, again)), theirs) is None:
        return Opinion(oracle)
    known = list(deviations(oracle, graph))
    instead = {node.op.index: found.theirs for node, found in known if found.theirs is not None}
    unclear = _behind(graph, [node for node, found in known if found.theirs is None])
    ours = list(reference.runs(graph, inputs, again, instead))
    disagreement = _difference(graph, ours, theirs, unclear)
    if disagreement is not None:
        doubtful = len({run for run, _ in _differences(graph, ours, theirs, unclear)})
        disagreement = _difference(graph, ours, theirs, unclear, _slack(graph, inputs, instead, ours))
    if disagreement is not None:
        return Opinion(oracle, disagreement)
    clear = [t for t in graph.outputs if t not in unclear] if doubtful < len(inputs) else []
    seen = {node.op.index for node in _makers(graph, clear) if clear and not unclear.intersection(node.op.outputs)}
    unseen = tuple(node.label for node in _makers(graph, graph.outputs) if node.op.index not in seen)
    return Opinion(oracle, None, tuple(_lines(known)), unseen=unseen, ill_conditioned=doubtful)


TRIALS = 3
LEEWAY = 4
"""Times the largest change that rounding makes in some trials: more trials would see larger ones."""


def _slack(
    graph: Graph, inputs: Inputs, instead: Mapping[int, Reference], ours: Sequence[Mapping[int, Array]]
) -> list[dict[int, float]]:
    """How far rounding may move each output of a float32 network in each run. That is much where a normalisation
    divides what is left of equal numbers. Networks on integers have none."""
    stored = {DType.INT8, DType.UINT8, DType.INT16}
    if any(not t.is_constant and t.dtype in stored for t in graph.tensors):
        return []
    found: list[dict[int, float]] = [dict.fromkeys(graph.outputs, 0.0) for _ in ours]
    for seed in range(TRIALS):
        shaken = reference.shaken_runs(graph, inputs, restarts(graph, len(inputs)), instead, seed)
        for slack, exact, values in zip(found, ours, shaken, strict=True):
            slack.update({t: max(slack[t], LEEWAY * reference.largest_change(exact[t], values[t])) for t in slack})
    return found


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
    graph: Graph,
    ours: Sequence[Mapping[int, Array]],
    theirs: Outputs,
    unclear: frozenset[int] = frozenset(),
    slack: Sequence[Mapping[int, float]] = (),
) -> str | None:
    found = next(_differences(graph, ours, theirs, unclear, slack), None)
    return None if found is None else f"input {found[0]}: output {found[1]} is not what numpy computes"


def _differences(
    graph: Graph,
    ours: Sequence[Mapping[int, Array]],
    theirs: Outputs,
    unclear: frozenset[int],
    slack: Sequence[Mapping[int, float]] = (),
) -> Iterator[tuple[int, int]]:
    """Runs, and numbers of their outputs, that differ by more than `slack`."""
    for number, t in enumerate(graph.outputs):
        if t in unclear:
            continue
        ours_of, theirs_of = [values[t] for values in ours], [np.asarray(found[number]) for found in theirs]
        # A sigmoid may be almost 0 in one run: runtimes compute it to fractions of 1, which it reaches in others.
        unit = min(1.0, max(map(_largest, theirs_of), default=0.0))
        for run, (own, their) in enumerate(zip(ours_of, theirs_of, strict=True)):
            if not _agrees(own, their, max(unit, _largest(their)), slack[run][t] if slack else 0.0):
                yield run, number


def _largest(values: Array) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=1e-6))


def _agrees(ours: Array, theirs: Array, largest: float, slack: float = 0.0) -> bool:
    """What is no number, or infinite, must be so on both sides. Integers that depend on rounding may be any."""
    if ours.dtype.kind != "f":
        return slack > 0 or bool(np.array_equal(ours, theirs))
    return bool(np.allclose(ours, theirs, rtol=0, atol=RELATIVE_TOLERANCE * largest + slack, equal_nan=True))


TO_CHANNELS_FIRST, TO_CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


SETTINGS = {False: "session.qdqisint8allowed", True: "session.x64quantprecision"}
"""For 8-bit activations with a sign and without: the one keeps them as they are, the other does not saturate. Both at
once are refused. By default it saturates sums of 8-bit products on processors without dot-product instructions, and
computes parts of a quantised network in float32; with these it computes what the file says on all of them."""


def outputs_of(source: Source, inputs: Inputs) -> Outputs:
    """What onnxruntime makes of each run's inputs, in the order of the graph's own."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise Refused(f"it is not installed; install it with: {install_command('onnx')}")
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

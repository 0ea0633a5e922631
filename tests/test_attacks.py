"""Attacks in every field of every format that is read, and in what the command line is given: refused in one line, or
nothing but text in what comes out. Names of tensors, plans and calls in writing are `test_escaping`'s."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagmem import pipeline
from diagmem.backends.c.literals import identifier
from diagmem.backends.tflm import metadata
from diagmem.cli.emit import LAYOUTS
from diagmem.frontends import tflite
from diagmem.frontends.source import Source
from diagmem.kernels import library, signature
from diagmem.kernels.overlaps import all_overlaps
from diagmem.model.errors import DiagmemError, one_line, shell_word
from diagmem.model.graph import Graph, Op, Tensor
from diagmem.tracing.kernel import read_calls
from diagmem.tracing.native import harness
from diagmem.verification.places import Verification
from tests.attack_strings import ATTACKS, MARK, attack
from tests.cli.calling import call
from tests.frontends.onnx import making as onnx
from tests.reports.hostile import small_graph
from tests.test_escaping import _Elements, planted, without_comments
from tests.tflite_files import GraphFile

QUICKLY: dict[str, Any] = {"schedule": "file", "allocator": "greedy"}

TEXTS = tuple(text for text in ATTACKS if "\x00" not in text)
IN_FILE_NAMES = tuple(text for text in TEXTS if "/" not in text and len(text.encode()) < 200)


def attempted(doing: Callable[[], Mapping[str, bytes]]) -> Mapping[str, bytes]:
    """What comes out; nothing where it is refused, in one line that a terminal cannot misread."""
    refusal = ""
    try:
        return doing()
    except (DiagmemError, OSError) as error:
        refusal = str(error)
    assert refusal.isprintable(), refusal
    return {}


def check(files: Mapping[str, bytes]) -> None:
    """In C no attack stands outside comments, on pages none is more than text; file names are plain."""
    for path, content in files.items():
        assert re.fullmatch(r"[A-Za-z0-9_.\-/]+", path), path
        assert ".." not in path
        text = content.decode("utf-8", "replace")
        if path.endswith((".c", ".h", ".ino", ".cpp")):
            assert MARK not in without_comments(text), path
        elif path.endswith(".html"):
            page = _Elements()
            page.feed(text)
            assert not any(key.startswith("on") for _, attributes in page.found for key in attributes)
            assert not any(f"{MARK}()" in script for script in page.scripts if not _is_data(script))
        elif not path.endswith((".json", ".md", ".svg", ".png", ".bin")):
            assert MARK not in text, path


def _is_data(script: str) -> bool:
    """Whether it is JSON, in which names stand as text."""
    try:
        json.loads(script)
    except ValueError:
        return False
    return True


class HostileFile(GraphFile):
    """A graph as a file in which every text that the format has room for is an attack: the model's description, the
    subgraph's name, keys and names of signatures, names of metadata, and the code of a custom operation."""

    def __init__(self, graph: Graph, number: int) -> None:
        super().__init__(graph)
        self.number = number

    def text(self) -> int:
        self.number += 1
        return int(self.flat.CreateString(attack(self.number)))

    def table(self, name: str, /, **fields: Any) -> int:
        if name == "SubGraph":
            fields["Name"] = self.text()
        if name == "Model":
            given = self.offsets([GraphFile.table(self, "TensorMap", Name=self.text(), TensorIndex=0)])
            made = self.offsets([GraphFile.table(self, "TensorMap", Name=self.text(), TensorIndex=0)])
            key = self.text()
            defined = super().table("SignatureDef", Inputs=given, Outputs=made, SignatureKey=key)
            noted = [GraphFile.table(self, "Metadata", Name=name, Buffer=0) for name in (self.text(), self.text())]
            fields["SignatureDefs"] = self.offsets([defined])
            fields["Metadata"] = self.offsets(noted)
            fields["Description"] = self.text()
        return super().table(name, **fields)

    def operator_code(self, kind: str, version: int) -> int:
        if not kind.startswith("CUSTOM:"):
            return super().operator_code(kind, version)
        code = self.text()
        return super().table("OperatorCode", DeprecatedBuiltinCode=32, BuiltinCode=32, CustomCode=code, Version=version)


def hostile_file(number: int, is_needed: bool) -> bytes:
    """With a custom operation that an output depends on, or not."""
    graph = tflite.parse(tflite_content(), "small")
    last = graph.tensors[graph.outputs[0]]
    extra = Tensor(len(graph.tensors), "extra", last.shape, last.dtype, last.quantisation)
    custom = Op(len(graph.ops), "CUSTOM:any", (last.index,), (extra.index,), None)
    outputs = (extra.index,) if is_needed else graph.outputs
    return HostileFile(
        replace(graph, tensors=(*graph.tensors, extra), ops=(*graph.ops, custom), outputs=outputs), number
    ).content()


def tflite_content() -> bytes:
    from diagmem.frontends.tflite.writer import to_tflite

    return to_tflite(small_graph())


@pytest.mark.parametrize("number", range(0, len(ATTACKS), 6))
def test_every_text_of_a_tflite_file(number: int, tmp_path: Path) -> None:
    """C of what is known, a page about all, and a plan for TFLM."""
    for is_needed in (True, False):
        content = hostile_file(number, is_needed)
        found = attempted(lambda content=content: pipeline.emit_c(Source(content), name="model", **QUICKLY).files)  # type: ignore[misc]
        assert bool(found) != is_needed
        check(found)
    page = attempted(lambda: pipeline.report(Source(hostile_file(number, True)), kernels="tflm-reference", **QUICKLY))
    assert page
    check(page)
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    for command in (("inspect",), ("plan", "--schedule", "file"), ("overlap",)):
        done = call(command[0], str(path), *command[1:])
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("text", TEXTS)
def test_who_made_a_plan(text: str) -> None:
    """The note of a planned file: nothing of it reaches a terminal, or a command that one is told to run, unquoted."""
    content = tflite_content()
    graph = tflite.parse(content, "small")
    note = {"tool": text, "version": text, "kernels": text, "source_bytes": 0}
    note["model_sha256"] = metadata.model_sha256(graph)
    fields = {**dict.fromkeys(metadata.Origin.__slots__, ""), **note}
    refusal = ""
    try:
        Verification(Source(with_note(content, graph, fields)), 1, 0).on("tflm")
    except DiagmemError as error:
        refusal = str(error)
    assert refusal.isprintable()
    assert f"`diagmem plan --kernels {shell_word(text)}`" in refusal
    assert shlex.split(shell_word(text)) == [one_line(text)]


def with_note(content: bytes, graph: Graph, fields: dict[str, Any]) -> bytes:
    from diagmem.frontends.tflite import writer

    offsets = metadata.encode([-1] * len(graph.tensors))
    blocks = {metadata.PLAN_ENTRY: offsets, metadata.ORIGIN_ENTRY: json.dumps(fields).encode()}
    return writer.rewritten(content, blocks)


@pytest.mark.parametrize("number", range(0, len(ATTACKS), 4))
def test_every_text_of_an_onnx_file(number: int) -> None:
    """Names of the graph, of nodes, values and domains; an operator that nobody knows."""
    names = [attack(number + n) for n in range(4)]
    weights = {names[2]: np.ones((4, 4), np.float32)}
    for kind, domain in (("MatMul", ""), (attack(number), ""), ("MatMul", attack(number))):
        nodes = [onnx.node(kind, [names[0], names[2]], [names[1]], domain)]
        content = onnx.model(nodes, {names[0]: (1, 4)}, {names[1]: (1, 4)}, weights)
        check(attempted(lambda content=content: pipeline.emit_c(Source(content), name="model").files))  # type: ignore[misc]


def hostile_onnx(number: int, unknown: bool) -> bytes:
    """A file in which every text that the format has room for is an attack: names of the graph and of its nodes, values
    and branches, descriptions, who made it, and metadata. `unknown`: an attribute too, which no operator has."""
    texts = [attack(number + n) for n in range(12)]
    inner = onnx.data(1, onnx.node("Exp", [texts[0]], [texts[1]])) + onnx.data(2, texts[2]) + onnx.data(10, texts[3])
    branch = onnx.data(1, "then_branch") + onnx.data(6, inner + onnx.data(12, onnx.value(texts[1], (1, 4))))
    node = onnx.data(1, "condition") + onnx.data(2, texts[4]) + onnx.data(3, texts[5]) + onnx.data(4, "If")
    node += onnx.data(5, branch + onnx.number(20, 5)) + onnx.data(6, texts[6])
    given: dict[str, Any] = {texts[7]: 1} if unknown else {}
    last = onnx.node("Relu", [texts[4]], ["y"], **given) + onnx.data(3, texts[8]) + onnx.data(6, texts[9])
    graph = onnx.data(1, node) + onnx.data(1, last) + onnx.data(2, texts[10]) + onnx.data(10, texts[11])
    graph += onnx.data(5, onnx.tensor("condition", np.array(True)) + onnx.data(12, texts[3]))
    graph += onnx.data(11, onnx.value(texts[0], (1, 4)) + onnx.data(3, texts[2]))
    graph += onnx.data(12, onnx.value("y", (1, 4)))
    noted = onnx.data(14, onnx.data(1, texts[5]) + onnx.data(2, texts[6]))
    made = b"".join(onnx.data(field, texts[field]) for field in (2, 3, 4, 6))
    return onnx.number(1, 8) + made + onnx.data(7, graph) + onnx.data(8, onnx.number(2, 17)) + noted


@pytest.mark.parametrize("number", range(0, len(ATTACKS), 5))
def test_every_other_text_of_an_onnx_file(number: int, tmp_path: Path) -> None:
    """C, a page, and what commands print; a branch that is taken brings its names along."""
    content = hostile_onnx(number, unknown=False)
    check(attempted(lambda: pipeline.emit_c(Source(content), name="model", **QUICKLY).files))
    check(attempted(lambda: pipeline.report(Source(content), **QUICKLY)))
    assert not attempted(lambda: pipeline.emit_c(Source(hostile_onnx(number, unknown=True)), name="model").files)
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    done = call("inspect", str(path))
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def traced_rows(graph: Graph) -> dict[str, Any]:
    rows = [
        {
            "signature": signature(overlap.node),
            "position": overlap.node.op.inputs.index(overlap.input.index),
            "number": overlap.node.op.outputs.index(overlap.output.index),
            "traced": overlap.exact,
            "scratch_bytes": 0,
        }
        for overlap in all_overlaps(graph, library("diagmem"), ("exact",))
    ]
    return {"rows": rows[:1], "align_bytes": 4}


@pytest.mark.parametrize("text", [ATTACKS[1], ATTACKS[6], -(2**70), float("nan"), None, [[]]])
def test_every_field_of_a_traced_library(text: Any, tmp_path: Path) -> None:
    """A page made with it holds nothing of it."""
    graph = small_graph()
    for number, changed in enumerate(planted(traced_rows(graph), text)):
        path = tmp_path / f"library{number}.json"
        path.write_text(json.dumps(changed))
        options = {"kernels": f"traced:{path}", **QUICKLY}
        made = attempted(lambda options=options: {"plan.json": _plan_json(graph, options)})  # type: ignore[misc]
        assert MARK.encode() not in b"".join(made.values())


def _plan_json(graph: Graph, options: Mapping[str, Any]) -> bytes:
    return json.dumps(pipeline.plan(graph, **options).to_json()).encode()


@pytest.mark.parametrize("text", IN_FILE_NAMES)
def test_names_of_files(text: str, tmp_path: Path) -> None:
    """A model, a traced library, a plan, a file of calls and a table of buffers whose own names are attacks: C and
    pages hold them as text, and messages in one line."""
    model, traced = tmp_path / f"{text}.tflite", tmp_path / f"{text}.json"
    model.write_bytes(tflite_content())
    traced.write_text(json.dumps(traced_rows(small_graph())))
    check(attempted(lambda: pipeline.emit_c(model, name="model", **QUICKLY).files))
    options: dict[str, Any] = {"kernels": f"traced:{traced}", **QUICKLY}
    check(attempted(lambda: pipeline.report(model, **options)))
    for name in (".toml", ".csv", ".tflite"):
        (tmp_path / f"{text} bad{name}").write_text("no such thing")
    missing, bad = str(tmp_path / f"{text} missing.json"), str(tmp_path / f"{text} bad")
    for command in (
        ("plan", f"{bad}.tflite"),
        ("check", str(model), "--plan", missing),
        ("place", f"{bad}.csv"),
        ("trace", "--elf", missing, "--call", f"{bad}.toml"),
    ):
        done = call(*command)
        assert done.returncode == 2, done
        assert done.stderr.rstrip("\n").isprintable(), done.stderr


@pytest.mark.parametrize("text", TEXTS)
def test_what_the_command_line_is_given(text: str, tmp_path: Path) -> None:
    """Names of targets, kernels, places, cores: refused in one line."""
    for command in (
        ("plan", "zoo:kws_dscnn_int8", "--target", text),
        ("plan", "zoo:kws_dscnn_int8", "--kernels", text),
        ("plan", "zoo:kws_dscnn_int8", "--schedule", text),
        ("plan", f"zoo:{text}"),
        ("verify", "zoo:kws_dscnn_int8", "--on", text),
        ("emit", "c", "zoo:kws_dscnn_int8", "-o", str(tmp_path), "--cpu", text),
        ("emit", "c", "zoo:kws_dscnn_int8", "-o", str(tmp_path), "--layout", text),
    ):
        done = call(*command)
        assert done.returncode == 2, (command, done)
        assert done.stderr.rstrip("\n").isprintable(), done.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_of_libraries(layout: Any) -> None:
    """Whatever a library is to be called, its files are those of the identifier that is made of it: in C, CMake,
    Kconfig, YAML, properties and JSON alike."""
    model = tflite.parse(tflite_content(), "small")
    for text in (ATTACKS[1], ATTACKS[3], ATTACKS[8], ATTACKS[10]):
        asked, plain = (
            pipeline.emit_c(model, name=name, layout=layout, **QUICKLY).files for name in (text, identifier(text))
        )
        assert asked == plain


CALLS = """
model = "{model}"

[[calls]]
call = "{call}"
op = {op}
"""


@pytest.mark.parametrize("text", TEXTS)
def test_every_field_of_a_file_of_calls(text: str, tmp_path: Path) -> None:
    quoted = json.dumps(text)[1:-1]
    plain = {"model": "zoo:kws_dscnn_int8", "call": "f(input int8[4], output int8[4])", "op": "0"}
    for field, value in (("model", quoted), ("call", quoted), ("call", f"f({quoted})"), ("op", f'"{quoted}"')):
        path = tmp_path / "calls.toml"
        path.write_text(CALLS.format(**{**plain, field: value}))

        def programs(path: Path = path) -> dict[str, bytes]:
            return {"harness.c": "".join(harness(found.call) for found in read_calls(str(path))).encode()}

        check(attempted(programs))


NUMBERS = ("nan", "inf", "1e999", "-1", "0", "9" * 30, "", "4.5", str(2**63), str(2**62))
"""That are none, or that no computer counts to."""


@pytest.mark.parametrize("text", [*TEXTS[::4], *NUMBERS])
def test_numbers_and_names_that_the_command_line_is_given(text: str, tmp_path: Path) -> None:
    """Alignments, budgets, times, costs, cores, sizes, shapes, pools, names of tensors: taken for what they are, or
    refused in one line, soon."""
    path = tmp_path / "model.tflite"
    path.write_bytes(tflite_content())
    names = ["--align", "--budget", "--flash", "--cores", "--recompute", "--target", "--cpu", "--config", "-O"]
    names += ["--buffer", "--skip", "--shape", "--pool", "--together"]
    asked: list[tuple[str, ...]] = [(name, text) for name in names]
    asked += [("-O", f"{key}={text}") for key in ("input_align", "time_limit", "cores_cost", "weights_pool", "buffers")]
    asked += [("--schedule", "rows", "--recompute", text), ("--buffer", f"input=@{text}"), ("--buffer", f"{text}=@0")]
    asked += [("--buffer", f"{text}=keep"), ("--buffer", f"{text}=external"), ("-O", f"{text}=1")]
    asked += [("--pool", f"{text}:64K"), ("--pool", f"a:{text}"), ("--pool", f"a:64K:{text}")]
    asked += [("--shape", f"input={text}"), ("--shape", f"input=1x{text}x3x3"), ("--shape", f"{text}=1x2")]
    for options in asked:
        done = call("plan", str(path), "--allocator", "greedy", *options)
        assert done.returncode in (0, 1, 2), (options, done)
        assert done.stderr.rstrip("\n").isprintable() or not done.stderr, done.stderr
        assert "bug" not in done.stderr
        assert "\x1b" not in done.stdout


@pytest.mark.parametrize("text", [*TEXTS[::4], *NUMBERS, "-3", str(-(2**70))])
def test_every_field_of_a_table_of_separations(text: str, tmp_path: Path) -> None:
    """Names must be those of buffers, and bytes a number."""
    buffers, separations = tmp_path / "buffers.csv", tmp_path / "separations.csv"
    buffers.write_text("id,lower,upper,size\na,0,2,4\nb,1,3,4\n")
    row = {"below": "a", "above": "b", "bytes": "2"}
    for field in row:
        quoted = {**row, field: '"' + text.replace('"', '""') + '"'}
        separations.write_text(f"{','.join(row)}\n{','.join(quoted.values())}\n", newline="")
        done = call("place", str(buffers), "--separations", str(separations), "--effort", "quick")
        assert done.returncode in ((0, 2) if field == "bytes" else (2,)), done
        assert done.stderr.rstrip("\n").isprintable() or not done.stderr, done.stderr
    separations.write_text(f"{text}\n1,2,3\n", newline="")
    assert call("place", str(buffers), "--separations", str(separations)).returncode == 2


def test_every_field_of_a_sweep_that_goes_on(tmp_path: Path) -> None:
    """What the file of results holds already is looked at, and kept; nothing in it can stop the rest."""
    model, results = tmp_path / "model.tflite", tmp_path / "results.jsonl"
    model.write_bytes(tflite_content())
    command = ("sweep", str(model), "--out", str(results), "--schedule", "file", "--allocator", "greedy", "--jobs", "1")
    assert call(*command).returncode == 0
    line = json.loads(results.read_text())
    texts: tuple[Any, ...] = (ATTACKS[1], ATTACKS[13], -(2**70), float("nan"), None, [[]], {}, True)
    strange = [{**line, name: text} for name in ("model", "sha256", "options", "plan", "error") for text in texts]
    results.write_text("".join(f"{json.dumps(changed)}\n" for changed in (*strange, *texts)))
    done = call(*command)
    assert done.returncode in (0, 2), done
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("text", TEXTS)
def test_every_field_of_a_table_of_buffers(text: str, tmp_path: Path) -> None:
    """The names of buffers may be anything; numbers must be some."""
    row = {"id": "a", "lower": "0", "upper": "2", "size": "4"}
    for field in row:
        quoted = {**row, field: '"' + text.replace('"', '""') + '"'}
        path = tmp_path / "buffers.csv"
        path.write_text(f"{','.join(row)}\n{','.join(quoted.values())}\n", newline="")
        done = call("place", str(path), "--effort", "quick")
        assert done.returncode in ((0, 2) if field == "id" else (2,)), done
        assert done.stderr.rstrip("\n").isprintable() or not done.stderr, done.stderr
        assert "\x1b" not in done.stdout

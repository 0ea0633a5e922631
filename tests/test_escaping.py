"""Nothing that came from a file reaches C, a build file, HTML, SVG or a shell but as plain text."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.cli.emit import LAYOUTS
from diagmem.frontends import tflite
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.model.errors import DiagmemError
from diagmem.model.graph import Graph
from diagmem.tracing.calls import parse_call
from diagmem.tracing.native import harness
from tests.attack_strings import ATTACKS, MARK, attack
from tests.profiles import share
from tests.reports.hostile import small_graph


def hostile_model(shift: int) -> Graph:
    """A model whose every name is an attack, as it comes out of a file."""
    graph = small_graph()
    tensors = tuple(replace(t, name=attack(t.index + shift)) for t in graph.tensors)
    data = to_tflite(replace(graph, tensors=tensors))
    return tflite.parse(data, attack(shift))


def without_comments(text: str) -> str:
    """C as a compiler sees it after its first phases: trigraphs, continued lines, comments and strings gone."""
    text = text.replace("??/", "\\").replace("\\\n", "")
    return re.sub(r"/\*.*?\*/|\"[^\"\n]*\"", " ", text, flags=re.DOTALL)


@pytest.mark.parametrize("shift", range(0, len(ATTACKS), 3))
def test_names_stay_in_comments_of_c(shift: int) -> None:
    """Outside comments no word of a name is found in any file; file names are plain."""
    model = hostile_model(shift)
    for path in pipeline.emit_c(model).files:
        assert re.fullmatch(r"[A-Za-z0-9_.]+", path), path
    for layout in LAYOUTS[shift // 3 :: 3]:
        for options in ({}, {"schedule": "rows"}):
            files = pipeline.emit_c(model, name="model", layout=layout, **options).files  # type: ignore[arg-type]
            for path, content in files.items():
                if path.endswith((".c", ".h", ".ino", ".cpp")):
                    assert MARK not in without_comments(content.decode("ascii")), path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_build_files_do_not_know_names(layout: str) -> None:
    """What is no C is the same for a hostile model as for the same one with plain names."""
    plain = tflite.parse(to_tflite(small_graph()), "small")
    expected, found = (
        {
            path: content
            for path, content in pipeline.emit_c(model, name="same", layout=layout).files.items()  # type: ignore[arg-type]
            if not path.endswith((".c", ".h", ".S"))
        }
        for model in (plain, hostile_model(1))
    )
    assert expected == found


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_hostile_names_compile(tmp_path: Path) -> None:
    """A compiler that knows trigraphs and takes every warning for an error has nothing to say about such a model."""
    for path, content in pipeline.emit_c(hostile_model(0), name="model").files.items():
        (tmp_path / path).write_bytes(content)
    flags = ["-std=c99", "-trigraphs", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "model.c"]
    done = subprocess.run(["gcc", *flags], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


class _Elements(HTMLParser):
    """The elements of a page, and what their attributes run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.inside_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.inside_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self.inside_script = False

    def handle_data(self, data: str) -> None:
        if self.inside_script:
            self.scripts.append(data)


@pytest.mark.parametrize("shift", range(0, len(ATTACKS), 6))
def test_names_are_text_on_pages_and_in_drawings(shift: int) -> None:
    """A page has no element, script or handler more than that of the same model with plain names, and drawings are
    well-formed."""
    plain, hostile = (pipeline.report(model) for model in (small_graph(), hostile_model(shift)))
    pages = []
    for files in (plain, hostile):
        page = _Elements()
        page.feed(files["report.html"].decode())
        pages.append(page)
    kinds = [{tag for tag, _ in page.found} for page in pages]
    assert kinds[0] == kinds[1]
    assert len(pages[0].scripts) == len(pages[1].scripts)
    assert not any(key.startswith("on") for _, attributes in pages[1].found for key in attributes)
    for path, content in hostile.items():
        if path.endswith(".svg"):
            ET.fromstring(content)


def planted(value: Any, with_what: Any) -> Iterator[Any]:
    """The value with each of its leaves and keys replaced once."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {(str(with_what) if k == key else k): v for k, v in value.items()}
            yield from ({**value, key: changed} for changed in planted(inner, with_what))
    elif isinstance(value, list):
        for n in range(min(3, len(value))):
            yield from ([*value[:n], changed, *value[n + 1 :]] for changed in planted(value[n], with_what))
    else:
        yield with_what


INSTEAD = [ATTACKS[1], ATTACKS[3], ATTACKS[6], 1e308, float("nan"), -(2**70), None, [[]]]


@pytest.mark.parametrize("number", range(len(INSTEAD)))
def test_plans_are_types_not_text(number: int) -> None:
    """An attack in any field of a plan is refused in one line, or has no part in the C that comes out. A quick run
    tries every field, but not with each of the attacks."""
    graph = small_graph()
    model = tflite.parse(to_tflite(graph), "small")
    plans = [pipeline.plan(model, schedule=schedule).to_json() for schedule in ("best", "rows")]
    changes = [changed for plan in plans for changed in planted(plan, INSTEAD[number])]
    found = [emitted(model, changed) for changed in share(changes, number)]
    accepted = [files for files in found if files is not None]
    assert len(found) - len(accepted) > len(found) // 14
    assert accepted
    assert not any(MARK.encode() in content for files in accepted for content in files.values())


def emitted(model: Graph, plan: dict[str, Any]) -> dict[str, bytes] | None:
    """C with this plan; None where it is refused, in one line."""
    refusal = ""
    try:
        return pipeline.emit_c(model, plan=plan).files
    except DiagmemError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return None


@pytest.mark.parametrize("text", ATTACKS)
def test_calls_are_parsed_not_pasted(text: str) -> None:
    """A call of a kernel that is given as text becomes types, or is refused; nothing of it is pasted into C."""
    for call in (f"{text}(input int8[4], output int8[4])", f"f({text})", f"f(input int8[{text}], output int8[4])"):
        assert MARK not in pasted(call)


def pasted(call: str) -> str:
    """The program that makes the call; nothing where it is refused, in one line."""
    refusal = ""
    try:
        return harness(parse_call(call))
    except DiagmemError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return ""

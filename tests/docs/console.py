"""Documents carried out: console blocks are run, files are written, and what is said is compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.calling import call

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(
    r"(<!-- not executed: (?P<reason>[^>]+) -->\n)?^```(?P<info>[^\n]*)\n(?P<body>.*?)^```", re.S | re.M
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document. `reason`: why it is not carried out; None: it is."""

    info: str
    body: str
    reason: str | None

    @property
    def is_console(self) -> bool:
        return self.info == "console"

    @property
    def file(self) -> str | None:
        """The file that it is the content of."""
        found = re.search(r"file=(\S+)", self.info)
        return found.group(1) if found else None

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Each command, with what it should say."""
        command, said = "", list[str]()
        for line in [*self.body.splitlines(), "$ "]:
            if line.startswith("$ "):
                if command:
                    yield command, said
                command, said = line[2:].split("   #")[0].strip(), []
            else:
                said.append(line)


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path) -> list[Block]:
    found = _BLOCK.finditer(document.read_text(encoding="utf-8"))
    return [Block(m["info"].strip(), m["body"], m["reason"]) for m in found]


def run(command: str, place: Path) -> str:
    """What a command of a document says; it must succeed. diagmem itself is called in this process."""
    if command.startswith("diagmem ") and not set(command) & set("|<>;&$`*"):
        with _inside(place):
            done = call(*shlex.split(command)[1:])
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            command, shell=True, cwd=place, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def _inside(place: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


def is_said(expected: list[str], said: str) -> bool:
    """Whether a document tells the truth. A line `…` stands for any number of lines, and `…` in a line for any text;
    nothing expected: nothing is compared."""
    lines = [line.rstrip() for line in expected if line.strip()]
    if not lines:
        return True
    pattern = "".join(
        r"(?:[^\n]*\n)*" if line == "…" else re.escape(line).replace("…", r"[^\n]*") + r"[ ]*\n" for line in lines
    )
    text = "".join(f"{line.rstrip()}\n" for line in said.splitlines() if line.strip())
    return re.fullmatch(pattern, text) is not None

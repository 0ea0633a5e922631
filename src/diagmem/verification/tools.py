"""Compilers and emulators: found, called, and complained about in one line."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from diagmem.model.errors import DiagmemError, one_line

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic")
STANDARD = ("-std=c99", "-ffp-contract=fast")
"""Compilers of firmware may fuse products and sums; kernels forbid it."""
TIMEOUT_SECONDS = 900.0


class ToolError(DiagmemError):
    """A tool is missing, or does not do what it should."""


def find(tool: str, package: str) -> str:
    """The tool's path. `package`: what to install where it is missing."""
    path = shutil.which(tool)
    if path is None:
        raise ToolError(f"{tool} is not installed; install it, on Debian with: apt-get install {package}")
    return path


def call(command: Sequence[str], directory: Path, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end, whatever that is."""
    try:
        return subprocess.run(
            command, cwd=directory, input=stdin, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{Path(command[0]).name} did not finish within {TIMEOUT_SECONDS:.0f} seconds") from error


def complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    """Why a program under the sanitizers stopped, in one line: what they say, or its status; empty if all is well."""
    said = done.stderr.decode(errors="replace").splitlines() if done.returncode else []
    words = ("ERROR", "runtime error", "WARNING", "FATAL")
    found = next((line for line in said if any(word in line for word in words)), "")
    return one_line(found or (f"it ended with status {done.returncode}" if done.returncode else ""), 200)


def build(command: Sequence[str], directory: Path) -> None:
    """Runs a compiler; whatever it says is an error."""
    done = call(command, directory)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        line = next((text for text in said if "error" in text), said[0])
        raise ToolError(f"{Path(command[0]).name} failed: {one_line(line, 300)}")


def write_firmware(directory: Path, *names: str) -> None:
    """Copies files of the harness to where they are compiled."""
    for name in names:
        content = (files("diagmem.verification") / "firmware" / name).read_bytes()
        (directory / name).write_bytes(content)

"""Compilers: running them, and keeping what they build for the next time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from diagmem.model.errors import TraceError

HERE = Path(__file__).parent
_BAD_NEWS = ("error", "undefined", "not defined", "cannot find")


def program(name: str, package: str) -> str:
    """The path of a program that tracing needs, or a message that says how to get it."""
    found = shutil.which(name)
    if found is None:
        raise TraceError(f"{name} is not installed and this trace needs it; on Debian: apt-get install {package}")
    return found


def run(command: Sequence[str | Path], purpose: str) -> str:
    """Runs a compiler or the like; returns what it printed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if any(word in line for word in _BAD_NEWS)]
        reason = (errors or done.stderr.strip().splitlines() or ["no message"])[0]
        raise TraceError(f"{purpose}: {Path(str(command[0])).name} failed: {reason}")
    return done.stdout


def cached(name: str, ingredients: Sequence[str], build: Callable[[Path], None]) -> Path:
    """A directory, filled by `build` the first time that these ingredients are asked for."""
    key = hashlib.blake2b("\0".join(ingredients).encode(), digest_size=8).hexdigest()
    place = _cache() / f"{name}-{key}"
    if place.is_dir():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=place.parent))
    except OSError as error:
        raise TraceError(
            f"{place.parent}: tracing tools cannot be kept there ({error.strerror}); set XDG_CACHE_HOME to a directory "
            "that can be written"
        ) from error
    try:
        build(fresh)
        fresh.rename(place)
    except OSError:
        # Another process was faster: what it built is the same.
        if not place.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return place


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "diagmem"

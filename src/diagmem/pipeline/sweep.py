"""Plans of many models on any executor: results as they come, errors with their models, a file to go on from."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any

from diagmem.model.errors import DiagmemError, one_line
from diagmem.pipeline import plan
from diagmem.planning.bounds import inspect

Record = dict[str, Any]
"""What is known of one model: a line of a sweep's file."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model of a sweep: its bytes, so that a worker need not have its file, or the name of a built-in one."""

    label: str
    model: str | bytes

    @property
    def key(self) -> tuple[str, str]:
        """The same for the same model under the same name."""
        content = self.model if isinstance(self.model, bytes) else self.model.encode()
        return self.label, hashlib.sha256(content).hexdigest()[:16]


def swept(
    candidates: Iterable[Candidate], executor: Executor, at_once: int, options: Mapping[str, Any]
) -> Iterator[Record]:
    """A record for each candidate, the first to be done first. No more than `at_once` are handed out at a time, so that
    candidates may be made, or read, as they are needed."""
    waiting: set[Future[Record]] = set()
    for candidate in candidates:
        waiting.add(executor.submit(record_of, candidate, dict(options)))
        if len(waiting) >= at_once:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


def record_of(candidate: Candidate, options: dict[str, Any]) -> Record:
    """What a plan of the candidate takes, or why there is none."""
    label, digest = candidate.key
    known = {"model": label, "sha256": digest, "options": options_text(options)}
    begin = time.process_time()
    try:
        made = plan(candidate.model, **options)
        seen = inspect(made.model)
    except DiagmemError as error:
        return {**known, "error": str(error)}
    except Exception as error:  # One model that shows a bug must not end a sweep of thousands.
        return {**known, "error": one_line(f"a bug, please report it: {type(error).__name__}: {error}", 400)}
    return {
        **known,
        "arena_bytes": made.arena_bytes,
        "baseline_bytes": made.baseline_bytes,
        "lower_bound_bytes": made.lower_bound_bytes,
        "optimal": made.optimal,
        "is_bounded": made.plan.is_bounded,
        "weights_bytes": seen.weights_bytes,
        "macs": sum(seen.macs),
        "ops": len(made.model.ops),
        "seconds": round(time.process_time() - begin, 4),
    }


def options_text(options: Mapping[str, Any]) -> str:
    """Options as a line that two sweeps have in common if they ask for the same."""
    return json.dumps({name: value for name, value in sorted(options.items()) if value is not None}, default=list)


def keys_of(text: str, options: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The candidates that a sweep's file has records of, for these options."""
    found, asked = set(), options_text(options)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            record = json.loads(line)
            key, made_with = (str(record["model"]), str(record["sha256"])), record["options"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DiagmemError(f"line {number} is no record of a sweep; give another file with --out") from error
        if made_with == asked:
            found.add(key)
    return found

"""`diagmem ui` as a process of its own, as a user has it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Served:
    """A server that runs: its address, with the token."""

    address: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

    @property
    def token(self) -> str:
        return urlsplit(self.address).path.strip("/")

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the answer, by default to the page itself."""
        host = f"127.0.0.1:{self.port}"
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            client.request(method, path, body, {"Host": host, "Origin": f"http://{host}", **(headers or {})})
            answer = client.getresponse()
            return answer.status, answer.read()
        finally:
            client.close()

    def asked(self, **job: Any) -> dict[str, Any]:
        """The parts of the answer to a job; the last of each name."""
        _, body = self.request("POST", f"/{self.token}/jobs", json.dumps(job).encode())
        return {name: part for line in body.splitlines() for name, part in json.loads(line).items()}

    def workers(self) -> set[int]:
        """The processes that it has started, but for the one from which they are forked."""
        children = _children(self.process.pid)
        return {grandchild for child in children for grandchild in _children(child)}


def _children(parent: int) -> set[int]:
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((place / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.add(int(place.name))
    return found


@contextmanager
def served(*arguments: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "diagmem", "ui", "--no-browser", *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        try:
            yield Served(address, process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)

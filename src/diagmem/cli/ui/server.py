"""The page over HTTP, for this machine alone.

Whoever asks must know the token in the address, name this host (no other name can be made to point here), and, to
change anything, come from the page itself. Nothing is written to disk.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from socketserver import TCPServer
from typing import Any
from urllib.parse import unquote

from diagmem import pipeline
from diagmem.cli._commands import CORES
from diagmem.cli.emit import LAYOUTS
from diagmem.cli.ui.jobs import JOBS, Given, Job, Workers, packed
from diagmem.cli.ui.switches import GROUPS, as_json, settings_of
from diagmem.frontends.source import ZOO_PREFIX
from diagmem.model.errors import DiagmemError, PlanError, one_line
from diagmem.reports.pages import render

LOCAL = "127.0.0.1"

MOST_FILE_BYTES = 256 * 2**20
MOST_REQUEST_BYTES = 64 * 2**10
MOST_NAME = 200
MOST_CONNECTIONS = 64
SECONDS_FOR_HEAD = 5.0
SECONDS_BETWEEN_BYTES = 30.0
"""That a client may take over a request: until it has shown the token, and then."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

PLAN_JSON = "json"
"""What is handed over from the shelf, without a process: the plan as `diagmem plan --json` writes it."""

MOST_BYTES = 512 * 2**20
"""Of models and of plans, each: what was used longest ago is forgotten first."""

SCRIPTS = ("plan", "theme", "ui_switches", "ui_views", "ui")

TO_PAGE = ("told", "early", "figures", "page", "front", "file", "instructions", "failed")
"""The parts of an answer that the page gets."""


@dataclass(frozen=True, slots=True)
class Result:
    """A plan: what the page shows of it, as parts of an answer, and the plan as JSON."""

    model: str
    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    page: str
    plan: str

    @property
    def size_bytes(self) -> int:
        return len(self.page) + len(self.plan)


@dataclass
class Shelf:
    """What is kept while the page is served, in memory only: models that were dropped, and their plans."""

    _models: dict[str, Given] = field(default_factory=dict)
    _results: dict[tuple[str, str], Result] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_model(self, given: Given) -> str:
        """Its name on the shelf: the same for the same file."""
        # Another name is another model: it stands in what is handed over.
        key = hashlib.sha256((given.content or b"") + given.name.encode(errors="replace")).hexdigest()[:32]
        with self._lock:
            self._models.pop(key, None)
            self._models[key] = given
            while len(self._models) > 1 and sum(len(g.content or b"") for g in self._models.values()) > MOST_BYTES:
                self._models.pop(next(iter(self._models)))
        return key

    def model(self, key: Any) -> Given:
        if isinstance(key, str) and key.startswith(ZOO_PREFIX) and key[len(ZOO_PREFIX) :] in pipeline.zoo_models():
            return Given(key)
        with self._lock:
            if not isinstance(key, str) or key not in self._models:
                raise PlanError(f"model '{one_line(str(key))}' is no longer in memory; drop it again")
            self._models[key] = self._models.pop(key)
            return self._models[key]

    def add_result(self, result: Result) -> None:
        with self._lock:
            self._results.pop(_key(result.model, result.settings), None)
            self._results[_key(result.model, result.settings)] = result
            while len(self._results) > 1 and sum(r.size_bytes for r in self._results.values()) > MOST_BYTES:
                self._results.pop(next(iter(self._results)))

    def result(self, model: str, settings: Mapping[str, Any]) -> Result | None:
        with self._lock:
            found = self._results.pop(_key(model, settings), None)
            if found is not None:
                self._results[_key(model, settings)] = found
            return found

    def listed(self) -> dict[str, Any]:
        """For a tab that is opened later."""
        with self._lock:
            return {
                "models": [{"id": key, "name": given.name} for key, given in self._models.items()],
                "results": [
                    {"model": r.model, "settings": r.settings, "figures": r.figures} for r in self._results.values()
                ],
            }


def _key(model: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    return model, json.dumps(settings, sort_keys=True)


def page(first: str | None = None) -> str:
    """`first`: the model that is shown at once, as the shelf calls it."""
    data: dict[str, Any] = {
        "first": first,
        "groups": list(GROUPS),
        "switches": as_json(),
        "memories": list(_memories()),
        "most_bytes": MOST_FILE_BYTES,
    }
    zoo = pipeline.zoo_models()
    return render("ui", SCRIPTS, data=data, zoo=zoo, layouts=LAYOUTS, cores=CORES)


def _memories() -> Iterator[tuple[str, list[str]]]:
    """Chips that have several, with what they are called as pools of a plan."""
    for chip in pipeline.known_targets():
        if len(chip.regions) > 1 and chip.core.refusal is None:
            yield chip.name, [f"{re.sub('[^A-Za-z0-9]+', '_', name)}:{size // 1024}K" for name, size in chip.regions]


class Server(ThreadingHTTPServer):
    """`page`: the page itself. It listens as soon as it is made."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS
    # Elsewhere it would let others listen on the same port.
    allow_reuse_address = os.name == "posix"

    def __init__(self, port: int, page: str, workers: Workers, shelf: Shelf) -> None:
        self.page, self.workers, self.shelf = page, workers, shelf
        self.token = secrets.token_urlsafe(24)
        self._places = threading.Semaphore(MOST_CONNECTIONS)
        self._strangers: dict[socket, None] = {}
        self._lock = threading.Lock()
        super().__init__((LOCAL, port), _Handler)

    @property
    def address(self) -> str:
        return f"http://{LOCAL}:{self.server_address[1]}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"{name}:{self.server_address[1]}" for name in (LOCAL, "localhost"))

    def server_bind(self) -> None:
        """Without asking the network for the host's name, as the class above does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOCAL, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Where all places are taken, the stranger who has been there longest makes room."""
        if not self._places.acquire(blocking=False):
            with self._lock:
                oldest = next(iter(self._strangers), None)
            if oldest is not None:
                self.welcome(oldest)
                with suppress(OSError):
                    oldest.shutdown(SHUT_RDWR)
            if oldest is None or not self._places.acquire(timeout=SECONDS_FOR_HEAD):
                self.shutdown_request(request)
                return
        with self._lock:
            self._strangers[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.welcome(request)
            self._places.release()

    def welcome(self, request: socket) -> None:
        """Whoever has shown the token is no stranger."""
        with self._lock:
            self._strangers.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is nothing to speak of."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = SECONDS_FOR_HEAD
    server_version, sys_version = "diagmem", ""

    def do_GET(self) -> None:
        self._answer({"": self._page, "kept": self._kept})

    def do_POST(self) -> None:
        self._answer({"models": self._model, "jobs": self._job})

    def _answer(self, routes: Mapping[str, Callable[[], None]]) -> None:
        """Who may not ask learns nothing, not even that there is something."""
        start, _, rest = self.path.lstrip("/").partition("/")
        hosts, origin = self.headers.get_all("Host", []), self.headers.get("Origin")
        known = len(hosts) == 1 and hosts[0] in self.server.hosts
        own = f"http://{hosts[0]}" if known else None
        is_from_page = origin == own or (origin is None and self.command == "GET")
        has_token = hmac.compare_digest(start.encode(), self.server.token.encode())
        if not (known and is_from_page and has_token and rest in routes):
            self._say(HTTPStatus.NOT_FOUND, {"failed": "nothing is here"})
            return
        self.server.welcome(self.connection)
        self.connection.settimeout(SECONDS_BETWEEN_BYTES)
        try:
            routes[rest]()
        except DiagmemError as error:
            # An answer like any other: a browser shouts about other statuses on its console.
            self._say(HTTPStatus.OK, {"failed": " ".join(str(error).split())})

    def _page(self) -> None:
        self._begin(HTTPStatus.OK, "text/html; charset=utf-8")
        self.wfile.write(self.server.page.encode())

    def _kept(self) -> None:
        self._say(HTTPStatus.OK, self.server.shelf.listed())

    def _model(self) -> None:
        """A file that was dropped. It is not looked at here: that is done where it can be ended."""
        name = unquote(self.headers.get("X-Name", ""))[:MOST_NAME] or "model"
        given = Given(name, self._body(MOST_FILE_BYTES))
        key = self.server.shelf.add_model(given)
        self._say(HTTPStatus.OK, {"id": key, "name": name})

    def _job(self) -> None:
        job, key = self._asked(_read_json(self._body(MOST_REQUEST_BYTES)))
        self._begin(HTTPStatus.OK, "application/x-ndjson")
        with suppress(ConnectionError, TimeoutError):
            for name, value in self._parts(job, key):
                self.wfile.write(json.dumps({name: value}).encode() + b"\n")

    def _asked(self, asked: dict[str, Any]) -> tuple[Job, str]:
        what, key, choice = asked.get("what"), asked.get("model"), asked.get("choice", "")
        if what not in (*JOBS, PLAN_JSON) or not isinstance(choice, str):
            raise PlanError(f"unknown job; known: {', '.join(JOBS)}")
        given, settings = self.server.shelf.model(key), settings_of(asked.get("settings"))
        kept = self.server.shelf.result(str(key), settings.plain)
        if what in ("c", "profile", PLAN_JSON) and kept is None:
            raise PlanError("this plan is no longer in memory; plan again")
        return Job(what, given, settings, json.loads(kept.plan) if kept else None, choice), str(key)

    def _parts(self, job: Job, key: str) -> Iterator[tuple[str, Any]]:
        """From the shelf, if it is there; else it is made, and kept."""
        kept = self.server.shelf.result(key, job.settings.plain)
        if kept is not None and job.what == PLAN_JSON:
            yield "file", packed("plan.json", kept.plan.encode())
            return
        if kept is not None and job.what == "plan":
            yield from (("figures", kept.figures), ("page", kept.page))
            return
        made: dict[str, Any] = {}
        for name, value in self.server.workers.answers(job, self.connection):
            made[name] = value
            if name in TO_PAGE:
                yield name, value
        if job.what == "plan" and "page" in made:
            result = Result(key, job.settings.plain, made["figures"], made["page"], made["plan"])
            self.server.shelf.add_result(result)

    def _body(self, most_bytes: int) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > most_bytes:
            self.close_connection = True
            raise PlanError(f"the request is too large or has no length; the limit is {most_bytes // 1024} KB")
        content = self.rfile.read(int(length))
        if len(content) < int(length):
            raise PlanError("the upload was incomplete; drop the file again")
        return content

    def _say(self, status: HTTPStatus, value: Mapping[str, Any]) -> None:
        self._begin(status, "application/json")
        self.wfile.write(json.dumps(value).encode() + b"\n")

    def _begin(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is printed for a request."""


def _read_json(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise PlanError("a request must be a JSON object")
    return found

"""What `diagmem ui` answers over HTTP, and to whom."""

from __future__ import annotations

import html
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from diagmem import pipeline
from diagmem.cli.ui import server as limits
from diagmem.frontends.tflite.writer import to_tflite
from tests.reports.hostile import small_graph
from tests.serving import Served, served


@pytest.fixture(scope="module")
def running() -> Iterator[Served]:
    with served() as found:
        yield found


def test_who_does_not_know_the_token_learns_nothing(running: Served) -> None:
    """Whatever is asked without it, or with a wrong one, is answered alike."""
    wrong = f"{running.token[:-1]}{'A' if running.token[-1] != 'A' else 'B'}"
    said = {
        running.request("GET", path) for path in ("/", "/kept", f"/{wrong}/", f"/{wrong}/kept", "/../../etc/passwd")
    }
    assert len(said) == 1
    assert next(iter(said))[0] == 404
    assert running.request("GET", f"/{running.token}/")[0] == 200
    assert len(running.token) >= 32


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": ""},
    ],
    ids=str,
)
def test_other_hosts_and_origins_are_refused(running: Served, headers: dict[str, str]) -> None:
    """A name that was made to point here, and a page from elsewhere, get nothing, though they know the token."""
    given = {name: value.format(port=running.port) for name, value in headers.items()}
    job = json.dumps({"what": "plan", "model": "zoo:kws_dscnn_int8", "settings": {}}).encode()
    assert running.request("POST", f"/{running.token}/jobs", job, given)[0] == 404
    assert running.request("GET", f"/{running.token}/", headers=given)[0] == 404


def test_a_change_needs_one_host_and_an_origin(running: Served) -> None:
    """A browser always says where a POST comes from; two Host headers are read in two ways by two readers."""
    host = f"127.0.0.1:{running.port}"

    def said(method: str, path: str, *headers: str) -> bytes:
        with socket.create_connection(("127.0.0.1", running.port), timeout=20) as client:
            lines = (f"{method} /{running.token}/{path} HTTP/1.0", "Content-Length: 2", *headers, "", "{}")
            client.sendall("\r\n".join(lines).encode())
            return client.makefile("rb").readline().split()[1]

    own, origin = f"Host: {host}", f"Origin: http://{host}"
    assert said("POST", "jobs", own, origin) == b"200"
    assert said("POST", "jobs", own) == b"404"
    assert said("GET", "", own) == b"200"
    for second in (own, "Host: evil.example"):
        assert said("POST", "jobs", own, second, origin) == said("POST", "jobs", second, own, origin) == b"404"
        assert said("GET", "", own, second) == said("GET", "", second, own) == b"404"
    assert said("GET", "") == b"404"


def test_strangers_do_not_block_the_page(running: Served) -> None:
    """More half-sent requests than there are places; who has shown the token, and is sending a file, keeps its own."""
    host, content = f"127.0.0.1:{running.port}", bytes(1000)
    head = f"POST /{running.token}/models HTTP/1.0\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
    with ExitStack() as opened:

        def client() -> socket.socket:
            return opened.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=20))

        sending = client()
        sending.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[:500])
        assert running.request("GET", f"/{running.token}/kept")[0] == 200
        for _ in range(2 * limits.MOST_CONNECTIONS):
            client().sendall(f"GET /{running.token}".encode())
        assert running.request("GET", f"/{running.token}/kept")[0] == 200
        sending.sendall(content[500:])
        assert b'"id"' in sending.makefile("rb").read()


def test_only_this_machine_is_listened_to(running: Served) -> None:
    """The port is that of 127.0.0.1, and of no other address that the machine has."""
    found = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, check=True).stdout
    mine = [line.split()[1] for line in found.splitlines() if line.split()[1].endswith(f":{running.port:04X}")]
    assert {place.split(":")[0] for place in mine} == {"0100007F"}


def test_answers_are_kept_by_nobody_and_framed_by_nobody(running: Served) -> None:
    """Headers forbid to keep, frame, sniff or refer; the page's policy allows its own script and nothing else."""
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(f"GET /{running.token}/ HTTP/1.0\r\nHost: 127.0.0.1:{running.port}\r\n\r\n".encode())
        head = html.unescape(client.makefile("rb").read().partition(b"</head>")[0].decode())
    for word in ("no-store", "frame-ancestors 'none'", "no-referrer", "nosniff", "default-src 'none'", "'sha256-"):
        assert word in head
    assert "'unsafe-eval'" not in head


@pytest.mark.parametrize(
    ("what", "most"), [("models", limits.MOST_FILE_BYTES), ("jobs", limits.MOST_REQUEST_BYTES)], ids=["file", "job"]
)
def test_what_is_too_large_is_not_read(running: Served, what: str, most: int) -> None:
    """It is refused by what it says of its size."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
        host = f"127.0.0.1:{running.port}"
        head = f"POST /{running.token}/{what} HTTP/1.0\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        client.sendall(f"{head}Content-Length: {most + 1}\r\n\r\n".encode())
        said = client.makefile("rb").read()
    assert b"the request is too large" in said


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"what": "plan"},
        {"what": "plan", "model": "zoo:nothing", "settings": {}},
        {"what": "plan", "model": ["zoo:kws_dscnn_int8"], "settings": {}},
        {"what": "plan", "model": "zoo:kws_dscnn_int8", "settings": []},
        {"what": "plan", "model": "zoo:kws_dscnn_int8", "settings": {"time_limit": 1}},
        {"what": "plan", "model": "zoo:kws_dscnn_int8", "settings": {"kernels": "traced:/etc/passwd"}},
        {"what": "plan", "model": "zoo:kws_dscnn_int8", "settings": {"align": "1; rm"}},
        {"what": "plan", "model": "zoo:kws_dscnn_int8", "settings": {"align": True}},
        {"what": "plan", "model": "zoo:kws_dscnn_int8", "settings": {"recompute": 1e9}},
        {"what": "plan", "model": "zoo:kws_dscnn_int8", "settings": {"skip": ["nothing"]}},
        {"what": "c", "model": "zoo:kws_dscnn_int8", "settings": {"effort": "quick"}},
        {"what": "__import__", "model": "zoo:kws_dscnn_int8", "settings": {}},
        {"what": "/etc/passwd", "model": "/etc/passwd", "settings": {}},
    ],
    ids=lambda job: json.dumps(job)[:60],
)
def test_a_strange_job_gets_one_line(running: Served, job: dict[str, object]) -> None:
    _, body = running.request("POST", f"/{running.token}/jobs", json.dumps(job).encode())
    line = json.loads(body)["failed"]
    assert line
    assert "\n" not in line
    assert "Traceback" not in line


def test_a_plan_is_the_one_of_the_api_and_is_kept(running: Served) -> None:
    """A file gives the figures of `diagmem.plan`, again without a new process, and its JSON byte for byte."""
    content = to_tflite(small_graph())
    _, said = running.request("POST", f"/{running.token}/models", content, {"X-Name": "small%20one.tflite"})
    model = json.loads(said)
    assert model["name"] == "small one.tflite"
    made = running.asked(what="plan", model=model["id"], settings={})
    expected = pipeline.plan(content)
    assert made["figures"]["arena_bytes"] == expected.arena_bytes
    assert made["figures"]["baseline_bytes"] == expected.baseline_bytes
    again = running.asked(what="plan", model=model["id"], settings={"overlap": True})
    assert again["page"] == made["page"]
    assert "told" not in again
    assert [one["model"] for one in json.loads(running.request("GET", f"/{running.token}/kept")[1])["results"]]


def wait_for_work(client: socket.socket) -> None:
    """Until a stage of planning is told."""
    client.settimeout(60)
    said = b""
    while b"told" not in said:
        part = client.recv(4096)
        assert part, "it ended before it had begun"
        said += part


def test_who_goes_away_ends_the_process(running: Served) -> None:
    """A job whose client has closed its connection does not go on."""
    host = f"127.0.0.1:{running.port}"
    job = json.dumps({"what": "plan", "model": "zoo:nasnet_mobile", "settings": {"effort": "thorough"}})
    head = f"POST /{running.token}/jobs HTTP/1.0\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(f"{head}Content-Length: {len(job)}\r\n\r\n{job}".encode())
        wait_for_work(client)
        busy = running.workers()
    until = time.monotonic() + 10
    while len(busy & running.workers()) >= len(busy) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(busy & running.workers()) < len(busy)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.deep)], ids=["Ctrl-C", "KILL"]
)
def test_nothing_outlives_it(number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it ends, in the midst of a plan: its processes are gone soon, and what they wrote. Ctrl-C gives status
    130 and one word, and leaves nothing at all behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with served() as running:
        host = f"127.0.0.1:{running.port}"
        job = json.dumps({"what": "plan", "model": "zoo:nasnet_mobile", "settings": {}})
        head = f"POST /{running.token}/jobs HTTP/1.0\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            client.sendall(f"{head}Content-Length: {len(job)}\r\n\r\n{job}".encode())
            wait_for_work(client)
            started = running.workers()
            assert started
            if number == signal.SIGINT:
                os.killpg(running.process.pid, number)
            else:
                running.process.send_signal(number)
            _, said = running.process.communicate(timeout=20)
    if number == signal.SIGINT:
        assert running.process.returncode == 130
        assert said.strip() == "diagmem: interrupted"
        assert list(tmp_path.iterdir()) == []
    until = time.monotonic() + 10
    while any(_is_alive(pid) for pid in started) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(_is_alive(pid) for pid in started)
    while any(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_port_that_is_taken_is_said_so(running: Served) -> None:
    command = [sys.executable, "-m", "diagmem", "ui", "--no-browser", "--port", str(running.port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"port {running.port}" in done.stderr
    assert done.stderr.count("\n") == 1

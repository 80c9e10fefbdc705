"""Questions that probes ask: a real HTTP server, and a websocket that stands in for the API server's exec."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.sync.server import ServerConnection, serve

from gameday.clock import Clock
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.pod_exec import OUTPUT_BYTES, run_in_pod
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.prometheus import Sample
from gameday.errors import AdapterError, KubernetesError
from gameday.expect.probes import ExpectedProbe
from gameday.history.events import ProbeAnswered
from gameday.observe.probes import ask
from tests.report.run_builder import at


def probe(**keys: Any) -> ExpectedProbe:
    return ExpectedProbe.model_validate({"name": "p", "stays_for": "10s", "timeout": "2s", **keys})


# HTTP ------------------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/ok")
            self.end_headers()
            return
        self.send_response(503 if self.path == "/down" else 200)
        self.end_headers()
        try:
            while self.path == "/trickle":
                self.wfile.write(b"x")
                time.sleep(0.05)
            if self.path == "/endless":
                while True:
                    self.wfile.write(b"y" * 65_536)
            self.wfile.write(b'password=hunter2hunter2 {"state": "ready\x1b[31m"}')
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    http.server_close()
    thread.join()


def http_answer(url: str, timeout: str = "5s", **keys: Any) -> ProbeAnswered:
    return ask(SimpleNamespace(clock=Clock()), probe(http={"url": url, **keys}, timeout=timeout), ["n"])  # type: ignore[arg-type]


def test_status_and_body_are_compared_and_no_body_is_kept(server: str) -> None:
    good = http_answer(f"{server}/ok", body='"state": *"ready')
    assert (good.holds, good.detail) == (True, "status 200, and the pattern is in the body")
    other = http_answer(f"{server}/ok", body="stopped")
    assert other.holds is False
    assert "hunter2" not in good.model_dump_json() + other.model_dump_json()
    down = http_answer(f"{server}/down")
    assert (down.holds, down.detail) == (False, "status 503")


def test_a_redirect_is_an_answer_and_is_not_followed(server: str) -> None:
    Handler.asked.clear()
    assert http_answer(f"{server}/moved").detail == "status 302"
    assert http_answer(f"{server}/moved", status=302).holds is True
    assert Handler.asked == ["/moved", "/moved"]


def test_a_body_that_never_ends_costs_its_time_out_and_64_kib(server: str) -> None:
    assert http_answer(f"{server}/trickle", timeout="500ms", body="z").detail == "no answer within 0.5 s"
    assert http_answer(f"{server}/endless", body="z").detail.endswith("not in the first 65536 bytes")


def test_a_closed_port_does_not_hold_and_an_unknown_name_is_unknown() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = http_answer(f"http://127.0.0.1:{free.getsockname()[1]}/")
    assert closed.holds is False
    assert http_answer("http://nowhere.invalid/").holds is None


@pytest.mark.parametrize(
    "url", ["http://a..b/", "http://xn--zz/", "http://é\u0301.invalid/", "http://[::1%25x]/", "http://1.2.3/"]
)
def test_no_strange_host_ends_the_run(url: str) -> None:
    assert http_answer(url, timeout="500ms").holds is not True


# PromQL ----------------------------------------------------------------------------------------------------------


@dataclass
class Prometheus:
    """Answers with these values, and keeps what it was asked."""

    values: tuple[float, ...]
    asked: str = ""

    def query(self, promql: str) -> list[Sample]:
        self.asked = promql
        if not self.values:
            return []
        return [Sample("m", {}, at(0), value) for value in self.values]


class Away:
    def query(self, promql: str) -> list[Sample]:
        raise AdapterError("http://prometheus", "does not answer")


def promql_answer(server: Any, **keys: Any) -> ProbeAnswered:
    run = SimpleNamespace(clock=Clock(), servers=SimpleNamespace(prometheus=server))
    asked = {"query": 'm{node=~"$targets"}', "at_least": 2, "at_most": 3, **keys}
    return ask(run, probe(promql=asked), ["b.example", "a"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "series", "holds"),
    [
        ((2, 3), "every", True),
        ((2, 4), "every", False),
        ((2, 4), "any", True),
        ((1, 4), "any", False),
        ((), "any", None),
        ((float("nan"),), "every", None),
        ((2, float("nan")), "every", None),
        ((float("inf"),), "every", False),
    ],
)
def test_values_are_compared_and_absent_ones_are_unknown(values: Any, series: str, holds: bool | None) -> None:
    assert promql_answer(Prometheus(values), series=series).holds is holds


def test_targets_become_a_pattern_that_matches_their_names_only() -> None:
    prometheus = Prometheus((2,))
    promql_answer(prometheus)
    assert prometheus.asked == 'm{node=~"a|b[.]example"}'


def test_a_prometheus_that_is_away_leaves_it_unknown() -> None:
    answered = promql_answer(Away())
    assert (answered.holds, "does not answer" in answered.detail) == (None, True)


# Commands in pods ------------------------------------------------------------------------------------------------

SUCCESS = b"\x03" + json.dumps({"status": "Success"}).encode()


def failure(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return b"\x03" + json.dumps(status).encode()


@contextmanager
def api_server(tmp_path: Path, answer: Callable[[ServerConnection], None], status: int = 101) -> Iterator[Any]:
    """A websocket in place of the API server, and a client of it; yields the client and the requests' queries."""
    asked: list[tuple[str, dict[str, list[str]], str | None]] = []

    def process(connection: ServerConnection, request: Any) -> Any:
        parts = urlsplit(request.path)
        asked.append((parts.path, parse_qs(parts.query), request.headers.get("Authorization")))
        if status != 101:
            return connection.respond(status, json.dumps({"message": 'pods "x" is forbidden\x1b[2J'}))
        return None

    with serve(answer, "127.0.0.1", 0, subprotocols=["v4.channel.k8s.io"], process_request=process) as server:  # type: ignore[list-item]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]
        config = tmp_path / "kubeconfig"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                    "users": [{"name": "u", "user": {"token": "t0ken"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        urls = {name: {"url": "http://127.0.0.1:1"} for name in ("prometheus", "alertmanager", "loki")}
        profile = ClusterProfile.model_validate({"name": "c", "kubeconfig": config, **urls})
        kubernetes = Kubernetes(profile, CallCounter())
        try:
            yield kubernetes, asked
        finally:
            kubernetes.close()
            server.shutdown()
            thread.join()


def says(*frames: bytes) -> Callable[[ServerConnection], None]:
    def answer(connection: ServerConnection) -> None:
        for frame in frames:
            connection.send(frame)

    return answer


def test_a_command_goes_as_words_and_its_exit_status_comes_back(tmp_path: Path) -> None:
    with api_server(tmp_path, says(b"\x01GPU 0: H100\n", b"\x02warning\n", failure(3))) as (kubernetes, asked):
        result = run_in_pod(kubernetes, "training", "job-1", "main", ["nvidia-smi", "-L; rm -rf /"], 5)
    assert (result.exit_status, result.output) == (3, "GPU 0: H100\nwarning\n")
    path, query, authorization = asked[0]
    assert path == "/api/v1/namespaces/training/pods/job-1/exec"
    assert (query["command"], query["container"]) == (["nvidia-smi", "-L; rm -rf /"], ["main"])
    assert "stdin" not in query
    assert authorization == "Bearer t0ken"


def test_output_without_end_is_cut_and_a_silent_command_times_out(tmp_path: Path) -> None:
    flood = says(*[b"\x01" + b"x" * 60_000] * 20, SUCCESS)
    with api_server(tmp_path, flood) as (kubernetes, _):
        assert len(run_in_pod(kubernetes, "n", "p", None, ["yes"], 10).output) == OUTPUT_BYTES
    silence = threading.Event()
    with api_server(tmp_path, lambda connection: silence.wait(10) and None) as (kubernetes, _):
        with pytest.raises(KubernetesError, match=r"did not end within 0\.3 s"):
            run_in_pod(kubernetes, "n", "p", None, ["sleep"], 0.3)
        silence.set()


@pytest.mark.parametrize(
    "frames",
    [
        (),
        (b"\x01half",),
        (b"\x03not json",),
        (b"\x03[]",),
        (b"\x03" + b"[" * 100_000,),
        (b"\x03" + json.dumps({"status": "Failure", "details": "none"}).encode(),),
        (b"\x03" + json.dumps({"reason": "NonZeroExitCode", "details": {"causes": [None]}}).encode(),),
        (failure(0).replace(b'"0"', b'"many"'),),
        (b"\x03" + json.dumps({"status": "Failure", "message": "exec: no such file"}).encode(),),
    ],
)
def test_an_end_without_an_exit_status_is_no_result(tmp_path: Path, frames: tuple[bytes, ...]) -> None:
    with api_server(tmp_path, says(*frames)) as (kubernetes, _), pytest.raises(KubernetesError, match="run true in"):
        run_in_pod(kubernetes, "n", "p", None, ["true"], 5)


def test_a_missing_right_is_named_with_the_command_that_grants_it(tmp_path: Path) -> None:
    with api_server(tmp_path, says(), status=403) as (kubernetes, _), pytest.raises(KubernetesError) as caught:
        run_in_pod(kubernetes, "training", "p", None, ["true"], 5)
    assert caught.value.hint == "grant it with `kubectl apply -n training -k deploy/probes`"
    assert "\x1b" not in str(caught.value)


def test_an_exec_probe_asks_the_first_pod_and_keeps_no_output(tmp_path: Path) -> None:
    pods = [
        SimpleNamespace(metadata=SimpleNamespace(name=name, deletion_timestamp=gone))
        for name, gone in (("job-0", "2026-01-01"), ("job-2", None), ("job-1", None))
    ]
    wanted = {"namespace": "training", "selector": {"app": "x"}, "command": ["cat", "/state"], "output": "ok"}
    with api_server(tmp_path, says(b"\x01token=abcdefgh ok", SUCCESS)) as (kubernetes, asked):
        kubernetes.core = SimpleNamespace(list_namespaced_pod=lambda *_, **__: SimpleNamespace(items=pods))
        run: Any = SimpleNamespace(clock=Clock(), kubernetes=kubernetes)
        answered = ask(run, probe(exec=wanted), ["n"])
        assert (answered.holds, answered.detail) == (True, "exit status 0 in job-1, and the pattern is in the output")
        assert "/pods/job-1/" in asked[0][0]
        pods.clear()
        assert ask(run, probe(exec=wanted), ["n"]).holds is None

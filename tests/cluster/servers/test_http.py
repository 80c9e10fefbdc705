"""Requests to the observability servers: retries where they are safe, credentials, and errors a person can act on."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gameday.cluster import http_retries
from gameday.cluster.alertmanager import Alertmanager
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.http import HttpServer
from gameday.cluster.profile import Endpoint
from gameday.cluster.prometheus import Prometheus
from gameday.errors import AdapterError
from tests.support.ports import free_ports

from .conftest import Answer, Stub

GARBLED = b'{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"x"]}]}}'


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that a held answer never outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def closing_server(endpoint: Endpoint) -> closing[HttpServer]:
    return closing(HttpServer(endpoint))


def failure(url: str, **more: object) -> AdapterError:
    with Prometheus(Endpoint(url=url, **more)) as client, pytest.raises(AdapterError) as raised:  # type: ignore[arg-type]
        client.query('up{secret="hunter2"}')
    assert "hunter2" not in str(raised.value)
    return raised.value


def test_a_refused_connection_is_reported_with_url_and_cause() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    error = failure(url)
    assert str(error).startswith(f"{url}/api/v1/query: connection refused; is it running")
    assert error.status is None


def test_an_unknown_host_is_named_with_a_hint() -> None:
    assert "check the URL" in str(failure("http://no-such-host.invalid:9090"))
    assert "only inside the cluster" in str(failure("http://prometheus-operated.monitoring.svc.invalid:9090"))


def test_https_to_a_server_of_plain_http_says_so(stub: Stub) -> None:
    assert "does it speak plain HTTP" in str(failure(stub.url.replace("http:", "https:")))


@pytest.mark.parametrize(
    ("answer", "more", "words", "requests"),
    [
        (Answer(401), {}, ["401", "no credentials"], 1),
        (Answer(401), {"bearer_token_env": "PROM_TOKEN"}, ["401", "PROM_TOKEN", "expired"], 1),
        (Answer(403), {"bearer_token_env": "PROM_TOKEN"}, ["403", "PROM_TOKEN", "its own rules"], 1),
        (Answer(404), {}, ["404", "path"], 1),
        (Answer(302, headers={"Location": "http://login/"}), {}, ["302", "redirects"], 1),
        (Answer(500, b"on\x1b[31mfire\n" + b"x" * 999), {}, ["500: on [31mfire x", "…"], 1),
        (Answer(503), {}, ["503: empty body"], 4),
        (Answer(200, b"<html>log in</html>"), {}, ["JSON", "<html>log in</html>"], 1),
        (Answer(200, b'{"status":"success"}'), {}, ["data: Field required"], 1),
        (Answer(200, GARBLED), {}, ["valid number"], 1),
        (Answer(429, headers={"Retry-After": "3600"}), {}, ["429", "less load", "3600"], 1),
    ],
)  # fmt: skip
def test_a_bad_answer_is_explained_and_retried_only_where_that_may_help(
    stub: Stub,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    more: dict[str, str],
    words: list[str],
    requests: int,
) -> None:
    monkeypatch.setenv("PROM_TOKEN", "hunter2")
    stub.answers = [answer]
    text = str(failure(stub.url, **more))
    assert all(word in text for word in [f"{stub.url}/api/v1/query", *words]), text
    assert "\x1b" not in text
    assert len(stub.requests) == requests


def test_a_slow_answer_is_given_up_once(stub: Stub, gate: threading.Event) -> None:
    stub.answers = [Answer(delay=gate)]
    counter = CallCounter()
    with (
        Prometheus(Endpoint(url=stub.url, timeout_s=0.2), counter) as client,
        pytest.raises(AdapterError, match=r"no answer within 0\.2 s"),
    ):
        client.query("up")
    # The stub's thread may not have come to the request yet.
    assert counter.cost().requests == 1


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}])
def test_a_get_outlives_a_restart_and_counts_every_attempt(stub: Stub, headers: dict[str, str]) -> None:
    stub.answers = [Answer(503, headers=headers), Answer(429, headers=headers), Answer(200, b"[]")]
    counter = CallCounter()
    with Alertmanager(Endpoint(url=stub.url), counter) as client:
        assert client.alerts() == []
    assert counter.cost().by_call == {"GET api/v2/alerts": 3}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds slept between attempts, which nobody has to wait for."""
    slept: list[float] = []
    monkeypatch.setattr(http_retries.time, "sleep", slept.append)
    return slept


def test_pauses_double_and_are_jittered(stub: Stub, pauses: list[float]) -> None:
    stub.answers = [Answer(503)]
    for _ in range(20):
        failure(stub.url)
    assert len(set(pauses)) == len(pauses) == 60
    for number, longest in enumerate((0.2, 0.4, 0.8)):
        assert longest / 2 < max(pauses[number::3]) <= longest
        assert min(pauses[number::3]) >= 0


def test_a_retry_after_is_waited_for_with_jitter_and_a_longer_one_is_reported(stub: Stub, pauses: list[float]) -> None:
    stub.answers = [Answer(503, headers={"Retry-After": "30"}), Answer(429, headers={"Retry-After": "31"})]
    assert "429" in str(failure(stub.url))
    (pause,) = pauses
    assert 30 < pause <= 30.2
    assert len(stub.requests) == 2


@pytest.mark.parametrize(
    "value", ["soon", "-1", "Wed, 21 Oct 99999999999 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 -0000 \x1b[31m"]
)
def test_a_retry_after_that_is_no_time_is_ignored_and_not_shown(
    stub: Stub, pauses: list[float], value: str, caplog: pytest.LogCaptureFixture
) -> None:
    stub.answers = [Answer(503, headers={"Retry-After": value}), Answer(200, b"[]")]
    with Alertmanager(Endpoint(url=stub.url)) as client:
        assert client.alerts() == []
    assert [pause <= 0.2 for pause in pauses] == [True]
    assert [record for record in caplog.records if record.name.startswith("httpx_retries")] == []


def test_an_answer_that_breaks_off_is_asked_for_again(stub: Stub) -> None:
    stub.answers = [Answer(200, b"[", headers={"Content-Length": "2"}, hangs_up=True), Answer(200, b"[]")]
    counter = CallCounter()
    with Alertmanager(Endpoint(url=stub.url), counter) as client:
        assert client.alerts() == []
    assert counter.cost().by_call == {"GET api/v2/alerts": 2}


def test_an_answer_that_grows_too_large_when_unpacked_is_refused_once(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_retries, "_LARGEST_ANSWER_BYTES", 1 << 20)
    packed = gzip.compress(bytes(2 << 20))
    stub.answers = [Answer(200, packed, headers={"Content-Encoding": "gzip"})]
    error = failure(stub.url)
    assert str(error) == f"{stub.url}/api/v1/query: the answer is larger than 1 MiB; ask for less"
    assert len(stub.requests) == 1


def test_a_packed_answer_is_unpacked_and_counted_as_it_came(stub: Stub) -> None:
    packed = gzip.compress(b"[" + b" " * 100_000 + b"]")
    stub.answers = [Answer(200, packed, headers={"Content-Encoding": "gzip"})]
    counter = CallCounter()
    with Alertmanager(Endpoint(url=stub.url), counter) as client:
        assert client.alerts() == []
    assert len(packed) < counter.cost().bytes_received < len(packed) + 1000


def test_a_proxy_of_the_environment_is_used_for_servers_elsewhere(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", stub.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    stub.answers = [Answer(503), Answer(200, b"[]")]
    with Alertmanager(Endpoint(url="http://alertmanager.invalid:9093")) as client:
        assert client.alerts() == []
    assert [path for _, path, _ in stub.requests] == ["http://alertmanager.invalid:9093/api/v2/alerts"] * 2


def test_a_post_is_sent_once(stub: Stub) -> None:
    stub.answers = [Answer(503)]
    with closing_server(Endpoint(url=stub.url)) as server, pytest.raises(AdapterError, match="503"):
        server.post("push", {"a": 1})
    assert [method for method, _, _ in stub.requests] == ["POST"]


def test_credentials_are_read_anew_for_every_request(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    with closing_server(Endpoint(url=stub.url, bearer_token_file=token, tenant="gpu")) as server:
        server.get("a")
        token.write_text("two")
        server.get("b")
    monkeypatch.setenv("PASSWORD", "pässword")
    with closing_server(Endpoint(url=stub.url, username="me", password_env="PASSWORD")) as server:
        server.get("c")
    sent = [headers for _, _, headers in stub.requests]
    assert [headers.get("Authorization") for headers in sent] == ["Bearer one", "Bearer two", "Basic bWU6cMOkc3N3b3Jk"]
    assert sent[0]["X-Scope-OrgID"] == "gpu"


def test_a_token_that_rotates_between_two_attempts_is_read_anew(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    monkeypatch.setattr(http_retries.time, "sleep", lambda _: token.write_text("two"))
    stub.answers = [Answer(503), Answer(200)]
    with closing_server(Endpoint(url=stub.url, bearer_token_file=token)) as server:
        server.get("a")
    assert [headers["Authorization"] for _, _, headers in stub.requests] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"bearer_token_env": "NOT_SET"}, "bearer_token_env: $NOT_SET is not set"),
        ({"bearer_token_file": "/nowhere/token"}, "bearer_token_file /nowhere/token: No such file"),
        ({"username": "u", "password_file": "/nowhere/pw"}, "password_file /nowhere/pw: No such file"),
    ],
)
def test_missing_credentials_are_named_before_anything_is_sent(stub: Stub, more: dict[str, str], words: str) -> None:
    assert words in str(failure(stub.url, **more))
    assert stub.requests == []


def test_a_token_of_two_lines_is_refused_without_showing_it(stub: Stub, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hunter2\r\nX-Evil: 1")
    assert "more than one line" in str(failure(stub.url, bearer_token_file=token))


def test_an_unusable_ca_file_is_refused(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    with pytest.raises(AdapterError, match="No such file"):
        HttpServer(Endpoint(url="https://localhost", ca_file=bundle))
    bundle.write_text("no pem")
    with pytest.raises(AdapterError, match="PEM bundle"):
        HttpServer(Endpoint(url="https://localhost", ca_file=bundle))

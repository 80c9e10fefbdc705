"""`gameday export --traces` against a receiver on loopback: what it gets, and what is said where it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cli import run
from gameday.exit_codes import ExitCode
from tests.report.run_builder import passing, write
from tests.support.ports import free_ports
from tests.support.trace_receiver import Receiver

SECRET = "glc_not-for-terminals"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "run", passing())


def export(folder: Path, url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and all that was printed as one line."""
    code = run(["export", str(folder), "--traces", url])
    said = capsys.readouterr()
    return code, " ".join((said.out + said.err).split())


def test_it_is_sent_as_otlp_json_and_its_id_is_said(
    trace_receiver: Receiver, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = export(folder, trace_receiver.url, capsys)
    assert code == ExitCode.PASSED
    assert trace_receiver.paths == ["/v1/traces"]
    assert trace_receiver.headers[0]["content-type"] == "application/json"
    sent = trace_receiver.bodies[0]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert f"sent: trace {sent[0]['traceId']}, {len(sent)} spans, to {trace_receiver.url}" in said


def test_again_and_with_the_path_in_the_url_it_is_the_same_trace(
    trace_receiver: Receiver, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for url in (trace_receiver.url, f"{trace_receiver.url}/v1/traces", f"{trace_receiver.url}/v1/traces/"):
        assert export(folder, url, capsys)[0] == ExitCode.PASSED
    assert trace_receiver.paths == ["/v1/traces"] * 3
    assert trace_receiver.bodies[0] == trace_receiver.bodies[1] == trace_receiver.bodies[2]


@pytest.mark.parametrize("rejected", [b'"2"', b"2"])
def test_spans_that_it_leaves_out_are_said(
    trace_receiver: Receiver, folder: Path, rejected: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_receiver.answers = [
        (200, b'{"partialSuccess":{"rejectedSpans":' + rejected + b',"errorMessage":"too \\u001b[31mold"}}')
    ]
    code, said = export(folder, trace_receiver.url, capsys)
    assert code == ExitCode.USAGE
    assert "left out 2 of 21 spans" in said
    assert r"too \x1b[31mold" in said
    assert len(trace_receiver.bodies) == 1  # the protocol forbids to send it again


def test_its_advice_is_said_where_all_was_taken(
    trace_receiver: Receiver, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_receiver.answers = [(200, b'{"partialSuccess":{"errorMessage":"use gRPC [bold]here[/bold]"}}')]
    code, said = export(folder, trace_receiver.url, capsys)
    assert code == ExitCode.PASSED
    assert "the receiver says: use gRPC [bold]here[/bold]" in said


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_an_empty_answer_is_success(
    trace_receiver: Receiver, folder: Path, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_receiver.answers = [(200, body)]
    assert export(folder, trace_receiver.url, capsys)[0] == ExitCode.PASSED


def test_a_receiver_that_is_not_up_yet_is_asked_again(
    trace_receiver: Receiver, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_receiver.answers = [(503, b"{}"), (200, b"{}")]
    assert export(folder, trace_receiver.url, capsys)[0] == ExitCode.PASSED
    assert trace_receiver.bodies[0] == trace_receiver.bodies[1]


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "see the receiver's own log"),
        (401, "OTEL_EXPORTER_OTLP_HEADERS='Authorization=Bearer%20TOKEN' gameday export"),
        (404, "it takes no OTLP/HTTP in JSON there"),
        (413, "see the receiver's own log"),
        (503, "it is overloaded or not up"),
    ],
)
def test_a_refusal_has_its_status_its_message_and_a_next_command(
    trace_receiver: Receiver, folder: Path, status: int, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_receiver.answers = [(status, b'{"code":3,"message":"no such tenant"}')]
    code, said = export(folder, trace_receiver.url, capsys)
    assert code == ExitCode.USAGE
    assert f"{trace_receiver.url}/v1/traces: {status}: " in said
    assert "no such tenant" in said
    assert advice in said
    assert f"gameday export {folder} --traces {trace_receiver.url}" in said
    assert len(trace_receiver.bodies) == (4 if status == 503 else 1)


def test_a_login_page_is_no_receiver(
    trace_receiver: Receiver, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_receiver.answers = [(200, b"<html>Log in</html>")]
    code, said = export(folder, trace_receiver.url, capsys)
    assert code == ExitCode.USAGE
    assert "the answer is not that of an OTLP receiver: <html>Log in</html>" in said


def test_nobody_listens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    code, said = export(folder, f"http://127.0.0.1:{port}", capsys)
    assert code == ExitCode.USAGE
    assert "connection refused" in said
    assert "OTLP/HTTP has port 4318 by default" in said


@pytest.mark.parametrize(
    "url",
    [
        "tempo:4318",
        f"http://ada:{SECRET}@tempo:4318",
        "http://tempo:4318?x=1",
        "file:///x",
        "http://tempo:http",
        "http://tempo:99999",
        "http://[::1",
    ],
)
def test_a_wrong_url_is_refused_before_anything_is_sent(
    folder: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = export(folder, url, capsys)
    assert code == ExitCode.USAGE
    assert "such as --traces http://tempo:4318" in said
    assert SECRET not in said


def test_credentials_come_from_opentelemetrys_own_variables(
    trace_receiver: Receiver, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"Authorization=Bearer%20{SECRET}, X-Scope-OrgID=team-a")
    code, said = export(folder, trace_receiver.url, capsys)
    assert (code, SECRET in said) == (ExitCode.PASSED, False)
    assert trace_receiver.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert trace_receiver.headers[0]["x-scope-orgid"] == "team-a"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Basic%20abc")
    assert export(folder, trace_receiver.url, capsys)[0] == ExitCode.PASSED
    assert trace_receiver.headers[1]["authorization"] == "Basic abc"


@pytest.mark.parametrize("value", [SECRET, f"a b={SECRET}", f"a={SECRET}%0d%0aHost:%20x", f"a={SECRET}%C3%BC"])
def test_headers_that_cannot_be_sent_are_named_and_not_shown(
    trace_receiver: Receiver,
    folder: Path,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", value)
    code, said = export(folder, trace_receiver.url, capsys)
    assert (code, SECRET in said) == (ExitCode.USAGE, False)
    assert "$OTEL_EXPORTER_OTLP_HEADERS cannot be read" in said
    assert trace_receiver.bodies == []

"""`gameday export --traces` against a receiver on loopback: what it gets, and what is said where it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from gameday.cli import run
from gameday.exit_codes import ExitCode
from tests.report.run_builder import passing, write
from tests.support.ports import free_ports
from tests.support.trace_receiver import Receiver

SECRET = "glc_not-for-terminals"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "run", passing())


def export(folder: Path, url: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and all that was printed as one line."""
    code = run(["export", str(folder), "--traces", url])
    said = capfd.readouterr()
    return code, " ".join((said.out + said.err).split())


def test_it_is_sent_and_its_id_is_said_and_again_it_is_the_same_trace(
    trace_receiver: Receiver, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = export(folder, trace_receiver.url, capfd)
    assert code == ExitCode.PASSED
    spans = trace_receiver.requests[0].resource_spans[0].scope_spans[0].spans
    assert f"sent: trace {spans[0].trace_id.hex()}, {len(spans)} spans, to {trace_receiver.url}" in said
    for url in (f"{trace_receiver.url}/v1/traces", f"{trace_receiver.url}/v1/traces/"):
        assert export(folder, url, capfd)[0] == ExitCode.PASSED
    assert trace_receiver.paths == ["/v1/traces"] * 3
    assert trace_receiver.requests[0] == trace_receiver.requests[1] == trace_receiver.requests[2]


def test_spans_that_it_leaves_out_are_said(
    trace_receiver: Receiver, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    answer.partial_success.error_message = "too \x1b[31mold"
    trace_receiver.answers = [(200, answer.SerializeToString())]
    code, said = export(folder, trace_receiver.url, capfd)
    assert code == ExitCode.USAGE
    assert "left out 2 of 21 spans: too [31mold" in said
    assert len(trace_receiver.requests) == 1  # the protocol forbids to send it again


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (302, "see the receiver's own log"),
        (400, "see the receiver's own log"),
        (401, "set $OTEL_EXPORTER_OTLP_HEADERS to Authorization=Bearer%20TOKEN"),
        (404, "a path before /v1/traces belongs into the URL"),
    ],
)
def test_a_refusal_has_its_status_its_message_and_what_to_do(
    trace_receiver: Receiver, folder: Path, status: int, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    trace_receiver.answers = [(status, b"no such tenant")]
    code, said = export(folder, trace_receiver.url, capfd)
    assert code == ExitCode.USAGE
    assert f"{trace_receiver.url}/v1/traces: {status}: no such tenant; " in said
    assert advice in said


def test_a_login_page_is_no_receiver(trace_receiver: Receiver, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace_receiver.answers = [(200, b"<html>Log in</html>")]
    code, said = export(folder, trace_receiver.url, capfd)
    assert code == ExitCode.USAGE
    assert "the answer is not that of an OTLP receiver: <html>Log in</html>" in said


def test_nobody_listens(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")  # otherwise it asks for ten seconds
    (port,) = free_ports(1)
    code, said = export(folder, f"http://127.0.0.1:{port}", capfd)
    assert code == ExitCode.USAGE
    assert "no answer; check host, port (4318 by default)" in said


@pytest.mark.parametrize("url", ["tempo:4318", f"http://ada:{SECRET}@tempo:4318", "http://tempo:4318?x=1", "file:///x"])
def test_a_wrong_url_is_refused_before_anything_is_sent(
    folder: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = export(folder, url, capfd)
    assert code == ExitCode.USAGE
    assert "such as --traces http://tempo:4318" in said
    assert SECRET not in said


def test_credentials_come_from_opentelemetrys_own_variables(
    trace_receiver: Receiver, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"Authorization=Bearer%20{SECRET}, X-Scope-OrgID=team-a")
    code, said = export(folder, trace_receiver.url, capfd)
    assert (code, SECRET in said) == (ExitCode.PASSED, False)
    assert trace_receiver.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert trace_receiver.headers[0]["x-scope-orgid"] == "team-a"


@pytest.mark.parametrize("value", [SECRET, f"a b={SECRET}", f"a={SECRET}%0d%0aHost:%20x", f"a={SECRET}%C3%BC"])
def test_headers_that_cannot_be_sent_are_not_shown(
    trace_receiver: Receiver,
    folder: Path,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", value)
    assert SECRET not in export(folder, trace_receiver.url, capfd)[1]

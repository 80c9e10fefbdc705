"""A receiver of OpenTelemetry traces over OTLP/HTTP: a collector, Tempo, Jaeger and others.

OpenTelemetry's own exporter sends, by its own environment variables (OTEL_EXPORTER_OTLP_…): headers, certificates,
timeout, compression.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan

from gameday.cluster.http_errors import excerpt
from gameday.errors import AdapterError
from gameday.text import without_secrets

_PATH = "/v1/traces"
_HEADERS = "$OTEL_EXPORTER_OTLP_HEADERS"
_HINTS = {
    401: f"it wants credentials: set {_HEADERS} to Authorization=Bearer%20TOKEN",
    403: f"it does not accept the credentials in {_HEADERS}",
    404: f"a path before {_PATH} belongs into the URL; OTLP/HTTP has port 4318 by default, and 4317 is gRPC's",
}

# Both log headers that they cannot read, and those are credentials; what the exporter says of a failure is said here.
for _name in ("opentelemetry.exporter", "opentelemetry.util.re"):
    logging.getLogger(_name).propagate = False
    logging.getLogger(_name).addHandler(logging.NullHandler())


def send_spans(url: str, spans: Sequence[ReadableSpan]) -> None:
    """Send spans to a receiver.

    Args:
        url: The receiver's base URL; the path /v1/traces at its end may be there or not.
        spans: The spans.

    Raises:
        AdapterError: The receiver cannot be asked, refuses, or leaves spans out.
    """
    url = url.rstrip("/").removesuffix(_PATH) + _PATH
    answers: list[requests.Response] = []

    def keep(answer: requests.Response, **_: Any) -> None:
        answers.append(answer)

    with requests.Session() as session:
        session.hooks["response"].append(keep)
        OTLPSpanExporter(endpoint=url, session=session).export(spans)
    if not answers:
        hint = "check host, port (4318 by default), and $OTEL_EXPORTER_OTLP_CERTIFICATE for a CA of your own"
        raise AdapterError(url, "no answer", hint)
    answer = answers[-1]
    if answer.status_code != requests.codes.ok:
        hint = _HINTS.get(answer.status_code, "see the receiver's own log")
        raise AdapterError(url, f"{answer.status_code}: {_words(answer.content)}", hint, answer.status_code)
    _insist_on_all(url, answer.content, len(spans))


def _insist_on_all(url: str, body: bytes, spans: int) -> None:
    try:
        left_out = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:
        cause = f"the answer is not that of an OTLP receiver: {_words(body)}"
        raise AdapterError(url, cause, "is it another service's, or a login page's?") from None
    if left_out.rejected_spans > 0:
        words = _words(left_out.error_message.encode())
        raise AdapterError(url, f"it left out {left_out.rejected_spans} of {spans} spans: {words}", "see its limits")


def _words(body: bytes) -> str:
    return without_secrets(excerpt(body))

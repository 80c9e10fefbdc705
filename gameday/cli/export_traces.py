"""`gameday export --traces`: a run sent to an OTLP/HTTP receiver, and what to do where that does not take it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gameday.cli.console import console
from gameday.cluster.otlp import HEADERS, PATH, PartialSuccess, TraceReceiver
from gameday.cluster.profile import Endpoint
from gameday.errors import AdapterError, CommandError
from gameday.report.run_folder import RunFolder
from gameday.report.traces import trace_of
from gameday.text import printable, without_secrets

_PORT = "OTLP/HTTP has port 4318 by default, 4317 is gRPC's"


def send_trace(run: RunFolder, folder: Path, url: str) -> None:
    """Send the run's trace, and say what the receiver says of it.

    Args:
        run: The run.
        folder: Where it lies, for the command that tries again.
        url: The receiver's base URL; the path `/v1/traces` at its end may be there or not.

    Raises:
        CommandError: The URL is none, or the receiver cannot be asked, refuses, or leaves spans out.
    """
    trace = trace_of(run)
    if trace is None:
        raise CommandError("the run's history does not say which run it is of: there is nothing to trace")
    request = trace.request()
    spans = len(request["resourceSpans"][0]["scopeSpans"][0]["spans"])
    endpoint = _endpoint(url)
    answer = _send(endpoint, request, f"gameday export {shlex.quote(str(folder))} --traces {shlex.quote(url)}")
    words = without_secrets(printable(answer.error_message))
    if answer.rejected_spans > 0:
        why = f": {words}" if words else ""
        raise CommandError(
            f"{endpoint.url} left out {answer.rejected_spans} of {spans} spans of trace {trace.trace_id}{why}; "
            "see the receiver's own log and its limits"
        )
    console().print(f"sent: trace {trace.trace_id}, {spans} spans, to {endpoint.url}", soft_wrap=True, markup=False)
    if words:
        console().print(f"the receiver says: {words}", soft_wrap=True, markup=False)


def _send(endpoint: Endpoint, request: dict[str, Any], again: str) -> PartialSuccess:
    """Send the request; `again` is the command that tries again. Raises CommandError."""
    try:
        receiver = TraceReceiver(endpoint)
    except AdapterError as error:
        raise CommandError(str(error)) from None
    with receiver:
        try:
            return receiver.send(request)
        except AdapterError as error:
            cause = without_secrets(printable(error.cause))
            raise CommandError(f"{error.url}: {cause}; {_advice(error, again)}") from None


def _endpoint(url: str) -> Endpoint:
    try:
        return Endpoint(url=url)
    except ValidationError:
        raise CommandError(
            "--traces takes a receiver's base URL, such as --traces http://tempo:4318, without user, password and "
            f"query; credentials go into ${HEADERS[-1]}"
        ) from None


def _advice(error: AdapterError, again: str) -> str:
    """Return what to do about a receiver that did not take the trace, by its HTTP status."""
    match error.status:
        case None if "certificate" in error.cause:
            return f"name its CA's bundle: SSL_CERT_FILE=ca.pem {again}"
        case None:
            return f"{_PORT}. Try again: {again}"
        case 401 | 403:
            return f"it wants credentials: {HEADERS[-1]}='Authorization=Bearer%20TOKEN' {again}"
        case 404 | 405 | 415:
            return f"it takes no OTLP/HTTP in JSON there ({_PORT}; a path before /{PATH} belongs into the URL): {again}"
        case 429 | 502 | 503 | 504:
            return f"it is overloaded or not up; later: {again}"
    return f"see the receiver's own log; then: {again}"

"""A receiver of OpenTelemetry traces over OTLP/HTTP: a collector, Tempo, Jaeger and others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import unquote

from pydantic import Field, ValidationError

from gameday.cluster.http import Answer, HttpAdapter
from gameday.cluster.http_errors import excerpt
from gameday.cluster.profile import Endpoint
from gameday.errors import AdapterError

PATH = "v1/traces"
HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""The variables that hold a receiver's headers, credentials among them; the first that is set counts.

Both are OpenTelemetry's own (docs/sources.md, OTLP traces).
"""

# A header's name by RFC 9110 5.6.2.
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class PartialSuccess(Answer):
    """The number of spans that a receiver did not take, and its word on it."""

    rejected_spans: int = Field(default=0, alias="rejectedSpans")
    error_message: str = Field(default="", alias="errorMessage")


class _Answer(Answer):
    partial_success: PartialSuccess | None = Field(default=None, alias="partialSuccess")


class TraceReceiver(HttpAdapter):
    """A receiver of traces; methods raise AdapterError when it cannot be asked or refuses."""

    # The ids in a request are the same every time, so that repeating it makes no second trace.
    retried: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, endpoint: Endpoint) -> None:
        """Open the receiver; nothing is sent yet.

        Args:
            endpoint: The receiver; its URL may end in the path of traces, as other exporters want it.

        Raises:
            AdapterError: A variable of HEADERS is set and cannot be read.
        """
        super().__init__(endpoint.model_copy(update={"url": endpoint.url.removesuffix(f"/{PATH}")}))
        self.http.client.headers.update(_headers(endpoint))

    def send(self, request: Mapping[str, Any]) -> PartialSuccess:
        """Send an ExportTraceServiceRequest in OTLP's JSON encoding; return what the receiver says of it."""
        body = self.http.post(PATH, request)
        try:
            # Nothing at all is what the binary encoding makes of "all was taken", and some receivers say that.
            answer = _Answer.model_validate_json(body) if body else _Answer()
        except ValidationError:
            raise self.http.error(
                PATH,
                f"the answer is not that of an OTLP receiver: {excerpt(body)}",
                "is it another service's, or a login page's?",
            ) from None
        return answer.partial_success or PartialSuccess()


def _headers(endpoint: Endpoint) -> dict[str, str]:
    """Return the headers that the environment names: `key=value`, separated by commas, values percent-encoded."""
    variable = next((name for name in HEADERS if os.environ.get(name)), None)
    if variable is None:
        return {}
    headers: dict[str, str] = {}
    for pair in os.environ[variable].split(","):
        name, separator, value = (part.strip() for part in pair.partition("="))
        value = unquote(value)
        if not separator or not _TOKEN.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise AdapterError(
                f"{endpoint.url}/{PATH}",
                f"${variable} cannot be read",
                f"write it as {variable}='Authorization=Bearer%20TOKEN,other=value'",
            )
        headers[name] = value
    return headers

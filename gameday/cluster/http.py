"""HTTP for the adapters of Prometheus, Alertmanager and Loki.

The adapters differ in what they ask, not in how: each holds one `HttpServer`. Only GET is retried, because only GET is
safe to repeat. A run's cost to these servers is counted per attempt, so that retries count too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from gameday.cluster.call_counter import CallCounter
from gameday.cluster.http_credentials import Credentials, trusted_certificates
from gameday.cluster.http_errors import excerpt, explain, status_error
from gameday.cluster.http_retries import CALL, retrying
from gameday.cluster.profile import Endpoint
from gameday.errors import AdapterError

_CONNECT_TIMEOUT_S = 3.0

M = TypeVar("M")


class HttpServer:
    """A server at an `Endpoint`, to be closed; `client` is for requests beyond this class, such as websockets."""

    def __init__(self, endpoint: Endpoint, counter: CallCounter | None = None) -> None:
        """Open a client; nothing is sent yet.

        Args:
            endpoint: The server and, by reference, the credentials for it.
            counter: Counts the requests; None starts a new count.

        Raises:
            AdapterError: The endpoint's `ca_file` cannot be used.
        """
        self.endpoint = endpoint
        self.counter = counter or CallCounter()
        self.credentials = Credentials(endpoint)
        headers = {"User-Agent": "gpu-gameday", "Accept": "application/json"}
        if endpoint.tenant:
            headers["X-Scope-OrgID"] = endpoint.tenant
        self.client = httpx.Client(
            base_url=endpoint.url + "/",
            auth=self.credentials,
            headers=headers,
            timeout=httpx.Timeout(endpoint.timeout_s, connect=min(_CONNECT_TIMEOUT_S, endpoint.timeout_s)),
            verify=trusted_certificates(endpoint),
            # A proxy of the environment must not be used for a server on this machine.
            trust_env=not _is_loopback(endpoint.url),
        )
        self._transport = retrying(self.client, self.counter)

    def close(self) -> None:
        """Close all connections to the server."""
        self._transport.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None, *, call: str | None = None) -> bytes:
        """Return the body of a 2xx answer; failures that may pass are tried again.

        Args:
            path: Relative to the endpoint's URL.
            params: The query.
            call: The name under which the request is counted; None for `GET <path>`.

        Raises:
            AdapterError: The server cannot be asked, or refuses.
        """
        return self.answer(path, params, call=call).content

    def answer(self, path: str, params: Mapping[str, Any] | None = None, *, call: str | None = None) -> httpx.Response:
        """Return a 2xx answer with its headers. Arguments and errors as for `get`."""
        return self._send("GET", path, call or f"GET {path}", params=params)

    def post(self, path: str, body: object, *, call: str | None = None) -> bytes:
        """Send `body` as JSON; return the body of a 2xx answer. Arguments and errors as for `get`."""
        return self._send("POST", path, call or f"POST {path}", json=body).content

    def get_as(
        self, shape: type[M], path: str, params: Mapping[str, Any] | None = None, *, call: str | None = None
    ) -> M:
        """Return the JSON of a 2xx answer as `shape`, a pydantic type or a list of one. Other arguments as for `get`.

        Raises:
            AdapterError: The server cannot be asked, refuses, or gives another kind of answer.
        """
        body = self.get(path, params, call=call)
        try:
            return TypeAdapter(shape).validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            at = ".".join(str(part) for part in first["loc"])
            what = f"{at}: {first['msg']}" if at else first["msg"]
            raise self.error(
                path,
                f"the answer is not what this server should say ({what}): {excerpt(body)}",
                "check that the URL is the server's own, not another service's or a login page's",
            ) from None

    def error(self, path: str, cause: str, hint: str = "", status: int | None = None) -> AdapterError:
        """Return an AdapterError about one of this server's paths."""
        return AdapterError(f"{self.endpoint.url}/{path.lstrip('/')}", cause, hint, status)

    def _send(self, method: str, path: str, call: str, **content: Any) -> httpx.Response:
        request = self.client.build_request(method, path.lstrip("/"), extensions={CALL: call}, **content)
        try:
            response = self._transport.handle_request(request)
            if not response.is_success:
                raise status_error(response)
        except httpx.HTTPError as error:
            raise explain(error, self.endpoint, path) from None
        return response


class HttpAdapter:
    """Base of the adapters: one server's API, over one `HttpServer`; a context manager that closes it.

    Every method of an adapter raises AdapterError, and nothing else, if the server cannot be asked or refuses.
    """

    def __init__(self, endpoint: Endpoint, counter: CallCounter | None = None) -> None:
        """Open the server. Arguments and errors as for `HttpServer`."""
        self.http = HttpServer(endpoint, counter)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections to the server."""
        self.http.close()


class Answer(BaseModel):
    """Base of the answers' models. Servers add keys over time: unknown ones are ignored, known ones are checked."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


def _is_loopback(url: str) -> bool:
    host = httpx.URL(url).host
    return host in ("localhost", "::1") or host.startswith("127.")

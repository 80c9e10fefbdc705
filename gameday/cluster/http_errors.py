"""Errors of HTTP requests in words that a person can act on."""

from __future__ import annotations

import socket
import ssl

import httpx

from gameday.cluster.profile import Endpoint
from gameday.errors import AdapterError
from gameday.text import printable

_EXCERPT_CHARACTERS = 200


def status_error(response: httpx.Response) -> httpx.HTTPStatusError:
    """Return the error of an answer that is not a success; its text is the beginning of the body."""
    return httpx.HTTPStatusError(excerpt(response.content), request=response.request, response=response)


def explain(error: httpx.HTTPError, endpoint: Endpoint, path: str) -> AdapterError:
    """Return an AdapterError about `path` of `endpoint` that says what happened and what to do about it."""
    url = f"{endpoint.url}/{path.lstrip('/')}"
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return AdapterError(url, f"{status}: {error.args[0]}", _status_hint(status, endpoint, error.response), status)
    if isinstance(error, httpx.ConnectTimeout):
        return AdapterError(url, "no connection in time", "check address, network and firewall")
    if isinstance(error, httpx.TimeoutException):
        return AdapterError(url, f"no answer within {endpoint.timeout_s:g} s", "is it overloaded? raise timeout_s")
    root: BaseException = error
    while (deeper := root.__cause__ or root.__context__) is not None:
        root = deeper
    return AdapterError(url, *_cause_and_hint(root))


def _cause_and_hint(root: BaseException) -> tuple[str, str]:
    """Return why a connection failed, and what to do."""
    match root:
        case ssl.SSLCertVerificationError():
            return f"certificate not trusted: {root.verify_message}", "set ca_file to its CA bundle"
        case ssl.SSLError():
            return f"no TLS: {root.reason or root}", "does it speak plain HTTP, as http://?"
        case socket.gaierror():
            hint = (
                "check the URL; a name in .svc resolves only inside the cluster (`kubectl port-forward` brings it here)"
            )
            return f"this name does not resolve here: {root.strerror}", hint
        case ConnectionRefusedError():
            return "connection refused", "is it running, and is the port right?"
    cause = root.strerror if isinstance(root, OSError) and root.strerror else str(root) or type(root).__name__
    return cause.lower(), "check the URL in the cluster profile and that the server runs"


def _status_hint(status: int, endpoint: Endpoint, response: httpx.Response) -> str:
    if status in (401, 403):
        return _credentials_hint(status, endpoint)
    if status == 404:
        return "check the path in the URL of the cluster profile"
    if status == 429:
        return f"it asks for less load (Retry-After: {printable(response.headers.get('Retry-After', 'none'))})"
    if response.is_redirect:
        return "set the URL of the cluster profile to where it redirects, if that is not a login page"
    return "see the server's own log" if status >= 500 else ""


def _credentials_hint(status: int, endpoint: Endpoint) -> str:
    reference = endpoint.bearer_token_file or endpoint.bearer_token_env or endpoint.password_file
    reference = reference or endpoint.password_env
    if not reference:
        return "the cluster profile gives no credentials: set bearer_token_file, or username and password_file"
    if status == 401:
        return f"check the credentials in {reference}: they have expired, or are another server's"
    return f"it knows the credentials in {reference}, but its own rules, or a proxy's, do not allow this"


def excerpt(body: bytes) -> str:
    """Return the beginning of a body as one printable line; a server's text is hostile input."""
    text = body[: _EXCERPT_CHARACTERS * 4].decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (line[:_EXCERPT_CHARACTERS] + "…" if len(line) > _EXCERPT_CHARACTERS else line) or "empty body"

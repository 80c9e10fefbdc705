"""The client by which scripts drive a server.

It writes down every request and its answer, so that the answers of two servers can be compared.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx
import yaml

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

# What is compared of an answer's headers; the others name a request, a date or a level of flow control.
_HEADERS = ("Allow", "Cache-Control", "Content-Type", "Location", "Retry-After", "Vary", "Warning")
# No answer may keep a script waiting longer; the servers' own time limits are shorter or set by the script.
_ANSWER_WITHIN_S = 60.0
_SETTLED_WITHIN_S = 60.0


@dataclass(frozen=True)
class Server:
    """Where a server is, and its administrator's kubeconfig."""

    url: str
    kubeconfig: Path
    forget: Callable[[], None]
    """The server forgets every version before the latest, as time makes it do."""

    def http(self, *, anonymous: bool = False, token: str = "") -> httpx.Client:
        """HTTP as the administrator, as nobody, or with a token; raises OSError for a kubeconfig that is not there."""
        config = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        data = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
        tls = ssl.create_default_context(cafile=cluster.get("certificate-authority"), cadata=data or None)
        headers = {"User-Agent": "conformance/1.0"}
        if token or (not anonymous and "token" in user):
            headers["Authorization"] = f"Bearer {token or user['token']}"
        elif not anonymous:
            tls.load_cert_chain(user["client-certificate"], user["client-key"])
        http = httpx.Client(
            base_url=self.url, verify=tls, headers=headers, timeout=_ANSWER_WITHIN_S, trust_env=False, http1=True
        )
        for unasked in ("Accept", "Accept-Encoding"):
            del http.headers[unasked]
        return http


@dataclass(frozen=True)
class Answer:
    """What came back, for the script's own use."""

    status: int
    body: Any

    @property
    def rv(self) -> str:
        """metadata.resourceVersion."""
        return str(self.body["metadata"]["resourceVersion"])


class Client:
    """One identity's connection. `ns` is a namespace of the script's own that exists on both servers."""

    def __init__(self, server: Server, ns: str, exchanges: list[Json] | None = None, **identity: Any) -> None:
        self.ns = ns
        self.exchanges: list[Json] = [] if exchanges is None else exchanges
        self.server = server
        self._opened: list[Client] = []
        self._who = "anonymous" if identity.get("anonymous") else "token" if identity.get("token") else ""
        self._http = server.http(**identity)

    # Identities ------------------------------------------------------------------------------------------------

    def anonymous(self) -> Client:
        """The same recording, without credentials."""
        return self._other(anonymous=True)

    def bearer(self, token: str) -> Client:
        """The same recording, with a bearer token."""
        return self._other(token=token)

    def _other(self, **identity: Any) -> Client:
        other = Client(self.server, self.ns, self.exchanges, **identity)
        self._opened.append(other)
        return other

    def close(self) -> None:
        """Close this connection and those opened from it."""
        for other in self._opened:
            other.close()
        self._http.close()

    # Recorded --------------------------------------------------------------------------------------------------

    def get(self, step: str, path: str, query: Mapping[str, str] | None = None, **options: Any) -> Answer:
        """GET and record; `options` as for `send`."""
        return self.send(step, "GET", path, query=query, **options)

    def send(
        self,
        step: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        only: Callable[[Any], Any] | None = None,
        raw: bool = False,
        managed: bool = False,
    ) -> Answer:
        """Send one request and record it as `step`.

        `body` is JSON, or bytes or text sent as they are. `only` picks the part of the answer's body that is compared.
        `raw` leaves the answer's body text. `managed` keeps metadata.managedFields, which are dropped otherwise.
        """
        content, sent = _content(body, content_type, headers)
        answer = self._http.request(method, _url(path, query), content=content, headers=sent)
        decoded = answer.text if raw else _decoded(answer)
        response: Json = {"status": answer.status_code, "headers": _kept(answer.headers)}
        shown = only(decoded) if only else decoded
        if shown is not None:
            response["body"] = shown
        self._record(step, self._request(method, path, query, headers, body, content_type), response, managed)
        return Answer(answer.status_code, decoded)

    def watch(
        self,
        step: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        until: int | Callable[[Json], bool] | None = None,
        during: Callable[[], None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[Json]:
        """Watch and record events up to the `until`-th, or up to the one for which `until` holds.

        Without `until` the stream is recorded to its end: then the query must hold timeoutSeconds.

        `during` runs once the server has begun its answer. Never waits for a time of its own.
        """
        asked = {"watch": "1", **(query or {})}
        request = self._request("GET", path, asked, headers, None, "")
        with self._http.stream("GET", _url(path, asked), headers=dict(headers or {})) as answer:
            response: Json = {"status": answer.status_code, "headers": _kept(answer.headers)}
            if during:
                during()
            if answer.status_code != httpx.codes.OK:
                answer.read()
                self._record(step, request, {**response, "body": _decoded(answer)}, False)
                return []
            events = list(_until(_events(answer), until))
        if until is None:
            response["ended"] = True
        self._record(step, request, {**response, "events": events}, False)
        return events

    def record(self, step: str, request: Json, response: Json) -> None:
        """Record the requests of a program and the server's answers."""
        self._record(step, request, {"headers": {}, **response}, False)

    # Not recorded ----------------------------------------------------------------------------------------------

    def do(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Preparation: send, demand success, return the body; nothing is recorded."""
        content, sent = _content(body, content_type, None)
        answer = self._http.request(method, path, content=content, headers=sent)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return _decoded(answer)

    def forget(self) -> None:
        """Make the server forget every version before the latest."""
        self.server.forget()

    def until(self, path: str, condition: Callable[[Any], bool]) -> Any:
        """The body of GET `path`, asked until the condition holds for it (None while it is not found)."""
        ends = time.monotonic() + _SETTLED_WITHIN_S
        while True:
            answer = self._http.get(path)
            body = None if answer.status_code == httpx.codes.NOT_FOUND else _decoded(answer)
            if condition(body):
                return body
            if time.monotonic() > ends:
                raise AssertionError(f"not within {_SETTLED_WITHIN_S:.0f} s of GET {path}: {answer.text[:500]}")
            time.sleep(0.02)

    def until_allowed(self, path: str, review: Json, headers: Mapping[str, str] | None = None) -> None:
        """Wait until an access review says yes: servers see RBAC objects a moment after they were written."""
        ends = time.monotonic() + _SETTLED_WITHIN_S
        while not self._http.post(path, json=review, headers=dict(headers or {})).json()["status"]["allowed"]:
            assert time.monotonic() < ends, f"not within {_SETTLED_WITHIN_S:.0f} s allowed: {review}"
            time.sleep(0.02)

    def namespace(self, name: str) -> str:
        """A further namespace, with the default service account that pods need."""
        self.do("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda body: body is not None)
        self.until(f"/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt", lambda body: body is not None)
        return name

    # -----------------------------------------------------------------------------------------------------------

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        body: Any,
        content_type: str,
    ) -> Json:
        bare, _, given = path.partition("?")
        request: Json = {"method": method, "path": bare}
        asked = {**dict(parse_qsl(given, keep_blank_values=True)), **(query or {})}
        parts = {"as": self._who, "query": asked, "headers": dict(headers or {})}
        request |= {name: part for name, part in parts.items() if part}
        if body is not None:
            request["body"] = body.decode(errors="replace") if isinstance(body, bytes) else body
            if content_type != "application/json":
                request["content_type"] = content_type
        return request

    def _record(self, step: str, request: Json, response: Json, managed: bool) -> None:
        assert step not in {known["step"] for known in self.exchanges}, f"two steps are named {step!r}"
        if not response["headers"]:
            del response["headers"]
        # By way of JSON: what the script does to the objects later must not change the record.
        found: Json = json.loads(json.dumps({"step": step, "request": request, "response": response}, default=str))
        if not managed:
            _drop_managed_fields(found["response"])
        self.exchanges.append(found)


class _JsonTypes(yaml.SafeLoader):
    """YAML with JSON's types only: times stay text."""


_JsonTypes.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if not tag.endswith(":timestamp")]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _url(path: str, query: Mapping[str, str] | None) -> str:
    if not query:
        return path
    return f"{path}{'&' if '?' in path else '?'}{urlencode(query)}"


def _content(body: Any, content_type: str, headers: Mapping[str, str] | None) -> tuple[bytes | None, dict[str, str]]:
    sent = dict(headers or {})
    if body is None:
        return None, sent
    if content_type:
        sent.setdefault("Content-Type", content_type)
    if isinstance(body, bytes):
        return body, sent
    return (body if isinstance(body, str) else json.dumps(body)).encode(), sent


def _kept(headers: httpx.Headers) -> dict[str, str]:
    return {name: headers[name] for name in _HEADERS if name in headers}


def _decoded(answer: httpx.Response) -> Any:
    """JSON and YAML as data, text as text, nothing as None."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    if not answer.content:
        return None
    if kind == "application/json":
        return answer.json()
    if kind == "application/yaml":
        return yaml.load(answer.text, _JsonTypes)
    return answer.text


def _events(answer: httpx.Response) -> Iterator[Json]:
    for line in answer.iter_lines():
        yield json.loads(line)


def _until(events: Iterator[Json], until: int | Callable[[Json], bool] | None) -> Iterator[Json]:
    for number, event in enumerate(events, start=1):
        yield event
        if until is not None and (until == number if isinstance(until, int) else until(event)):
            return
    assert until is None, "the stream ended before the event that the script waits for"


def _drop_managed_fields(value: Any) -> None:
    if isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            metadata.pop("managedFields", None)
        for part in value.values():
            _drop_managed_fields(part)
    elif isinstance(value, list):
        for part in value:
            _drop_managed_fields(part)

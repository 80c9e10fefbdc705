"""The kubelets' own endpoint, one HTTPS port for all virtual nodes: pods and container logs, only for the API server.

A kubelet asks the API server by webhook whether a caller may use it. Here the one user that every cluster allows is
known by name instead: a caller with a certificate of the cluster's authority for `API_SERVER`.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from aiohttp import web

from gameday.errors import TlsFolderError
from gameday_rehearsal.nodes.container_log import ContainerLog, Line
from gameday_rehearsal.nodes.kubelet import Kubelet
from gameday_rehearsal.nodes.pod import PodRunner
from gameday_rehearsal.nodes.pod_status import Container

API_SERVER = "kube-apiserver-kubelet-client"
"""Common name of the API server's client certificate, as kubeadm and the lab make it."""


class Kubelets(Protocol):
    """The kubelets that this endpoint speaks for."""

    kubelets: dict[str, Kubelet]

    def pod(self, namespace: str, name: str) -> PodRunner | None:
        """Return the newest pod of that name on any of the nodes."""


_NODES: web.AppKey[Kubelets] = web.AppKey("nodes")
_CERTIFICATE, _KEY, _AUTHORITY = "kubelet.crt", "kubelet.key", "ca.crt"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serving_tls(folder: Path) -> ssl.SSLContext:
    """Serve with the folder's kubelet.crt and kubelet.key, for clients with a certificate of its ca.crt.

    Raises TlsFolderError.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.verify_mode = ssl.CERT_REQUIRED
    for name in (_CERTIFICATE, _KEY, _AUTHORITY):
        if not (folder / name).is_file():
            raise TlsFolderError(
                f"{folder / name}: no such file; the data folders of the lab and of the embedded API server have"
                f" {_CERTIFICATE}, {_KEY} and {_AUTHORITY}. Without --tls-folder the nodes join, but show no logs"
            )
    try:
        tls.load_cert_chain(folder / _CERTIFICATE, folder / _KEY)
        tls.load_verify_locations(folder / _AUTHORITY)
    except OSError as error:  # ssl.SSLError is one
        raise TlsFolderError(f"{folder}: its {_CERTIFICATE}, {_KEY} or {_AUTHORITY} cannot be used: {error}") from None
    return tls


def application(nodes: Kubelets) -> web.Application:
    app = web.Application(middlewares=[_api_server_only])
    app[_NODES] = nodes
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/pods", _pods)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", _container_logs)
    return app


@web.middleware
async def _api_server_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    assert request.transport is not None
    shown = request.transport.get_extra_info("peercert") or {}
    names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    if names != [API_SERVER]:
        raise web.HTTPForbidden(text=f"Forbidden (user={', '.join(names)}): only {API_SERVER} may use this endpoint\n")
    return await handler(request)


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _pods(request: web.Request) -> web.Response:
    kubelets = request.app[_NODES].kubelets.values()
    items = [runner.pod for kubelet in kubelets for runner in kubelet.pods.values()]
    return web.json_response({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})


async def _container_logs(request: web.Request) -> web.StreamResponse:
    where = request.match_info
    pod = request.app[_NODES].pod(where["namespace"], where["pod"])
    if pod is None:
        raise web.HTTPNotFound(text=f'pod "{where["pod"]}" does not exist')
    container = pod.find(where["container"])
    if container is None:
        raise web.HTTPNotFound(text=f'container "{where["container"]}" not found in pod "{where["pod"]}"')
    chosen = _chosen(request, container)
    answer = _Answer(request)
    lines, position = chosen.read(0)
    shown = _wanted(request, lines)
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    await response.prepare(request)
    try:
        await answer.send(response, chosen, shown, position)
        await response.write_eof()
    except ConnectionError:
        pass  # the client that followed the log has closed the connection
    return response


def _chosen(request: web.Request, container: Container) -> ContainerLog:
    """Return the requested log. Raises HTTPBadRequest, in a kubelet's words."""
    named = f'container "{container.name}" in pod "{request.match_info["pod"]}"'
    if _flag(request, "previous"):
        if container.previous_log is None:
            raise web.HTTPBadRequest(text=f"previous terminated {named} not found")
        return container.previous_log
    if container.log is not None:
        return container.log
    if container.ended:  # under an earlier nodes process
        raise web.HTTPBadRequest(text=f"unable to retrieve container logs for {named}")
    raise web.HTTPBadRequest(text=f"{named} is waiting to start: {container.waiting[0]}")


class _Answer:
    """Writes lines as the request wants them, up to its limit of bytes."""

    def __init__(self, request: web.Request) -> None:
        """Read the request's options. Raises HTTPBadRequest."""
        self._stamped = _flag(request, "timestamps")
        self._follow = _flag(request, "follow")
        self._left = _number(request, "limitBytes")

    async def send(self, response: web.StreamResponse, log: ContainerLog, lines: list[Line], position: int) -> None:
        """Send the lines and, if asked, what follows from `position` on. Raises ConnectionError."""
        await self._write(response, lines)
        while self._follow and self._left != 0:
            closed = log.closed  # asked before reading, so that what comes in between is read
            lines, position = log.read(position)
            await self._write(response, lines)
            if closed:
                return
            if not lines:
                await log.grown()

    async def _write(self, response: web.StreamResponse, lines: list[Line]) -> None:
        text = "".join(map(self._shown, lines)).encode()
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        await response.write(text)  # an empty first chunk shows a follower that the answer begins

    def _shown(self, line: Line) -> str:
        return f"{line.at.strftime('%Y-%m-%dT%H:%M:%S.%f')}000Z {line.text}\n" if self._stamped else f"{line.text}\n"


def _wanted(request: web.Request, lines: list[Line]) -> list[Line]:
    """Return the existing lines that since… and tailLines ask for. Raises HTTPBadRequest."""
    if since := _number(request, "sinceSeconds"):
        after = datetime.now(UTC) - timedelta(seconds=since)
        lines = [line for line in lines if line.at >= after]
    elif since_time := request.query.get("sinceTime"):
        try:
            after = datetime.fromisoformat(since_time)
        except ValueError:
            raise web.HTTPBadRequest(text="sinceTime is not an RFC 3339 time") from None
        lines = [line for line in lines if line.at >= after]
    tail = _number(request, "tailLines")
    return lines[len(lines) - min(tail, len(lines)) :] if tail is not None else lines


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() in ("true", "1")


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise web.HTTPBadRequest(text=f"{name} must be a whole number")
    return int(text)

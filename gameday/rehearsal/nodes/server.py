"""The one HTTP server of all virtual nodes: virtual hosts, dcgm-exporter's /metrics, and the kubelets' endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gameday.host.base import HostError
from gameday.rehearsal.nodes.container_log import ContainerLog, Line
from gameday.rehearsal.nodes.exposition import CONTENT_TYPE
from gameday.rehearsal.nodes.files import read_file, write_file
from gameday.rehearsal.nodes.machine import Machine, MachineDown
from gameday.rehearsal.nodes.programs.run import run_program
from gameday.rehearsal.nodes.virtual_nodes import VirtualNodes

NODES: web.AppKey[VirtualNodes] = web.AppKey("nodes", VirtualNodes)
_LONGEST_WORK_S = 3600.0  # of one program or measurement; more is a mistake in the request
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Record(_Body):
    record: str


class _Run(_Body):
    argv: list[str] = Field(min_length=1)
    timeout_s: float = Field(gt=0, le=_LONGEST_WORK_S)


class _File(_Body):
    path: str
    content: str


class _Load(_Body):
    gpu: int
    seconds: float = Field(ge=0, le=_LONGEST_WORK_S)


def application(nodes: VirtualNodes) -> web.Application:
    app = web.Application(middlewares=[_errors])
    app[NODES] = nodes
    host = "/hosts/{node}"
    app.router.add_post(f"{host}/kernel-log", _write_kernel_log)
    app.router.add_get(f"{host}/kernel-log", _read_kernel_log)
    app.router.add_post(f"{host}/run", _run)
    app.router.add_get(f"{host}/file", _read_file)
    app.router.add_put(f"{host}/file", _write_file)
    app.router.add_get(f"{host}/boot-id", _boot_id)
    app.router.add_get(f"{host}/gpus", _gpus)
    app.router.add_post(f"{host}/load", _load)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/pods", _pods)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", _container_logs)
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The host protocol's errors: {"error": what and why}."""
    try:
        return await handler(request)
    except MachineDown as error:
        return web.json_response({"error": str(error)}, status=503)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        return web.json_response({"error": f"{where}: {first['msg']}"}, status=400)
    except HostError as error:
        return web.json_response({"error": str(error)}, status=422)


def _machine(request: web.Request) -> Machine:
    """Raises MachineDown while the node is off, HTTPNotFound for no such node."""
    name = request.match_info["node"]
    machine = request.app[NODES].machines.get(name)
    if machine is None:
        raise web.HTTPNotFound(
            text=f'{{"error": "no virtual node of that name; they are {_some_names(request)}"}}',
            content_type="application/json",
        )
    if not machine.powered:
        raise MachineDown(f"{name} is down: it reboots")
    return machine


def _some_names(request: web.Request) -> str:
    names = list(request.app[NODES].machines)
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


async def _write_kernel_log(request: web.Request) -> web.Response:
    body = _Record.model_validate_json(await request.read())
    try:
        _machine(request).log.write(body.record)
    except OSError as error:
        raise HostError(f"/dev/kmsg: {error.strerror}") from None
    return web.Response(status=204)


async def _read_kernel_log(request: web.Request) -> web.Response:
    return web.json_response({"lines": _machine(request).log.lines()})


async def _run(request: web.Request) -> web.Response:
    body = _Run.model_validate_json(await request.read())
    return _model(await run_program(_machine(request), body.argv, body.timeout_s))


async def _read_file(request: web.Request) -> web.Response:
    return web.json_response({"content": read_file(_machine(request), request.query.get("path", ""))})


async def _write_file(request: web.Request) -> web.Response:
    body = _File.model_validate_json(await request.read())
    write_file(_machine(request), body.path, body.content)
    return web.Response(status=204)


async def _boot_id(request: web.Request) -> web.Response:
    return web.json_response({"boot_id": _machine(request).boot_id})


async def _gpus(request: web.Request) -> web.Response:
    return web.json_response({"gpus": [sample.model_dump() for sample in _machine(request).samples()]})


async def _load(request: web.Request) -> web.Response:
    body = _Load.model_validate_json(await request.read())
    return _model(await _machine(request).measure_load(body.gpu, body.seconds))


def _model(model: BaseModel) -> web.Response:
    return web.Response(text=model.model_dump_json(), content_type="application/json")


async def _metrics(request: web.Request) -> web.StreamResponse:
    """All nodes; ?node= and ?name= (each may be repeated) narrow it down for large rehearsals."""
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
    await response.prepare(request)
    nodes, names = request.query.getall("node", None), request.query.getall("name", None)
    for piece in request.app[NODES].exposition.render(nodes, names):
        await response.write(piece)
        await asyncio.sleep(0)  # heartbeats and hosts go on between two metrics of 8,000 GPUs
    await response.write_eof()
    return response


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _pods(request: web.Request) -> web.Response:
    kubelets = request.app[NODES].kubelets.values()
    items = [runner.pod for kubelet in kubelets for runner in kubelet.pods.values()]
    return web.json_response({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})


async def _container_logs(request: web.Request) -> web.StreamResponse:
    """A kubelet's own endpoint, as an API server calls it for `kubectl logs`."""
    where = request.match_info
    container = request.app[NODES].container(where["namespace"], where["pod"], where["container"])
    if container is None:
        raise web.HTTPNotFound(text=f"container {where['container']!r} in pod {where['pod']!r} not found\n")
    chosen = container.previous_log if _flag(request, "previous") else container.log
    if chosen is None:
        raise web.HTTPBadRequest(
            text=f"container {where['container']!r} in pod {where['pod']!r} is waiting to start: ContainerCreating\n"
        )
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    await response.prepare(request)
    await _send_log(request, response, chosen)
    await response.write_eof()
    return response


async def _send_log(request: web.Request, response: web.StreamResponse, log: ContainerLog) -> None:
    stamped = _flag(request, "timestamps")
    lines, position = log.read(0)
    await response.write(_text(_wanted(request, lines), stamped))
    while _flag(request, "follow"):
        closed = log.closed  # asked before reading: what comes in between is read
        lines, position = log.read(position)
        if lines:
            await response.write(_text(lines, stamped))
        if closed:
            return
        if not lines:
            await log.grown()


def _wanted(request: web.Request, lines: list[Line]) -> list[Line]:
    if since := _number(request, "sinceSeconds"):
        after = datetime.now(UTC) - timedelta(seconds=since)
        lines = [line for line in lines if line.at >= after]
    elif since_time := request.query.get("sinceTime"):
        try:
            after = datetime.fromisoformat(since_time)
        except ValueError:
            raise web.HTTPBadRequest(text="sinceTime is not an RFC 3339 time\n") from None
        lines = [line for line in lines if line.at >= after]
    tail = _number(request, "tailLines")
    return lines[len(lines) - min(tail, len(lines)) :] if tail is not None else lines


def _text(lines: list[Line], stamped: bool) -> bytes:
    def shown(line: Line) -> str:
        return f"{line.at.strftime('%Y-%m-%dT%H:%M:%S.%f')}000Z {line.text}\n" if stamped else f"{line.text}\n"

    return "".join(map(shown, lines)).encode()


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() in ("true", "1")


def _number(request: web.Request, name: str) -> int | None:
    text: Any = request.query.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise web.HTTPBadRequest(text=f"{name} must be a whole number\n")
    return int(text)

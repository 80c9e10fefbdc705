"""Plain HTTP of all virtual nodes, for agents and Prometheus: the virtual hosts, and dcgm-exporter's /metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from inspect import isawaitable
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from gameday.errors import HostBusyError, HostError, LinkError, MachineDownError
from gameday.host.base import WorkReport
from gameday.host.virtual import BUSY_STATUS, LINK_STATUS
from gameday.text import shown
from gameday_rehearsal.nodes import host_engines, node_exporter
from gameday_rehearsal.nodes.exposition import CONTENT_TYPE
from gameday_rehearsal.nodes.guests import Guests
from gameday_rehearsal.nodes.host_calls import CALLS, HostCalls
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.snapshot import snapshot
from gameday_rehearsal.nodes.virtual_nodes import VirtualNodes
from gameday_rehearsal.nodes.ways import Ways
from gameday_rehearsal.scrape_pace import WORKED_ON, WORKED_ON_TARGETS, scrape_every_s

NODES: web.AppKey[VirtualNodes] = web.AppKey("nodes", VirtualNodes)
WAYS: web.AppKey[Ways] = web.AppKey("ways", Ways)
_OUTPUT_BYTES = 256 * 1024
_LONGEST_NUMBER = 18  # digits; more than a sequence number or a file's size ever has
_ARGUMENTS: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(nodes: VirtualNodes, hosts: str = "/hosts") -> web.Application:
    """Return the nodes' server; the virtual hosts are below the path `hosts`."""
    app = web.Application(middlewares=[_errors])
    app[NODES] = nodes
    app[WAYS] = ways = Ways(nodes.machines)

    async def end_ways(_: web.Application) -> None:
        await ways.close()

    app.on_shutdown.append(end_ways)
    host = f"{hosts}/{{node}}"
    app.router.add_post(f"{host}/call/{{method}}", _call)
    app.router.add_get(f"{host}/kernel-log", _kernel_log)
    app.router.add_get(f"{host}/snapshot", _snapshot)
    app.router.add_get("/guests", _guests)
    app.router.add_get("/guests/{instance}/output", _guest_output)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get(WORKED_ON, _metrics_of_worked_on)
    app.router.add_get(WORKED_ON_TARGETS, _targets_of_worked_on)
    app.router.add_get("/dcgm", _dcgm)
    app.router.add_get("/node-exporter/metrics", _node_metrics)
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return errors in the host protocol's form: {"error": what and why}."""
    try:
        return await handler(request)
    except MachineDownError as error:
        return web.json_response({"error": str(error)}, status=503)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        return web.json_response({"error": f"{where}: {first['msg']}"}, status=400)
    except LinkError as error:
        return web.json_response({"error": str(error)}, status=LINK_STATUS)
    except HostBusyError as error:
        return web.json_response({"error": str(error)}, status=BUSY_STATUS)
    except HostError as error:
        return web.json_response({"error": str(error)}, status=422)


def _machine(request: web.Request) -> Machine:
    """Return the machine. Raises MachineDownError while it is off, and HTTPNotFound if there is no such node."""
    name = request.match_info["node"]
    machine = request.app[NODES].machines.get(name)
    if machine is None:
        raise web.HTTPNotFound(
            text=f'{{"error": "no virtual node of that name; they are {_some_names(request)}"}}',
            content_type="application/json",
        )
    if not machine.powered:
        raise MachineDownError(f"{name} is down: it reboots")
    return machine


def _some_names(request: web.Request) -> str:
    names = list(request.app[NODES].machines)
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


async def _call(request: web.Request) -> web.StreamResponse:
    """Call a method of the host with the arguments in the body, a JSON object, and answer what it returns as JSON."""
    name = request.match_info["method"]
    if name not in CALLS:
        raise web.HTTPNotFound(
            text=json.dumps({"error": f"a host has no call {shown(name)}; its calls are {', '.join(CALLS)}"}),
            content_type="application/json",
        )
    arguments = _ARGUMENTS.validate_json(await request.read())
    host = HostCalls(_machine(request), request.app[NODES].kubelets, request.app[WAYS])
    answer = CALLS[name](host, **arguments)
    if isinstance(answer, AsyncGenerator):
        return await _reports(request, answer)
    if isawaitable(answer):
        answer = await answer
    return web.Response(body=to_json(answer), content_type="application/json")


async def _reports(request: web.Request, reports: AsyncGenerator[WorkReport, None]) -> web.StreamResponse:
    """Send a report a line, until the client goes away: the work is the connection, as a process is on a real node."""
    response = web.StreamResponse()
    with suppress(ConnectionError):
        async with aclosing(reports):
            async for report in reports:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(report.model_dump_json(exclude_defaults=True).encode() + b"\n")
        await response.write_eof()
    return response


async def _kernel_log(request: web.Request) -> web.Response:
    """Serve the records as /dev/kmsg gives them, a line each, from the sequence number ?since= on: for guests."""
    since = request.query.get("since", "0")
    if not since.isdecimal() or len(since) > _LONGEST_NUMBER:
        raise HostError("?since= must be the sequence number of a record")
    records = _machine(request).log.since(int(since))
    return web.Response(body=b"".join(record.kmsg for record in records), content_type="text/plain")


async def _snapshot(request: web.Request) -> web.Response:
    """Serve the machine's snapshot, even while it is off, because a fault's traces would be there."""
    machine = request.app[NODES].machines.get(request.match_info["node"])
    if machine is None:
        raise web.HTTPNotFound
    return web.json_response(snapshot(machine))


async def _guests(request: web.Request) -> web.Response:
    return web.json_response(text=_guests_of(request).status().model_dump_json())


async def _guest_output(request: web.Request) -> web.Response:
    """Serve whole lines of a process's output from the byte ?from= on; X-Next is the position after them."""
    instance = _guests_of(request).instances.get(request.match_info["instance"])
    if instance is None:
        raise web.HTTPNotFound(text='{"error": "the guest has no such process"}', content_type="application/json")
    begin = request.query.get("from", "0")
    if not begin.isdecimal() or len(begin) > _LONGEST_NUMBER:
        raise HostError("?from= must be the number of a byte")
    try:
        lines, end = instance.output.read(int(begin), _OUTPUT_BYTES)
    except OSError as error:
        raise HostError(f"the guest's output cannot be read: {error.strerror}") from None
    return web.Response(body=lines, content_type="text/plain", charset="utf-8", headers={"X-Next": str(end)})


def _guests_of(request: web.Request) -> Guests:
    guests = request.app[NODES].guests
    if guests is None:
        raise web.HTTPNotFound(text='{"error": "no guest watches these nodes"}', content_type="application/json")
    return guests


async def _metrics(request: web.Request) -> web.StreamResponse:
    """Serve the metrics of all nodes; ?node= and ?name= (both repeatable) narrow them for large rehearsals."""
    return await _exposed(request, request.query.getall("node", None))


async def _metrics_of_worked_on(request: web.Request) -> web.StreamResponse:
    """Serve the metrics of the nodes that game-days work on; ?name= narrows them."""
    return await _exposed(request, sorted(request.app[NODES].worked_on))


async def _targets_of_worked_on(request: web.Request) -> web.Response:
    """Answer Prometheus' discovery by HTTP: the page of the nodes of game-days, at a pace for their number.

    The samples have the labels of the job for all nodes, because they are the same series.
    """
    every = f"{scrape_every_s(len(request.app[NODES].worked_on)):g}s"
    labels = {"job": "dcgm-exporter", "__scrape_interval__": every, "__scrape_timeout__": every}
    return web.json_response([{"targets": [request.host], "labels": labels}])


async def _exposed(request: web.Request, nodes: list[str] | None) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
    with suppress(ConnectionResetError):  # a Prometheus that gave up does not wait for the page
        await response.prepare(request)
        for piece in request.app[NODES].exposition.render(nodes, request.query.getall("name", None)):
            await response.write(piece)
            await asyncio.sleep(0)  # heartbeats and hosts continue between two metrics of 8,000 GPUs
        await response.write_eof()
    return response


async def _dcgm(request: web.Request) -> web.Response:
    """Serve the fields of each ?name= (repeatable) as the nodes' host engines give them to their clients."""
    nodes = request.app[NODES]
    names = [machine.name for machine in nodes.with_gpus]
    body = host_engines.render(nodes.cache, names, request.query.getall("name", []))
    return web.Response(text=body, headers={"Content-Type": CONTENT_TYPE})


async def _node_metrics(request: web.Request) -> web.Response:
    body = b"".join(node_exporter.render(request.app[NODES].machines.values()))
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

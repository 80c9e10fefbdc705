"""Plain HTTP of all virtual nodes, for agents and Prometheus: the virtual hosts, and dcgm-exporter's /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gameday.errors import HostError, LinkError, MachineDownError
from gameday.host.base import WorkOrder
from gameday.host.virtual import LINK_STATUS
from gameday.rehearsal.nodes import host_engines, node_exporter
from gameday.rehearsal.nodes.exposition import CONTENT_TYPE
from gameday.rehearsal.nodes.files import read_file, write_file
from gameday.rehearsal.nodes.guests import Guests
from gameday.rehearsal.nodes.machine import KUBELET, Machine
from gameday.rehearsal.nodes.network import address_of
from gameday.rehearsal.nodes.programs.run import run_program
from gameday.rehearsal.nodes.snapshot import snapshot
from gameday.rehearsal.nodes.virtual_nodes import VirtualNodes
from gameday.rehearsal.nodes.ways import Ways
from gameday.rehearsal.nodes.work import end_work, run_work
from gameday.rehearsal.scrape_pace import WORKED_ON, WORKED_ON_TARGETS, scrape_every_s

NODES: web.AppKey[VirtualNodes] = web.AppKey("nodes", VirtualNodes)
WAYS: web.AppKey[Ways] = web.AppKey("ways", Ways)
_LONGEST_WORK_S = 3600.0  # for one program or measurement; more is a mistake in the request
_OUTPUT_BYTES = 256 * 1024
_LONGEST_NUMBER = 18  # digits; more than a sequence number or a file's size ever has
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


class _Work(_Body):
    gpu: int
    order: WorkOrder


class _Way(_Body):
    interface: str
    address: str
    port: int = Field(ge=1, le=65_535)


class _Steer(_Body):
    gpu: int
    utilization: float = Field(ge=0, le=1)


def application(nodes: VirtualNodes, hosts: str = "/hosts") -> web.Application:
    """Return the nodes' server; the virtual hosts are below the path `hosts`."""
    app = web.Application(middlewares=[_errors])
    app[NODES] = nodes
    app[WAYS] = ways = Ways(nodes.machines)

    async def end_ways(_: web.Application) -> None:
        await ways.close()

    app.on_shutdown.append(end_ways)
    host = f"{hosts}/{{node}}"
    app.router.add_post(f"{host}/kernel-log", _write_kernel_log)
    app.router.add_get(f"{host}/kernel-log", _read_kernel_log)
    app.router.add_post(f"{host}/run", _run)
    app.router.add_get(f"{host}/file", _read_file)
    app.router.add_put(f"{host}/file", _write_file)
    app.router.add_get(f"{host}/boot-id", _boot_id)
    app.router.add_get(f"{host}/gpus", _gpus)
    app.router.add_get(f"{host}/pod-gpus", _pod_gpus)
    app.router.add_post(f"{host}/load", _load)
    app.router.add_post(f"{host}/work", _begin_work)
    app.router.add_put(f"{host}/work", _steer_work)
    app.router.add_get(f"{host}/work", _work_runs)
    app.router.add_delete(f"{host}/work", _end_work)
    app.router.add_get(f"{host}/gpu-users", _gpu_users)
    app.router.add_get(f"{host}/address", _address)
    app.router.add_post(f"{host}/ways", _open_way)
    app.router.add_get(f"{host}/dcgm-engines", _dcgm_engines)
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


async def _write_kernel_log(request: web.Request) -> web.Response:
    body = _Record.model_validate_json(await request.read())
    try:
        _machine(request).log.write(body.record)
    except OSError as error:
        raise HostError(f"/dev/kmsg: {error.strerror}") from None
    return web.Response(status=204)


async def _read_kernel_log(request: web.Request) -> web.Response:
    """Serve the lines as `dmesg` prints them; with ?form=kmsg the records as /dev/kmsg gives them, one per line.

    ?since= is the sequence number of the first record to serve in that form.
    """
    log = _machine(request).log
    if request.query.get("form") != "kmsg":
        return web.json_response({"lines": log.lines()})
    since = request.query.get("since", "0")
    if not since.isdecimal() or len(since) > _LONGEST_NUMBER:
        raise HostError("?since= must be the sequence number of a record")
    return web.Response(body=b"".join(record.kmsg for record in log.since(int(since))), content_type="text/plain")


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


async def _snapshot(request: web.Request) -> web.Response:
    """Serve the machine's snapshot, even while it is off, because a fault's traces would be there."""
    machine = request.app[NODES].machines.get(request.match_info["node"])
    if machine is None:
        raise web.HTTPNotFound
    return web.json_response(snapshot(machine))


async def _gpus(request: web.Request) -> web.Response:
    return web.json_response({"gpus": [sample.model_dump() for sample in _machine(request).samples()]})


async def _pod_gpus(request: web.Request) -> web.Response:
    """Serve the ids of a pod's GPUs, which the kubelet knows as long as it runs."""
    machine, name = _machine(request), f"{request.query.get('namespace')}/{request.query.get('pod')}"
    if not machine.is_active(KUBELET):
        raise HostError("the kubelet's pod-resources socket does not answer: Connection refused")
    kubelet = request.app[NODES].kubelets[machine.name]
    if not kubelet.has_pod_resources:
        raise HostError("the kubelet's pod-resources socket does not answer: No such file or directory")
    holders = {gpu.uuid: kubelet.devices.holder(gpu.index) for gpu in machine.gpus}
    ids = [uuid for uuid, holder in holders.items() if holder and f"{holder.namespace}/{holder.pod}" == name]
    if not ids:
        raise HostError(f"the kubelet lists no GPU of pod {name}")
    return web.json_response({"ids": ids})


async def _load(request: web.Request) -> web.Response:
    body = _Load.model_validate_json(await request.read())
    return _model(await _machine(request).measure_load(body.gpu, body.seconds))


async def _begin_work(request: web.Request) -> web.StreamResponse:
    """Serve reports, one per line, until the client leaves: the connection is the work, like a real node's process."""
    body = _Work.model_validate_json(await request.read())
    machine = _machine(request)
    machine.cell(body.gpu)
    response = web.StreamResponse()
    with suppress(ConnectionError):
        async with aclosing(run_work(machine, body.gpu, body.order)) as reports:
            async for report in reports:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(report.model_dump_json(exclude_defaults=True).encode() + b"\n")
        await response.write_eof()
    return response


async def _steer_work(request: web.Request) -> web.Response:
    body = _Steer.model_validate_json(await request.read())
    machine = _machine(request)
    work = machine.works.get(body.gpu)
    if work is None:
        raise HostError(f"GPU {body.gpu} of {machine.name} has no work whose load could be changed")
    work.steer(body.utilization)
    return web.Response(status=204)


async def _work_runs(request: web.Request) -> web.Response:
    return web.json_response({"runs": _gpu(request) in _machine(request).works})


async def _end_work(request: web.Request) -> web.Response:
    end_work(_machine(request), _gpu(request))
    return web.Response(status=204)


async def _gpu_users(request: web.Request) -> web.Response:
    machine = _machine(request)
    machine.cell(_gpu(request))
    return web.json_response({"users": [user.model_dump() for user in machine.gpu_users(_gpu(request))]})


async def _address(request: web.Request) -> web.Response:
    return web.json_response({"address": address_of(_machine(request).network, request.query.get("interface", ""))})


async def _open_way(request: web.Request) -> web.Response:
    body = _Way.model_validate_json(await request.read())
    way = await request.app[WAYS].open(_machine(request), body.interface, body.address, body.port)
    return web.json_response({"port": way})


async def _dcgm_engines(request: web.Request) -> web.Response:
    return _model(_machine(request).dcgm_engines())


async def _guests(request: web.Request) -> web.Response:
    return _model(_guests_of(request).status())


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


def _gpu(request: web.Request) -> int:
    """Return the GPU's index in the request. Raises HostError."""
    try:
        return int(request.query["gpu"])
    except (KeyError, ValueError):
        raise HostError("?gpu= must name a GPU by its index") from None


def _model(model: BaseModel) -> web.Response:
    return web.Response(text=model.model_dump_json(), content_type="application/json")


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

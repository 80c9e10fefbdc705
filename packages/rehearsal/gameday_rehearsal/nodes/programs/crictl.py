"""`crictl` on the model: pods and containers as JSON, as containerd with systemd's cgroup driver has them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from gameday.faults.component_pods import Component, component_of
from gameday_rehearsal.nodes.components import Sandbox, SandboxContainer
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.base import Options, Printed
from gameday_rehearsal.nodes.programs.dcgmi import dcgmi

_FAILED = 1


async def crictl(args: list[str], machine: Machine) -> Printed:
    if args[:1] == ["exec"]:
        return await _exec(args[1], args[2:], machine)
    parser = Options("crictl", _FAILED)
    parser.add_argument("verb", choices=("pods", "inspectp", "ps", "inspect"))
    parser.add_argument("ids", nargs="*")
    parser.add_argument("-o", "--output", choices=("json",), required=True)
    parser.add_argument("--state", choices=("ready", "running"))
    parser.add_argument("--pod")
    options = parser.parse_intermixed_args(args)
    match options.verb:
        case "pods":
            return _pods(machine)
        case "ps":
            return _containers(machine, options.pod)
        case "inspect":
            return _inspect_container(machine, options.ids[0] if options.ids else "")
    return _inspect(machine, options)


def _containers(machine: Machine, pod: str) -> Printed:
    found = [(sandbox, container) for sandbox, container in _all_containers(machine) if sandbox.id == pod]
    listed = [{"id": _id(sandbox, one), "metadata": {"name": one.name, "attempt": 0}} for sandbox, one in found]
    return Printed(json.dumps({"containers": listed}, indent=2) + "\n")


def _inspect_container(machine: Machine, wanted: str) -> Printed:
    for sandbox, one in _all_containers(machine):
        if _id(sandbox, one) == wanted:
            process = {"args": list(one.argv), "env": [f"{key}={value}" for key, value in one.environment]}
            return Printed(json.dumps({"info": {"runtimeSpec": {"process": process}}}, indent=2) + "\n")
    said = f'getting the status of the container "{wanted[:80]}": rpc error: code = NotFound'
    return Printed(stderr=f"FATA[0000] {said}\n", exit_status=_FAILED)


async def _exec(container: str, command: list[str], machine: Machine) -> Printed:
    """Run dcgmi, and nothing else, in the host engine's pod, which is the machine's own in this model."""
    for sandbox, one in _all_containers(machine):
        engine = component_of(sandbox.labels) is Component.HOST_ENGINE
        if _id(sandbox, one) == container and engine and command[:1] == ["dcgmi"]:
            return await dcgmi(command[1:], machine)
    return Printed(stderr=f"FATA[0000] execing command in container {container[:80]!r} failed\n", exit_status=_FAILED)


def _all_containers(machine: Machine) -> Iterator[tuple[Sandbox, SandboxContainer]]:
    for sandbox in machine.components.sandboxes():
        yield from ((sandbox, container) for container in sandbox.containers)


def _id(sandbox: Sandbox, container: SandboxContainer) -> str:
    return f"{container.name}-{sandbox.id}"


def _pods(machine: Machine) -> Printed:
    return Printed(json.dumps({"items": [_pod(one) for one in machine.components.sandboxes()]}, indent=2) + "\n")


def _inspect(machine: Machine, options: argparse.Namespace) -> Printed:
    wanted = options.ids[0] if options.ids else ""
    found = [one for one in machine.components.sandboxes() if wanted and one.id.startswith(wanted)]
    if len(found) != 1:
        said = f'getting the status of the pod sandbox "{wanted[:80]}": rpc error: code = NotFound'
        return Printed(stderr=f"FATA[0000] {said}\n", exit_status=_FAILED)
    path = f"{found[0].slice}:cri-containerd:{found[0].id}"
    info = {"runtimeSpec": {"linux": {"cgroupsPath": path}}}
    return Printed(json.dumps({"status": _pod(found[0]), "info": info}, indent=2) + "\n")


def _pod(sandbox: Sandbox) -> dict[str, object]:
    identity = {
        "io.kubernetes.pod.name": sandbox.name,
        "io.kubernetes.pod.namespace": sandbox.namespace,
        "io.kubernetes.pod.uid": sandbox.uid,
    }
    return {
        "id": sandbox.id,
        "metadata": {"name": sandbox.name, "namespace": sandbox.namespace, "uid": sandbox.uid, "attempt": 0},
        "state": "SANDBOX_READY",
        "labels": {**sandbox.labels, **identity},
    }

"""`crictl pods` and `crictl inspectp` on the model, as JSON: what containerd with systemd's cgroup driver tells."""

from __future__ import annotations

import argparse
import json

from gameday.rehearsal.nodes.components import Sandbox
from gameday.rehearsal.nodes.machine import Machine
from gameday.rehearsal.nodes.programs.base import Options, Printed

_FAILED = 1


async def crictl(args: list[str], machine: Machine) -> Printed:
    parser = Options("crictl", _FAILED)
    parser.add_argument("verb", choices=("pods", "inspectp"))
    parser.add_argument("ids", nargs="*")
    parser.add_argument("-o", "--output", choices=("json",), required=True)
    parser.add_argument("--state", choices=("ready",))
    options = parser.parse_args(args)
    return _pods(machine) if options.verb == "pods" else _inspect(machine, options)


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

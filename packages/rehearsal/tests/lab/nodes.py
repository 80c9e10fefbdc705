"""Virtual GPU nodes on a real control plane, with the few calls that their tests make."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gameday.host.virtual import VirtualHost
from tests.rehearsal.lab.plane import Part, Plane
from tests.rehearsal.nodes.conftest import simulated

NODES, GPUS = 6, 4
Json = dict[str, Any]


def eventually(condition: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
    """The first truthy value of `condition`, asked until the time is over."""
    ends = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > ends:
            raise AssertionError(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.2)
    return value


class Fleet(Part):
    """`python -m gameday_rehearsal.nodes` as the lab's nodes user: gpu-node-1 and on."""

    def __init__(self, plane: Plane, folder: Path, *arguments: str) -> None:
        self.plane = plane
        self.log = folder / "nodes.log"
        self.pods = folder / "pods"
        """A folder for each pod, by its UID."""
        super().__init__(
            "gameday_rehearsal.nodes",
            *("--kubeconfig", str(plane.folder / "nodes.kubeconfig"), "--state-dir", str(folder)),
            *("--gpus", str(GPUS), "--boot-seconds", "0.5", *arguments),
            log=self.log,
        )

    def host(self, node: str) -> VirtualHost:
        return VirtualHost(f"{self.ready['hosts']}/{node}")

    def systemctl(self, node: str, *arguments: str) -> None:
        self.host(node).run(["systemctl", *arguments], 5)

    def get(self, *what: str) -> Json:
        found: Json = json.loads(self.plane.kubectl("get", *what, "-o", "json"))
        return found

    def apply(self, *objects: Json) -> None:
        self.plane.kubectl(
            "create", "-f", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": objects})
        )

    def phase(self, pod: str, phase: str) -> Json:
        """The pod once it is in that phase."""
        self.plane.kubectl("wait", f"pod/{pod}", f"--for=jsonpath={{.status.phase}}={phase}", "--timeout=55s")
        return self.get("pod", pod)

    def remove(self, *pods: str) -> None:
        self.plane.kubectl("delete", "pod", *pods, "--wait=true", "--timeout=55s")

    def refused(self, *arguments: str) -> str:
        """What kubectl says when it fails."""
        done = subprocess.run(
            ["kubectl", *arguments],
            env={**os.environ, "KUBECONFIG": str(self.plane.admin)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode, done.stdout
        return done.stderr

    def conditions(self, *what: str) -> dict[str, Json]:
        return {each["type"]: each for each in self.get(*what)["status"].get("conditions", [])}

    def ready_status(self, node: str) -> str:
        return str(self.conditions("node", node).get("Ready", {}).get("status"))

    def taints(self, node: str) -> set[tuple[str, str]]:
        return {(taint["key"], taint["effect"]) for taint in self.get("node", node)["spec"].get("taints", [])}


@contextmanager
def fleet_on(plane: Plane, folder: Path) -> Iterator[Fleet]:
    """Nodes that show their logs; at the end, none of their requests may have been refused and nothing have failed."""
    fleet = Fleet(plane, folder, "--nodes", str(NODES), "--tls-folder", str(plane.folder))
    try:
        yield fleet
    finally:
        ended = fleet.end()
    said = fleet.log.read_text()
    assert ended == 0 and "Forbidden" not in said and "Traceback" not in said, said


def work(command: str = "sleep 1000", *, exit_code: int = 0, gpus: int = 0) -> Json:
    """A pod template of a foreign image that ends as its command and annotation say."""
    pod = simulated("", "", gpus=gpus, exit_code=str(exit_code))
    container = {**pod["spec"]["containers"][0], "command": ["sh", "-c", command]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
    return {"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": spec}

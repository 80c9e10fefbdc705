"""Three real API servers behind HAProxy, without nodes. One test and one lab: three servers take long to start."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import httpx
import pytest

from gameday.cluster.lab_control import SOCKET, Verb, ask_lab
from gameday_rehearsal.lab.balancer import BACKEND
from gameday_rehearsal.lab.settings import LabSettings
from gameday_rehearsal.lab.status import ask
from tests.rehearsal.lab.plane import Plane, running
from tests.rehearsal.processes import until

_SETTINGS = LabSettings.model_validate(
    {
        "api_servers": 3,
        "flags": {"kube-apiserver": {"goaway-chance": "0.02"}},
        "environment": {"kube-apiserver": {"GOGC": "50"}},
        "scheduler_qps": 2000,
        "hold": ["kube-apiserver-3"],
    }
)


@pytest.mark.lab
def test_clients_of_the_balancer_outlive_a_killed_server_and_a_restarted_one(tmp_path: Path) -> None:
    with running(tmp_path, _SETTINGS) as plane:
        until(lambda: _up(plane) == {"kube-apiserver", "kube-apiserver-2"}, 60, "the balancer has found two")
        assert not (tmp_path / "kube-apiserver-3.log").exists(), "it is held"
        ask_lab(tmp_path / SOCKET, Verb.START, "kube-apiserver-3")
        until(lambda: len(_up(plane)) == 3, 60, "the balancer has found the third")

        ask_lab(tmp_path / SOCKET, Verb.KILL, "kube-apiserver")
        until(lambda: plane.kubectl("get", "--raw", "/readyz", check=False) == "ok", 60, "another server answers")
        # A server that has just started is ready before it has heard of every role.
        created = partial(plane.kubectl, "create", "configmap", "while-one-was-gone", check=False)
        until(created, 60, "another server lets the administrator write")
        ask_lab(tmp_path / SOCKET, Verb.RESTART, "kube-apiserver-2")
        until(lambda: plane.kubectl("get", "--raw", "/readyz", check=False) == "ok", 60, "another server answers")
        until(lambda: all(one.ready for one in ask(tmp_path)), 120, "all are ready")
        until(lambda: len(_up(plane)) == 3, 60, "the balancer has found them all")

        # Each server is asked at its own address; the certificate is good for it, too.
        for name in _SETTINGS.server_names:
            own = plane.components()[name]["ready_url"].removesuffix("/readyz")
            names = partial(plane.kubectl, "--server", own, "get", "configmaps", "-o", "name", check=False)
            until(lambda names=names: "while-one-was-gone" in names(), 60, f"{name} shows what another server wrote")
        restarts = {name: plane.components()[name]["restarts"] for name in _SETTINGS.server_names}
        assert restarts == {"kube-apiserver": 1, "kube-apiserver-2": 1, "kube-apiserver-3": 0}
        environment = Path(f"/proc/{plane.components()['kube-apiserver-3']['pid']}/environ").read_bytes()
        assert b"GOGC=50" in environment.split(b"\0")
        for log in ("audit.log", "audit-2.log", "audit-3.log"):
            events = map(json.loads, (tmp_path / log).read_text().splitlines())
            paths = {event["requestURI"].partition("?")[0] for event in events}
            assert "/api/v1/namespaces/default/configmaps" in paths, log


def _up(plane: Plane) -> set[str]:
    """Return the API servers that the balancer uses, by its own metrics."""
    page = httpx.get(plane.components()["haproxy"]["metrics_url"], trust_env=False).text
    up = re.escape(f'haproxy_server_status{{proxy="{BACKEND}",server="') + r'(\S+)",state="UP"} 1$'
    return set(re.findall(up, page, re.MULTILINE))

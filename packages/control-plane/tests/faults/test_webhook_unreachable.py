"""A webhook without an endpoint, against an API server in words: put in, measured, taken out, and never too wide."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, ValidationError

from gameday.api_clients.exchange import Failed
from gameday.errors import HostError
from gameday.host.base import ApiServer
from gameday_control_plane.api_clients import webhook
from gameday_control_plane.api_clients.lists import LOAD_LABEL
from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.api_clients.webhook import LOAD, NAME, LeaseWatcher, MatchedWriter, WebhookObjects, manifest
from gameday_control_plane.faults import webhook_unreachable
from gameday_control_plane.faults.webhook_unreachable import WebhookUnreachableFault, WebhookUnreachableParameters
from gameday_control_plane.values.api_loads import WebhookOutage
from tests.host.fake import FakeHost

SHORT = {"runs_for": "5s", "hold": "2m"}
CALL = 'Internal error occurred: failed calling webhook \\"unreachable.gameday.dev\\": connection refused'


class FakeServer:
    """As much of an API server as the fault asks for; it refuses what its webhook matches."""

    def __init__(self) -> None:
        self.configurations: dict[str, Any] = {}
        self.config_maps: dict[str, Any] = {}
        self.lease_versions = {"n1": 1, "n2": 1}
        self.asked: list[str] = []
        self.keeps: Callable[[dict[str, Any]], Any] = lambda webhook: webhook

    def ask(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, accept: str = "", body: bytes = b""
    ) -> bytes:
        self.asked.append(method)
        kind, _, name = path.partition("validatingwebhookconfigurations")
        sent = orjson.loads(body) if body else {}
        if kind != path and method == "POST":
            sent["webhooks"] = [self.keeps(one) for one in sent["webhooks"]]
            self.configurations["/" + sent["metadata"]["name"]] = sent
        elif kind != path:
            if name not in self.configurations:
                raise Failed(404, "HTTP 404")
            return orjson.dumps(
                self.configurations.pop(name) if method == "DELETE" else self.configurations[name],
            )
        elif path.endswith("/leases"):
            items = [{"metadata": {"name": name, "resourceVersion": str(v)}} for name, v in self.lease_versions.items()]
            return orjson.dumps({"items": items})
        elif method == "DELETE":
            assert query == {"labelSelector": f"{LOAD_LABEL}={LOAD}"}
            self.config_maps.clear()
        else:
            for one in self.configurations.values():
                if one["webhooks"][0]["failurePolicy"] == "Fail":
                    raise Failed(500, f'HTTP 500: {{"message":"{CALL}"}}')
            self.config_maps[sent["metadata"]["name"]] = sent
        return b"{}"

    def end(self) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake = FakeServer()
    for module in (webhook, webhook_unreachable):
        monkeypatch.setattr(module, "Exchange", lambda *_: fake)
        monkeypatch.setattr(module, "tls_context", lambda _: None)
    monkeypatch.setattr(webhook_unreachable, "WRITE_EVERY_S", 0.001)
    return fake


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost()
    host.api = ApiServer(url="https://127.0.0.1:1", ca_file=tmp_path / "ca", token_file=tmp_path / "token")
    return host


def parameters(**given: Any) -> WebhookUnreachableParameters:
    return WebhookUnreachableParameters.model_validate(SHORT | given)


def play(host: FakeHost, wanted: WebhookUnreachableParameters, server: FakeServer) -> WebhookOutage:
    """Put it in, end it after some writes, take it out, and return what it measured."""
    fault, told, ended = WebhookUnreachableFault(), list[BaseModel](), threading.Event()
    fault.prior_state(wanted, 0, host)
    try:
        fault.inject(wanted, 0, host)
        assert not fault.verify_undone(wanted, 0, host, {})
        threading.Timer(0.1, ended.set).start()
        fault.hold_and_tell(wanted, 0, host, ended, told.append)
    finally:
        fault.undo(wanted, 0, host, {})
    assert fault.verify_undone(wanted, 0, host, {}) and (server.configurations, server.config_maps) == ({}, {})
    (note,) = told
    assert isinstance(note, MeasuredNote) and isinstance(note.measured, WebhookOutage)
    return note.measured


def test_matched_writes_are_refused_until_it_is_out(host: FakeHost, server: FakeServer) -> None:
    measured = play(host, parameters(), server)
    assert len(measured.before) == 6
    assert {write.outcome for write in measured.writes} == {"refused"}
    assert measured.out_after_s is not None and measured.leases is not None and measured.leases.nodes == 2


def test_one_that_fails_open_admits_them(host: FakeHost, server: FakeServer) -> None:
    measured = play(host, parameters(failure_policy="ignore"), server)
    assert {write.outcome for write in measured.writes} == {"admitted"}
    assert measured.out_after_s is None


def test_another_process_undoes_what_a_killed_one_left(host: FakeHost, server: FakeServer) -> None:
    WebhookUnreachableFault().inject(parameters(), 0, host)
    with pytest.raises(HostError, match="gameday reap"):
        WebhookUnreachableFault().prior_state(parameters(), 0, host)
    another = WebhookUnreachableFault()
    assert not another.verify_undone(parameters(), 0, host, {})
    for _ in range(2):
        another.undo(parameters(), 0, host, {})
    assert another.verify_undone(parameters(), 0, host, {}) and server.config_maps == {}


def test_a_configuration_of_somebody_else_is_left_alone(host: FakeHost, server: FakeServer) -> None:
    server.configurations[f"/{NAME}"] = {"metadata": {"name": NAME}, "webhooks": []}
    with pytest.raises(HostError, match="exists"):
        WebhookUnreachableFault().prior_state(parameters(), 0, host)
    WebhookUnreachableFault().undo(parameters(), 0, host, {})
    assert list(server.configurations) == [f"/{NAME}"]


def test_a_server_that_drops_what_narrows_it_gets_it_taken_out(server: FakeServer) -> None:
    server.keeps = lambda one: {key: value for key, value in one.items() if key != "matchConditions"}
    with pytest.raises(HostError, match=r"matchConditions: Kubernetes 1\.30"):
        WebhookObjects(server).put_in(parameters(resources=["*"]).scope)
    assert server.configurations == {}


def test_the_configuration_never_matches_what_has_no_namespace_nor_a_spared_lease() -> None:
    (one,) = manifest(parameters(resources=["*", "pods", "jobs.batch"], timeout="3s").scope)["webhooks"]
    assert [(rule["apiGroups"], rule["resources"]) for rule in one["rules"]] == [
        (["*"], ["*"]),
        ([""], ["pods"]),
        (["batch"], ["jobs"]),
    ]
    assert {rule["scope"] for rule in one["rules"]} == {"Namespaced"}
    assert one["namespaceSelector"]["matchExpressions"][0]["values"] == ["gameday-load"]
    assert "leases" in one["matchConditions"][0]["expression"] and one["timeoutSeconds"] == 3
    (wide,) = manifest(parameters(spares_system=False).scope)["webhooks"]
    assert "matchConditions" not in wide


def test_a_refusal_of_somebody_else_is_a_failure(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> bytes:
        raise Failed(403, "HTTP 403: forbidden")

    monkeypatch.setattr(server, "ask", forbidden)
    assert MatchedWriter(server).write().outcome == "failed"
    watcher = LeaseWatcher(server)
    watcher.look(0)
    assert watcher.found is None


def test_the_longest_time_without_a_renewal_is_that_of_the_worst_node(server: FakeServer) -> None:
    watcher = LeaseWatcher(server)
    for now in (0, 5, 10, 15, 20):
        server.lease_versions["n1"] = now // 10
        watcher.look(now)
    found = watcher.found
    assert found is not None and (found.longest_s, found.node) == (20, "n2")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"namespaces": ["default"]}, "add gameday-load"),
        ({"resources": ["secrets"]}, "add configmaps"),
        ({"operations": ["update"]}, "add create"),
        ({"namespaces": ["gameday-load", "kube-node-lease"]}, "spares_system keeps kube-node-lease out"),
        ({"resources": ["configmaps", "leases.coordination.k8s.io"]}, "spares_system keeps Leases out"),
        ({"namespaces": ["gameday-load", "*"]}, "pattern"),
        ({"hold": "30s"}, "take 65 s"),
        ({"timeout": "1500ms"}, "whole seconds"),
    ],
)
def test_a_scope_that_is_too_wide_or_measures_nothing_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        parameters(**given)


def test_only_a_lab_takes_the_negative_control_and_none_the_own_namespace() -> None:
    wide = parameters(spares_system=False, namespaces=["gameday-load", "kube-node-lease"])
    assert "no lab" in wide.why_not_here("gameday", is_lab=False)
    assert wide.why_not_here("gameday", is_lab=True) == ""
    assert "ledger" in parameters(namespaces=["gameday-load", "chaos"]).why_not_here("chaos", is_lab=True)
    assert parameters().why_not_here("gameday", is_lab=False) == ""

"""The manifests of deploy/rbac under a real API server: what each account is granted, what it uses, what it is refused.

What is used comes from the API server's own audit log of a whole game-day.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gameday.guard.rights import rights_for_every_plan
from gameday.values.results import Step
from gameday_rehearsal.seed import seeding
from kubesim.kubeconfig import Kubeconfig
from tests.game_days.conftest import PATIENCE_S, SHORT_HOLD, SILENT, Arena, changed, patient, send, step_started
from tests.rehearsal.lab.conftest import await_scheduler, quick_where_training_runs

pytestmark = [pytest.mark.lab, pytest.mark.gameday, pytest.mark.timeout(1800)]
NAMESPACES = ("gameday", "default", "training", "kube-system")
RUNNER, HEALTH, REAPER, AGENT = "gameday-runner", "gameday-node-health", "gameday-reaper", "gameday-agent"
ANYBODY = "default"
"""A service account without a right of its own: every account has the rights that it has."""
CLUSTER = ""
"""The place of objects without a namespace, and of a request over all namespaces."""


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource (`pods/eviction`), as RBAC knows it, in one namespace or CLUSTER."""

    verb: str
    resource: str
    place: str


RARELY_USED: Mapping[str, Mapping[tuple[str, str, str], str]] = {
    RUNNER: {
        (
            "list",
            "configmaps",
            "gameday",
        ): "`gameday reap`, and a run that takes over from a dead one, looks for ledgers",
        ("list", "leases", "gameday"): "the same, for leases",
        ("get", "leases", "gameday"): "who holds the lease that could not be taken",
        ("patch", "leases", "gameday"): "renewal, every few seconds of a longer run",
        ("list", "pods", CLUSTER): "where the watch cannot bring its state along, or has to be read anew",
        ("list", "events", "default"): "the same",
        ("list", "resourceslices", CLUSTER): "a plan with expect.device_taints looks at the devices of its node",
        ("watch", "resourceslices", CLUSTER): "the same",
        ("list", "resourceclaims", CLUSTER): "the same: which pods hold devices of the node",
        ("get", "pods/log", "training"): "a plan with expect.job reads the steps of the job on its node",
    },
    HEALTH: {
        ("list", "nodes", ""): "when it starts",
        ("watch", "nodes", ""): "the same: the watch was there before",
        ("get", "nodes", ""): "somebody wrote to the node since the watch last showed it",
        ("get", "configmaps", "gameday"): "the same: how far its predecessor had read",
        ("get", "leases", "gameday"): "with --leader-election, which a rehearsal's only controller does without",
        ("create", "leases", "gameday"): "the same",
        ("patch", "leases", "gameday"): "the same",
        ("delete", "leases", "gameday"): "the same",
        ("create", "events", "default"): "the first of a fault",
        ("patch", "events", "default"): "a fault that repeats counts up in the event that is there",
        ("list", "events", "default"): "a policy with a rule about Events; the shipped ones have none",
        ("watch", "events", "default"): "the same",
    },
    REAPER: {
        ("delete", "jobs", "gameday"): "where the run was killed while it showed that resubmitted work runs elsewhere",
        ("get", "leases", "gameday"): "who holds the lease that changed while it was given back",
        ("create", "leases", "gameday"): "the lock for its own work, where the dead run left none to take over",
        ("patch", "leases", "gameday"): "taking over the dead run's, and renewal while it works for long",
        ("create", "pods", "gameday"): "the second agent, where the injector was killed before it could undo",
        ("get", "pods/log", "gameday"): "what that injector had said of the values before it",
    },
}
"""Rights that a game-day without trouble does not use, each with the reason for which it is granted."""

# What nobody of ours may do, whatever else they may: (method, path, body).
FORBIDDEN = [
    ("GET", "/api/v1/namespaces/default/secrets", None),
    ("GET", "/api/v1/namespaces/gameday/secrets", None),
    ("DELETE", "/api/v1/nodes/no-such-node", None),
    ("PATCH", "/api/v1/nodes/no-such-node/status", {}),
    ("POST", "/api/v1/namespaces/default/pods", {}),
    ("DELETE", "/api/v1/namespaces/training/pods/no-such-pod", None),
    ("DELETE", "/api/v1/namespaces/training/pods", None),
    ("POST", "/api/v1/namespaces/gameday/pods/no-such-pod/exec?command=id", {}),
    ("POST", "/api/v1/namespaces/gameday/serviceaccounts/gameday-runner/token", {}),
    ("PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/gameday-runner", {}),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {}),
    ("DELETE", "/api/v1/namespaces/training", None),
    ("DELETE", "/apis/batch/v1/namespaces/training/jobs/pretrain", None),
    ("GET", "/metrics", None),
]


@pytest.fixture(scope="module")
def as_account(arena: Arena) -> Iterator[dict[str, httpx.Client]]:
    """A client for each of our service accounts, with a token of its own."""
    clients = {}
    with seeding(arena.cluster.admin_kubeconfig) as seeder:
        for name in (RUNNER, HEALTH, REAPER, AGENT, ANYBODY):
            path = seeder.service_account_kubeconfig(name, arena.folder / f"{name}.kubeconfig")
            found = Kubeconfig.load(path)
            headers = {"Authorization": f"Bearer {found.token}"}
            clients[name] = httpx.Client(base_url=found.server, headers=headers, verify=found.tls or True)
    yield clients
    for one in clients.values():
        one.close()


@contextmanager
def audit_events(arena: Arena) -> Iterator[list[dict[str, Any]]]:
    """A list that holds, after the block, what the API server wrote of it."""
    log = arena.cluster.folder / "control-plane" / "audit.log"
    begin = log.stat().st_size
    events: list[dict[str, Any]] = []
    yield events
    with log.open("rb") as file:
        file.seek(begin)
        events += [json.loads(line) for line in file.read().splitlines()]


@pytest.fixture(scope="module")
def audited(arena: Arena) -> list[dict[str, Any]]:
    """The audit events of one whole game-day."""
    await_scheduler(arena)
    arena.settle()
    with audit_events(arena) as events:
        played = arena.play(patient(quick_where_training_runs(arena)))
        assert played.exit_code == 0, played.output
    return events


@pytest.fixture(scope="module")
def reaped(arena: Arena) -> list[dict[str, Any]]:
    """The audit events of a reaper, under its own account, that finishes what a killed run left."""
    arena.settle()
    plan = changed(patient(SILENT), "fault.hold", SHORT_HOLD)
    killed = arena.play_and_when(plan, step_started(Step.AWAIT_ALERT), send(signal.SIGKILL))
    assert killed.exit_code == -signal.SIGKILL
    with seeding(arena.cluster.admin_kubeconfig) as seeder:
        kubeconfig = seeder.service_account_kubeconfig(REAPER, arena.folder / "reaper.kubeconfig")
    environment = {**os.environ, "GAMEDAY_KUBECONFIG": str(kubeconfig)}
    argv = [sys.executable, "-m", "gameday.cli", "reap", "--profile", str(arena.cluster.profile)]
    with audit_events(arena) as events:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert arena.leftovers() == []
    return events


def by(account: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["user"]["username"] == f"system:serviceaccount:gameday:{account}"]


def used(account: str, events: list[dict[str, Any]]) -> set[Right]:
    found = set()
    for event in by(account, events):
        if about := event.get("objectRef"):
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            found.add(Right(event["verb"], resource, about.get("namespace", CLUSTER)))
    return found


def granted(clients: Mapping[str, httpx.Client], account: str) -> set[Right]:
    """What the account may and not everybody, as the API server's own authorizer lists it."""
    return rules(clients[account]) - rules(clients[ANYBODY])


def rules(http: httpx.Client) -> set[Right]:
    found = set()
    for namespace in NAMESPACES:
        body = {"spec": {"namespace": namespace}}
        answer = http.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", json=body)
        assert answer.status_code == 201, answer.text
        status = answer.json()["status"]
        assert not status["incomplete"]
        for rule in status["resourceRules"]:
            found |= {Right(verb, resource, namespace) for verb in rule["verbs"] for resource in rule["resources"]}
    everywhere = {right for right in found if all(Right(right.verb, right.resource, n) in found for n in NAMESPACES)}
    return (found - everywhere) | {Right(right.verb, right.resource, CLUSTER) for right in everywhere}


def without_a_reason(clients: Mapping[str, httpx.Client], account: str, events: list[dict[str, Any]]) -> set[Right]:
    """Rights that the events do not use and RARELY_USED does not explain."""
    uses = used(account, events)
    unused = {grant for grant in granted(clients, account) if not any(covers(grant, use) for use in uses)}
    return unused - {Right(*right) for right in RARELY_USED[account]}


def covers(grant: Right, use: Right) -> bool:
    return (grant.verb, grant.resource) == (use.verb, use.resource) and grant.place in (use.place, CLUSTER)


def test_a_reaper_is_refused_nothing(reaped: list[dict[str, Any]]) -> None:
    seen = by(REAPER, reaped)
    assert seen
    assert [(e["verb"], e["requestURI"]) for e in seen if e["responseStatus"]["code"] in (401, 403)] == []


def test_every_right_of_the_reaper_is_used_or_has_a_reason(
    as_account: dict[str, httpx.Client], reaped: list[dict[str, Any]]
) -> None:
    assert without_a_reason(as_account, REAPER, reaped) == set()


@pytest.mark.gate
@pytest.mark.parametrize("account", [RUNNER, HEALTH])
def test_a_game_day_is_refused_nothing(audited: list[dict[str, Any]], account: str) -> None:
    seen = by(account, audited)
    assert seen, "the game-day and the controller run as their service accounts"
    assert [(e["verb"], e["requestURI"]) for e in seen if e["responseStatus"]["code"] in (401, 403)] == []


@pytest.mark.gate
@pytest.mark.parametrize("account", [RUNNER, HEALTH])
def test_every_right_is_used_or_has_a_reason(
    as_account: dict[str, httpx.Client], audited: list[dict[str, Any]], account: str
) -> None:
    assert without_a_reason(as_account, account, audited) == set()


@pytest.mark.gate
def test_the_doctor_asks_for_every_right_that_a_game_day_uses(audited: list[dict[str, Any]]) -> None:
    asked = {(right.verb, right.resource) for right in rights_for_every_plan("gameday")}
    assert {(use.verb, use.resource) for use in used(RUNNER, audited)} <= asked


@pytest.mark.gate
@pytest.mark.parametrize("account", list(RARELY_USED))
def test_no_reason_is_given_for_a_right_that_is_not_granted(as_account: dict[str, httpx.Client], account: str) -> None:
    assert {Right(*right) for right in RARELY_USED[account]} <= granted(as_account, account)


@pytest.mark.gate
def test_nobody_else_speaks_in_the_games_name(audited: list[dict[str, Any]]) -> None:
    """What our processes ask for goes through their service accounts, and not through an administrator."""
    agents = {event.get("userAgent", "") for event in audited if event["user"]["username"] == "gameday-admin"}
    assert not any(agent.startswith("gameday") for agent in agents), agents


@pytest.mark.gate
def test_the_agent_may_do_nothing(as_account: dict[str, httpx.Client]) -> None:
    assert granted(as_account, AGENT) == set()


@pytest.mark.gate
@pytest.mark.parametrize("account", [RUNNER, HEALTH, REAPER, AGENT])
@pytest.mark.parametrize(("method", "path", "body"), FORBIDDEN, ids=lambda value: str(value)[:60])
def test_forbidden_requests_are_refused(
    as_account: dict[str, httpx.Client], account: str, method: str, path: str, body: object
) -> None:
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
    answer = as_account[account].request(method, path, json=body, headers=headers)
    assert answer.status_code == 403, answer.text
    assert answer.json()["reason"] == "Forbidden"

"""Game-days that are refused before anything is changed, with the reason in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.cluster.profile import ClusterGuardrails
from gameday.history.events import FaultInjected, GuardChecked, IntentRecorded
from gameday.ledger.lease import CLUSTER_LEASE
from gameday.values.results import Cleanliness
from kubesim.clock import rfc3339
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import JOB, QUICK, Document, changed, loaded, without_repair
from tests.support.scripted.script import AgentScript, Away, JobScript, Script

Prepare = Callable[[ScriptedCluster], object]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gameday/leases"


def refused(
    plan: Document,
    reports: Path,
    prepare: Prepare = lambda cluster: None,
    change: Callable[[Script], Script] = lambda script: script,
    **settings: Any,
) -> Played:
    """Play a game-day that must be refused and leave nothing of its own."""
    played = play(loaded(plan), change, reports=reports, prepare=prepare, **settings)
    assert (played.outcome, played.result.exit_code) == (RunOutcome.REFUSED, 5), played.result.why
    assert played.result.cleanliness is Cleanliness.CLEAN
    assert played.history.of(FaultInjected) == []
    return played


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("targets.names", ["no-such-node"], "no node of this name"),
        ("targets", {"selector": {"example.com/none": "such"}}, "no node carries"),
    ],
)
def test_targets_that_are_not_there(key: str, value: object, said: str, reports: Path) -> None:
    played = refused(changed(QUICK, key, value), reports)
    assert said in played.result.why
    assert played.history.of(IntentRecorded) == []


def test_a_taint_that_is_there_already_is_kept(reports: Path) -> None:
    taint = {"key": "trainy.konduktor.ai/faulty", "value": "mine", "effect": "NoSchedule"}

    def prepare(cluster: ScriptedCluster) -> None:
        cluster.server.administrator("PATCH", "/api/v1/nodes/gpu-node-1", {"spec": {"taints": [taint]}})

    played = refused(QUICK, reports, prepare)
    assert "already carries" in played.result.why
    assert played.cluster.taints("gpu-node-1") == [("trainy.konduktor.ai/faulty", "mine", "NoSchedule")]


def test_a_second_game_day_names_the_first(reports: Path) -> None:
    def prepare(cluster: ScriptedCluster) -> None:
        now = rfc3339(cluster.now()).replace("Z", ".000000Z")
        spec = {"holderIdentity": "another-run", "leaseDurationSeconds": 60, "acquireTime": now, "renewTime": now}
        cluster.server.administrator("POST", LEASES, {"metadata": {"name": CLUSTER_LEASE}, "spec": spec})

    played = refused(QUICK, reports, prepare)
    assert "another-run" in played.result.why
    kept = played.cluster.server.administrator("GET", f"{LEASES}/{CLUSTER_LEASE}")
    assert kept["spec"]["holderIdentity"] == "another-run"
    assert played.cluster.left() == [f"leases.coordination.k8s.io/{CLUSTER_LEASE}"]


def test_a_missing_priority_class(reports: Path) -> None:
    played = refused(QUICK, reports, canary_priority_class="no-such-class")
    assert "no-such-class" in played.result.why
    assert played.cluster.left() == []


def test_a_log_store_that_is_down(reports: Path) -> None:
    played = refused(QUICK, reports, change=lambda script: replace(script, away=(Away("loki", 0.0, 600.0),)))
    assert "loki.invalid" in played.result.why
    assert played.cluster.left() == []


# Beside the bound: from the marker's being written to the agent's end in the run's own watch, from which it counts.
@pytest.mark.parametrize(("arrives_s", "outcome"), [(9.999, RunOutcome.PASSED), (10.5, RunOutcome.REFUSED)])
def test_a_log_path_is_alive_up_to_its_bound(arrives_s: float, outcome: RunOutcome, reports: Path) -> None:
    arrives = (arrives_s,)
    played = play(loaded(QUICK), lambda script: replace(script, line_arrives=arrives), reports=reports)
    assert (played.outcome, played.cluster.left()) == (outcome, [])


def test_a_dangerous_fault_that_the_profile_does_not_allow(reports: Path) -> None:
    plan = changed(
        changed(QUICK, "fault", {"type": "gpu_memory", "hold": "5s"}), "guardrails.allow_dangerous", ["gpu_memory"]
    )
    played = refused(plan, reports, allow_dangerous=frozenset())
    assert "does not allow the dangerous fault gpu_memory" in played.result.why


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"protected_namespaces": ["training"]}, "guardrail protected pods"),
        ({"max_pool_percent": 10}, "guardrail share of the pool: 50 %"),
        ({"topology_label": "example.com/rack", "max_domain_percent": 20}, "of rack-000"),
        ({"freezes": [{"start": "2020-01-01", "end": "2199-01-01", "why": "for ever"}]}, "for ever"),
    ],
    ids=["protected pods", "pool", "rack", "freeze"],
)
def test_a_guardrail_that_trips_at_the_start(limits: dict[str, Any], said: str, reports: Path) -> None:
    def prepare(cluster: ScriptedCluster) -> None:
        for node in ("gpu-node-1", "gpu-node-2"):
            body = {"metadata": {"labels": {"example.com/rack": "rack-000"}}}
            cluster.server.administrator("PATCH", f"/api/v1/nodes/{node}", body)

    played = refused(QUICK, reports, prepare, guardrails=ClusterGuardrails.model_validate(limits))
    assert said in played.result.why
    assert False in {one.ok for one in played.history.of(GuardChecked)}
    assert played.history.of(IntentRecorded) == []
    assert played.cluster.left() == []


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ({"promql": {"query": "zero", "at_least": 1}, "stays_for": "5s"}, "does not hold before the fault"),
        ({"promql": {"query": "one", "at_least": 1}, "within": "5s"}, "would prove nothing"),
        ({"promql": {"query": "none", "at_least": 1}, "stays_for": "5s"}, "cannot be read before the fault"),
        ({"job": {"command": ["sleep", "60"], "ends_within": "1s"}, "returns_within": "5s"}, "does not hold before"),
    ],
    ids=["does-not-hold", "holds-already", "cannot-be-read", "job-overruns"],
)
def test_a_probe_that_proves_nothing(probe: dict[str, Any], why: str, reports: Path) -> None:
    plan = changed(without_repair({"type": "xid", "xid": 94}), "expect", {"stays_schedulable_for": "1s"})
    queries: dict[str, tuple[tuple[float, float | None], ...]] = {
        "zero": ((0.0, 0.0),), "one": ((0.0, 1.0),), "none": ((0.0, None),)
    }  # fmt: skip

    def slow(script: Script) -> Script:
        return replace(script, queries=queries, agents={"probe": AgentScript(works_s=60.0)})

    played = refused(changed(plan, "expect.probes", [{"name": "p", **probe}]), reports, change=slow)
    assert why in played.result.why
    assert played.cluster.left() == []


@pytest.mark.parametrize("job", [None, JobScript(step_s=60.0)], ids=["silent", "too-slow"])
def test_a_job_that_prints_no_step(job: JobScript | None, reports: Path) -> None:
    played = refused(changed(QUICK, "expect.job", JOB), reports, change=lambda script: replace(script, job=job))
    assert "prints a step" in played.result.why
    assert played.cluster.left() == []

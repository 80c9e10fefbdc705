"""Game-days that must break: what nothing brings about, and what must not happen and does.

A verdict that nothing can break would pass by construction. Each of these game-days breaks several at once, and the
sets are exact.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gameday.agent.task import QaResult
from gameday.checks.verdict import Status
from gameday.history.events import Event, IntentRecorded, StepStarted
from gameday.values.results import Step
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import JOB, QUICK, changed, loaded, without_repair
from tests.support.scripted.script import AgentScript, JobScript, NodeChange, Script
from tests.support.scripted.wire import Moment

SOFT = {"key": "example.com/soft", "value": "true", "effect": "PreferNoSchedule"}
CLOSED = {"key": "example.com/closed", "effect": "NoSchedule"}
NEVER = {
    "alerts": [{"name": "GPUXidCritical", "within": "6s", "resolves_within": "5s"}],
    "taints": [{"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "6s"}],
    "cordoned": {"within": "6s"},
    "conditions": [{"type": "GPUXidFault", "status": "True", "within": "6s"}],
    "labels": [{"key": "example.com/faulty", "within": "6s"}],
    "events": [{"reason": "GPUXid95", "within": "6s"}],
    "allocatable_falls": {"within": "6s"},
    "canary": {"measure": "copy to the GPU", "falls_below": "50%"},
    "probes": [{"name": "counted", "promql": {"query": "counted", "at_least": 1}, "within": "6s", "every": "1s"}],
    "job": JOB | {"must_stop": True, "slows_below": "50%"},
    "workloads": {"running_pods": "evicted", "canary_kept_off_for": "1s", "resubmitted_within": "30s"},
    "allow_other_alerts": True,
}


def broken(played: Played) -> set[str]:
    return {one.check for one in played.verdicts if one.status is Status.BROKEN}


def test_a_cluster_that_does_nothing_breaks_every_expectation(reports: Path) -> None:
    plan = changed(without_repair({"type": "noop"}), "expect", NEVER)

    def nothing(script: Script) -> Script:
        silent = script.without_detector()
        return replace(
            silent, cordons=False, measured=(100.0, 100.0), job=JobScript(), queries={"counted": ((0.0, 0.0),)}
        )

    assert broken(play(loaded(plan), nothing, reports=reports)) == {
        "alert-fires",
        "taint-set",
        "cordoned",
        "condition-set",
        "label-set",
        "event-written",
        "allocatable-falls",
        "canary",
        "probe-holds",
        "job-stops",
        "job-slows",
        "workload-running",
    }


def test_a_fault_that_is_said_to_do_nothing_breaks_what_must_stay(reports: Path) -> None:
    quiet = {"name": "quiet", "promql": {"query": "noisy", "at_most": 0}, "every": "1s"}
    expect = {
        "alerts": [{"name": "GPUXidCritical", "within": "20s", "resolves_within": "0s"}],
        "stays_schedulable_for": "10s",
        "probes": [quiet | {"stays_for": "15s"}, quiet | {"name": "quiet-again", "returns_within": "0.1s"}],
        "job": JOB | {"must_stop": True, "resumes_within": "1s"},
    }
    faulty = NodeChange({"spec": {"taints": [{"key": "trainy.konduktor.ai/faulty", "effect": "NoSchedule"}]}})

    def quarantines(script: Script) -> Script:
        noisy = ((0.0, 0.0), (0.6, 1.0))
        return replace(script, changes=(faulty,), job=JobScript(), queries={"noisy": noisy}, resolves_s=60.0)

    played = play(loaded(changed(QUICK, "expect", expect)), quarantines, reports=reports)
    assert broken(played) == {"alert-resolves", "job-resumes", "probe-returns", "probe-stays", "stays-schedulable"}


def test_a_quarantine_that_keeps_nobody_off_and_marks_that_stay(reports: Path) -> None:
    """A poor detector: a taint that only prefers, and a condition that nobody takes back."""
    expect = {
        "taints": [SOFT | {"within": "20s"}],
        "conditions": [{"type": "ExampleFault", "status": "True", "within": "20s", "clears_within": "1s"}],
        "workloads": {"canary_kept_off_for": "1s", "resubmitted_within": "30s"},
        "allow_other_alerts": True,
    }
    plan = changed(without_repair({"type": "noop"}), "expect", expect)

    def never_takes_back(script: Script) -> Script:
        return replace(script, changes=tuple(one for one in script.changes if one.when == "in"))

    assert broken(play(loaded(plan), never_takes_back, reports=reports)) == {
        "condition-clears",
        "node-as-before",
        "workload-canary",
    }


def test_where_no_node_takes_work_and_the_target_neither(reports: Path) -> None:
    """Others' taints keep new work off every node, and off the target from QA on; and no alert was expected."""
    plan = changed(changed(QUICK, "targets.names", ["gpu-node-1"]), "expect.alerts", [])
    plan = changed(plan, "expect.workloads.resubmitted_within", "3s")
    clusters: list[ScriptedCluster] = []

    def close(node: str) -> None:
        spec = clusters[0].server.administrator("GET", f"/api/v1/nodes/{node}")["spec"]
        body = {"spec": {"taints": [*spec.get("taints", ()), CLOSED]}}
        clusters[0].server.administrator("PATCH", f"/api/v1/nodes/{node}", body)

    def prepare(cluster: ScriptedCluster) -> None:
        clusters.append(cluster)
        close("gpu-node-2")

    def on_write(event: Event, moment: Moment) -> None:
        if isinstance(event, StepStarted) and (event.step, moment) == (Step.QA_NODE, "after"):
            close("gpu-node-1")

    def alarms(script: Script) -> Script:
        return replace(script, alerts=(("GPUXidCritical", {}),))

    played = play(loaded(plan), alarms, reports=reports, prepare=prepare, on_write=on_write)
    assert broken(played) == {"no-other-alerts", "node-as-before", "workload-resubmitted", "workload-return"}


def test_a_node_that_fails_qa_stays_out(reports: Path) -> None:
    plan = changed(QUICK, "qa", {"within": "30s", "burn_in": "2s", "floors": {"gemm_tflops": 5000}})
    plan = changed(plan, "expect.alerts", [])
    plan = changed(changed(plan, "expect.allow_other_alerts", True), "expect.forbidden_severities", ["critical"])
    slow = QaResult(check="gemm", gpu=0, value=600.0, bound=">= 5000", ok=False, seconds=2.0)

    def too_slow(script: Script) -> Script:
        agents = {"qa": AgentScript(finds=(slow,))}
        return replace(script, alerts=(("GPUXidCritical", {}),), agents=agents)

    played = play(loaded(plan), too_slow, reports=reports)
    assert broken(played) == {"forbidden-severities", "node-as-before", "qa", "undo-proof"}
    assert "gpu-node-1 out of service" in played.cluster.left()


def test_a_repair_that_fails_leaves_the_node_out(reports: Path) -> None:
    in_use = AgentScript(error="GPU 0 is in use")
    finds = QaResult(check="gpu-count", gpu=None, value=7, bound="8", ok=False, seconds=0.1)

    def fails(script: Script) -> Script:
        return replace(script, agents={"remediate": in_use, "qa": AgentScript(finds=(finds,))})

    played = play(loaded(QUICK), fails, reports=reports)
    assert broken(played) == {"node-as-before", "qa", "remediation", "undo-proof"}


def test_no_job_is_sent_where_there_is_no_other_node(reports: Path) -> None:
    played = play(loaded(changed(QUICK, "expect.workloads.resubmitted_within", None)), reports=reports)
    assert "workload-resubmitted" not in {one.check for one in played.verdicts}
    assert not [one for one in played.history.of(IntentRecorded) if "create job" in one.act]
    assert not broken(played)

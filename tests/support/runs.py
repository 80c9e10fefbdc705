"""Runs for tests: whole ones against an API server, and ones made of stand-ins."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gameday.clock import Clock
from gameday.cluster.pods import PodFollower
from gameday.cluster.profile import ClusterProfile
from gameday.faults.registry import parameter_models
from gameday.history.events import Event, Record
from gameday.history.journal import History
from gameday.ledger.entries import Header
from gameday.ledger.lease import Leases
from gameday.ledger.ledger import Ledger
from gameday.plan.load import LoadedPlan, parse_plan
from gameday.run.detection_chain import DetectionChain
from gameday.run.node_watch import NodeWatch
from gameday.run.quarantine import QuarantineListener
from gameday.run.record import RunRecord
from gameday.run.run import Run
from gameday.run.run_ledger import RunLedger
from gameday.run.servers import Servers
from gameday.run.targets import ChosenTarget
from gameday.values.nodes import NodeSnapshot, Target


def quick_plan(running_pods: str = "any", **targets: Any) -> LoadedPlan:
    """Return a plan whose bounds are a few seconds."""
    return loaded_plan(
        {
            "apiVersion": "gameday/v1",
            "name": "quick",
            "title": "A quick game-day",
            "hypothesis": "The node is quarantined and comes back.",
            "fault": {"type": "xid", "xid": 95},
            "targets": targets,
            "guardrails": {"max_nodes": targets.get("nodes", 1)},
            "expect": {
                "alerts": [{"name": "GPUXidCritical", "within": "10s"}],
                "taints": [{"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "10s"}],
                "workloads": {"running_pods": running_pods},
            },
        }
    )


def loaded_plan(content: Mapping[str, Any]) -> LoadedPlan:
    """Return the plan with this content, as if it were read from a file."""
    return parse_plan(json.dumps(content).encode(), "plan.yaml", parameter_models())


def with_plan(loaded: LoadedPlan, **changes: Any) -> LoadedPlan:
    """Return the plan with some of its parts replaced by models."""
    return replace(loaded, plan=loaded.plan.model_copy(update=changes))


def unopened_run(
    folder: Path,
    id: str,
    loaded: LoadedPlan,
    profile: ClusterProfile,
    *,
    clock: Clock = Clock(),
    connect: Callable[[ClusterProfile, Clock], Servers] = Servers,
) -> Run:
    """Return a run with real parts of which none is started: no lease, no watch, no request so far."""
    record, servers = RunRecord(id, folder, loaded, None, clock), connect(profile, clock)
    kubernetes = servers.kubernetes
    leases, pods = Leases(kubernetes, id, lambda why: record.abort.request("guard", why)), PodFollower(kubernetes, id)
    header = Header(run_id=id, plan="p", started=datetime.now(UTC), operator="ada", host="here")
    ledger = RunLedger(record, kubernetes, Ledger(kubernetes, header), leases, pods)
    chain = DetectionChain(record.note)
    listener = QuarantineListener(record, chain, ledger.cordons, profile.quarantine_taint_keys)
    nodes = NodeWatch(kubernetes, id, record.note, own_pods=pods, listener=listener)
    return Run(
        record=record,
        profile=profile,
        servers=servers,
        nodes=nodes,
        leases=leases,
        pods=pods,
        ledger=ledger,
        chain=chain,
        excluded_nodes={},
        background=ExitStack(),
    )


def close_run(run: Run) -> None:
    """End what an `unopened_run` has started since."""
    run.nodes.stop()
    run.background.close()
    run.servers.close()
    run.record.journal.close()


def fake_run(record: RunRecord, profile: ClusterProfile, **parts: Any) -> Run:
    """Return a run with only the given parts; whatever a test does not give is None."""
    absent: dict[str, Any] = dict.fromkeys(("servers", "nodes", "leases", "pods", "ledger"))
    given = {**absent, "chain": DetectionChain(record.note), "excluded_nodes": {}, "background": ExitStack(), **parts}
    return Run(record=record, profile=profile, **given)


def node_snapshot(name: str, **changes: Any) -> NodeSnapshot:
    """Return a healthy node with eight GPUs."""
    healthy: dict[str, Any] = {
        "node": name,
        "resource_version": "1",
        "unschedulable": False,
        "taints": (),
        "labels": {},
        "annotations": {},
        "conditions": {"Ready": "True"},
        "boot_id": "boot-1",
        "allocatable_gpus": 8,
    }
    return NodeSnapshot(**{**healthy, **changes})


def chosen_target(node: str | NodeSnapshot, gpu: int | None = 0, index: int = 0) -> ChosenTarget:
    """Return a target as the baseline chooses it."""
    before = node_snapshot(node) if isinstance(node, str) else node
    return ChosenTarget(index, Target(node=before.node, gpu=gpu), before)


def follow_as_target(run: Run, node: str) -> ChosenTarget:
    """Follow a node as the run's only target, as the baseline does once it is chosen."""
    seen = run.nodes.look_at(node)
    assert seen is not None
    run.nodes.follow_targets((seen,))
    return chosen_target(seen)


def history_of(*events: Event) -> History:
    """Return a history of these events, a second apart."""
    start = datetime(2026, 3, 3, 9, 0, tzinfo=UTC)
    return History(
        tuple(
            Record(seq=number, at=start + timedelta(seconds=number), monotonic=float(number), boot="b", event=event)
            for number, event in enumerate(events)
        )
    )

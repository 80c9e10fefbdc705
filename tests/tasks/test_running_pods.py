"""Only what a fault or its detector did to a running pod is held against the plan."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client import V1Pod

from gameday.cluster.gpu_pods import gpu_pod
from gameday.cluster.list_watch import ADDED, DELETED
from gameday.history.events import WorkloadSeen
from gameday.run.pod_states import PodStates
from gameday.tasks.running_pods import note_running_pods, pods_before_fault
from tests.run.test_pod_states import pod, with_end
from tests.support.runs import chosen_target

TARGET = chosen_target("n1")
ENDED = (DELETED, with_end("Succeeded"))
EVICTED = (DELETED, with_end("Running", deleted=True, disrupted="EvictionByEvictionAPI"))
ENDING = (ADDED, with_end("Running", deleted=True, disrupted="EvictionByEvictionAPI"))
RUNS = (ADDED, with_end("Running"))


class FakeRun(SimpleNamespace):
    """The part of a run that the task reads; `while_waiting` holds the watch's events during the one wait."""

    waited: Any

    def wait(self, what: str, timeout: Any, condition: Callable[[], bool | None]) -> bool | None:
        self.waited = timeout.total_seconds()
        if not condition():
            for kind, found in self.while_waiting:
                self.nodes.pod_states.add_target_pod(kind, found)
        return condition()


def judged(wanted: str, *watched: tuple[str, V1Pod], while_waiting: tuple[tuple[str, V1Pod], ...] = ()) -> Any:
    """The pod's event, and how long its end was waited for."""
    seen: list[WorkloadSeen] = []
    run: Any = FakeRun(
        id="r",
        plan=SimpleNamespace(expect=SimpleNamespace(workloads=SimpleNamespace(running_pods=wanted))),
        nodes=SimpleNamespace(pod_states=PodStates(), gpu_pods_on=lambda _: [gpu_pod(pod("Running"))]),
        note=seen.append,
        while_waiting=while_waiting,
        waited=None,
    )
    run.nodes.pod_states.add_target_pod(ADDED, pod("Running"))
    fault: Any = SimpleNamespace(node=TARGET.node, pods_before=pods_before_fault(run, TARGET))
    for kind, found in watched:
        run.nodes.pod_states.add_target_pod(kind, found)
    note_running_pods(run, fault)
    (event,) = seen
    return event, run.waited


@pytest.mark.parametrize(
    ("wanted", "fate", "ok"),
    [
        ("kept", RUNS, True),
        ("kept", ENDED, True),
        ("kept", EVICTED, False),
        ("kept", ENDING, False),
        ("evicted", EVICTED, True),
        ("evicted", ENDED, None),
        ("evicted", RUNS, False),
        ("any", EVICTED, True),
    ],
)
def test_a_pod_that_ended_by_itself_is_not_the_faults(wanted: str, fate: tuple[str, V1Pod], ok: bool | None) -> None:
    assert judged(wanted, fate)[0].ok is ok


def test_an_evicted_pod_has_its_own_grace_period_to_leave() -> None:
    event, waited = judged("evicted", ENDING, while_waiting=(EVICTED,))
    assert (event.ok, event.node, event.phase) == (True, None, "gone")
    assert waited > gpu_pod(pod("Running")).grace_s
    assert judged("evicted", ENDING)[0].detail.endswith("still ending")


def test_a_pod_that_was_leaving_before_the_fault_is_nobodys_concern() -> None:
    nodes = SimpleNamespace(gpu_pods_on=lambda _: [gpu_pod(with_end("Running", deleted=True))])
    run: Any = SimpleNamespace(id="r", nodes=nodes)
    assert pods_before_fault(run, TARGET) == ()

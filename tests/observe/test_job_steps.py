"""Following a job's steps: whose pods count, what a log may hold, and what is not kept of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.clock import Clock
from gameday.expect.job import ExpectedJob
from gameday.history.events import JobStepSeen
from gameday.observe.job_steps import JobWatch

EXPECTED = ExpectedJob.model_validate({"namespace": "training", "selector": {"app": "x"}, "resumes_within": "60s"})


class Cluster:
    """Pods and their logs, as the official client hands them out."""

    def __init__(self) -> None:
        self.pods: list[Any] = []
        self.logs: dict[str, str] = {}
        self.noted: list[JobStepSeen] = []
        self.core = self

    def add(self, name: str, node: str, log: str, *, restarts: int = 0, container: str = "main") -> Any:
        state = SimpleNamespace(running=object(), waiting=None)
        status = SimpleNamespace(name=container, restart_count=restarts, state=state)
        pod = SimpleNamespace(
            metadata=SimpleNamespace(name=name, uid=f"uid-{name}", deletion_timestamp=None),
            spec=SimpleNamespace(node_name=node),
            status=SimpleNamespace(container_statuses=[status]),
        )
        self.pods.append(pod)
        self.logs[name] = log
        return pod

    def list_namespaced_pod(self, namespace: str, **_: Any) -> Any:
        return SimpleNamespace(items=list(self.pods))

    def read_namespaced_pod_log(self, pod: str, namespace: str, **_: Any) -> Any:
        if pod not in self.logs:
            raise ApiException(status=404)
        return SimpleNamespace(data=self.logs[pod].encode())

    @contextmanager
    def explained(self, act: str) -> Iterator[None]:
        yield

    def watch(self) -> JobWatch:
        run: Any = SimpleNamespace(kubernetes=self, note=self.noted.append, clock=Clock())
        return JobWatch(run, EXPECTED, ["n1"])

    def look(self, watch: JobWatch) -> JobStepSeen:
        watch._look(watch._pods())
        return self.noted[-1]


def lines(*steps: int) -> str:
    return "".join(f"2026-11-25T03:00:{step:02d}.123456789Z step {step} loss 1.0 token=hunter2\n" for step in steps)


def test_a_pod_on_the_target_and_later_ones_are_followed_and_others_are_not() -> None:
    cluster = Cluster()
    cluster.add("a", "n1", lines(1, 2))
    cluster.add("b", "n2", lines(5))
    watch = cluster.watch()
    assert [(seen.pod, seen.first_step, seen.last_step) for seen in cluster.noted] == [("a", 1, 2)]
    cluster.add("c", "n2", lines(1, 4))
    assert cluster.look(watch).pod == "c"
    assert {seen.pod for seen in cluster.noted} == {"a", "c"}
    assert not any("hunter2" in seen.model_dump_json() for seen in cluster.noted)


def test_a_container_that_has_not_begun_is_not_asked_for_its_log() -> None:
    cluster = Cluster()
    cluster.add("a", "n1", lines(1, 2))
    watch = cluster.watch()
    pod = cluster.add("b", "n2", lines(3))
    pod.status.container_statuses[0].state = SimpleNamespace(running=None, waiting=object())
    assert cluster.look(watch).pod == "a", "the API server would answer 400: waiting to start: ContainerCreating"
    pod.status.container_statuses[0].state = SimpleNamespace(running=object(), waiting=None)
    assert cluster.look(watch).pod == "b"


def test_nothing_is_noted_twice_and_a_pod_that_goes_has_ended() -> None:
    cluster = Cluster()
    pod = cluster.add("a", "n1", lines(1, 2))
    watch = cluster.watch()
    watch._look(watch._pods())
    assert len(cluster.noted) == 1
    cluster.logs["a"] = lines(1, 2, 3)
    pod.metadata.deletion_timestamp = "now"
    last = cluster.look(watch)
    assert (last.last_step, last.ended) == (3, True)
    cluster.pods.clear()
    cluster.logs.clear()
    watch._look(watch._pods())
    assert cluster.noted[-1] is last


def test_a_container_that_had_ended_before_the_fault_is_no_part_of_the_job() -> None:
    cluster = Cluster()
    pod = cluster.add("a", "n1", lines(1, 9))
    state = pod.status.container_statuses[0].state
    state.running, state.terminated = None, object()
    watch = cluster.watch()
    watch._look(watch._pods())
    assert not watch.has_steps
    state.running, pod.status.container_statuses[0].restart_count = object(), 1
    assert cluster.look(watch).restarts == 1


def test_a_container_that_restarts_is_another_one() -> None:
    cluster = Cluster()
    pod = cluster.add("a", "n1", lines(1, 9))
    watch = cluster.watch()
    pod.status.container_statuses[0].restart_count = 1
    cluster.logs["a"] = lines(6, 7)
    watch._look(watch._pods())
    assert {(seen.restarts, seen.first_step, seen.last_step, seen.ended) for seen in cluster.noted[1:]} == {
        (0, 1, 9, True),
        (1, 6, 7, False),
    }


@pytest.mark.parametrize(
    "log",
    [
        "",
        "no stamp step 5\n",
        "2026-11-25T03:00:00Z\n",
        "9" * 400 + " step 5\n",
        "2026-11-25T03:00:00 step 5\n",
        "\x00\xff",
    ],
)
def test_a_log_without_a_stamped_step_has_none(log: str) -> None:
    cluster = Cluster()
    cluster.add("a", "n1", log)
    assert not cluster.watch().has_steps

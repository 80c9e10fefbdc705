"""The undo of a fault with the real agent on a virtual node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from gameday.agent.security import security_of
from gameday.agent.task import InjectTask
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import agent_pod
from gameday.cluster.pods import PodFollower
from gameday.faults.xid import XidParameters
from gameday.ledger.entries import Entry, Header, TakeOutFault, object_prefix
from gameday.ledger.ledger import Ledger, ledger_name
from gameday.ledger.undo import undo_entry
from gameday.reaper.reap import reap
from gameday.values.results import Cleanliness
from tests.support.world import PATIENCE_S, Process, World, unique

pytestmark = pytest.mark.slow
FAULT = XidParameters(xid=79).model_dump(mode="json")


@pytest.fixture(scope="module")
def node(server: World) -> Iterator[str]:
    """A virtual GPU node whose kubelet runs the agent as a process of its own."""
    with ExitStack() as stack:
        nodes = Process(
            "gameday_rehearsal.nodes",
            *("--kubeconfig", str(server.folder / "api" / "nodes.kubeconfig")),
            *("--nodes", "1", "--gpus", "2", "--state-dir", str(server.folder / "pods")),
        )
        stack.callback(nodes.end)
        yield next(one.metadata.name for one in server.core.list_node().items if one.metadata.name.startswith("gpu-"))


class Injection:
    """A fault that is in, with its intent in the ledger."""

    def __init__(self, runner: Kubernetes, node: str) -> None:
        self.run = unique("run")
        self.pod = f"{object_prefix(self.run)}inject"
        header = Header(run_id=self.run, plan="p", started=datetime.now(UTC), operator="ada", host="here")
        self.ledger = Ledger(runner, header)
        undo = TakeOutFault(pod=self.pod, gpu=0, fault=FAULT)
        self.entry: Entry = self.ledger.intend(
            id="inject", act="inject", node=node, undo=undo, expires=datetime.now(UTC) + timedelta(minutes=1)
        )
        task = InjectTask(run_id=self.run, node=node, gpu=0, fault=FAULT, hold_s=60)
        runner.create_pod(
            agent_pod(
                self.pod,
                task=task.model_dump_json(),
                role="inject",
                run_id=self.run,
                node=node,
                profile=runner.profile,
                deadline=timedelta(seconds=70),
                security=security_of(task),
            )
        )


@pytest.fixture
def world(server: World) -> Iterator[World]:
    """The real server, which the virtual node's processes can reach."""
    yield server
    server.clear()


@pytest.fixture
def injection(world: World, runner: Kubernetes, node: str) -> Injection:
    return Injection(runner, node)


@pytest.fixture
def pods(runner: Kubernetes, injection: Injection) -> Iterator[PodFollower]:
    with PodFollower(runner, injection.run) as following:
        assert following.wait_synced(PATIENCE_S)
        assert following.wait(lambda: (seen := following.seen(injection.pod)) is not None and seen.ready, PATIENCE_S)
        yield following


def test_an_injector_takes_its_fault_out_and_reports_it(
    world: World, runner: Kubernetes, injection: Injection, pods: PodFollower
) -> None:
    done = undo_entry(runner, injection.entry, injection.run, pods)
    assert done.cleanliness is Cleanliness.CLEAN, done.evidence
    assert done.evidence
    assert not any("second agent" in line or "left no message" in line for line in done.evidence)
    assert world.pods(injection.run) == []


def test_a_second_agent_follows_one_that_vanished(
    world: World, runner: Kubernetes, injection: Injection, pods: PodFollower
) -> None:
    world.remove_pod(injection.pod)
    done = undo_entry(runner, injection.entry, injection.run, pods)
    assert done.cleanliness is Cleanliness.CLEAN, done.evidence
    assert done.evidence[0] == "injector left no message"
    assert len(done.evidence) > 1
    assert world.pods(injection.run) == []


@pytest.mark.usefixtures("pods")
def test_the_reaper_takes_out_what_a_killed_run_left(world: World, reaper: Kubernetes, injection: Injection) -> None:
    result = reap(reaper)
    assert [one.cleanliness for one in result.reaped] == [Cleanliness.CLEAN], result.reaped
    assert world.pods(injection.run) == []
    assert ledger_name(injection.run) not in world.ledgers()

"""The reaper keeps a dead run's node as long as its detector may quarantine it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gameday.agent.task import AgentResult
from gameday.cluster.kubernetes import Kubernetes
from gameday.ledger.entries import Header, RestoreNode, TakeOutFault
from gameday.ledger.ledger import Ledger, ledger_name
from gameday.reaper.reap import reap
from gameday.values.results import Cleanliness
from tests.reaper.test_reap import LATER, TAINT
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import unique


class Late:
    """A run that was killed right after its fault went in, on a node whose detector has not struck yet."""

    def __init__(self, world: ScriptedWorld, runner: Kubernetes) -> None:
        self.world = world
        self.id = unique("run")
        self.node = world.add_node()
        self.ledger = Ledger(runner, Header(run_id=self.id, plan="p", started=LATER, operator="ada", host="here"))

    def write(self, *, within: timedelta, until: datetime | None = None) -> None:
        restore = RestoreNode(keys=(TAINT.key,), unschedulable=None, awaited=(TAINT.key,), within=within, until=until)
        self.ledger.intend(id="quarantine", act="quarantine", node=self.node, undo=restore, expires=LATER)

    def inject(self, ago: timedelta | None) -> None:
        """None: the injector ended before it wrote anything."""
        pod = f"gd-{self.id}-inject"
        fault = TakeOutFault(pod=pod, gpu=0, fault={"type": "xid", "xid": 95})
        self.ledger.intend(id="inject", act="inject", node=self.node, undo=fault, expires=LATER)
        self.world.add_pod(pod, self.id, node=self.node, role="inject")
        written_at = None if ago is None else self.world.clock.now() - ago
        evidence = () if ago is None else ("kernel log line",)
        word = AgentResult(
            role="inject", ok=True, cleanliness=Cleanliness.CLEAN, written_at=written_at, evidence=evidence
        )
        self.world.report(pod, word.model_dump_json())

    @property
    def settled(self) -> bool:
        return ledger_name(self.id) not in self.world.ledgers()


@pytest.fixture
def late(world: ScriptedWorld, runner: Kubernetes) -> Late:
    return Late(world, runner)


HOUR = timedelta(hours=1)


def test_a_late_detectors_taint_is_taken_off_by_the_next_reap(
    world: ScriptedWorld, reaper: Kubernetes, late: Late
) -> None:
    late.write(within=HOUR)
    late.inject(timedelta())
    allowed_until = world.clock.now() + HOUR
    (quarantine,) = (one for one in reap(reaper).reaped if one.entry.id == "quarantine")
    assert quarantine.cleanliness is Cleanliness.UNKNOWN
    assert isinstance(quarantine.entry.undo, RestoreNode)
    until = quarantine.entry.undo.until
    assert until is not None
    assert f"quarantine {late.node} until {until:%H:%M:%S} UTC" in quarantine.describe()
    assert until == allowed_until

    assert not reap(reaper).is_clean, "nor now, when no injector shows any more when its fault went in"
    assert not late.settled
    world.taint(late.node, TAINT.model_dump())
    assert reap(reaper).is_clean
    assert world.taints(late.node) == []
    assert late.settled


def test_a_detector_whose_time_is_over_is_not_waited_for(reaper: Kubernetes, late: Late) -> None:
    late.write(within=timedelta(seconds=5))
    late.inject(timedelta(seconds=10))
    assert reap(reaper).is_clean
    assert late.settled


def test_the_detectors_time_is_over_when_its_last_moment_has_come(
    world: ScriptedWorld, reaper: Kubernetes, late: Late
) -> None:
    late.write(within=HOUR, until=world.clock.now())
    assert reap(reaper).is_clean
    assert late.settled


def test_nothing_is_still_to_come_of_a_fault_that_never_went_in(reaper: Kubernetes, late: Late) -> None:
    late.write(within=HOUR)
    late.inject(None)
    assert reap(reaper).is_clean
    assert late.settled


def test_nothing_is_still_to_come_after_the_quarantine(world: ScriptedWorld, reaper: Kubernetes, late: Late) -> None:
    late.write(within=HOUR)
    late.inject(timedelta())
    world.taint(late.node, TAINT.model_dump())
    assert reap(reaper).is_clean
    assert world.taints(late.node) == []


def test_the_detectors_time_in_a_killed_runs_ledger_keeps_the_node_unknown(
    world: ScriptedWorld, reaper: Kubernetes, late: Late
) -> None:
    """It had taken its fault out already."""
    late.write(within=HOUR, until=world.clock.now() + HOUR)
    (quarantine,) = reap(reaper).reaped
    assert quarantine.cleanliness is Cleanliness.UNKNOWN

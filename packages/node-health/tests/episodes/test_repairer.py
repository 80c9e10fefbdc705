"""The repairer: one episode for each quarantined node, each worked off once at a time, and not too many together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gameday.cluster.kubernetes import Kubernetes
from gameday.xid.catalogue import Remedy
from gameday_health.episodes import transitions
from gameday_health.episodes.metrics import RepairMetrics
from gameday_health.episodes.model import State
from gameday_health.episodes.repairer import Repairer
from gameday_health.episodes.status import status
from gameday_health.episodes.work import EpisodeWork
from tests.health.conftest import eventually
from tests.health.episodes.conftest import OURS, Agents, Ward, finish, xid

pytestmark = pytest.mark.slow  # each waits for a repairer of its own


@contextmanager
def repairing(ward: Ward, work_off: Callable[[str, str], None], **policy: Any) -> Iterator[CollectorRegistry]:
    """Run a repairer for the block; yield its metrics."""
    registry = CollectorRegistry()
    settings = ward.settings(**policy)
    kubernetes = Kubernetes(settings.profile)
    repairer = Repairer(settings, kubernetes, work_off, RepairMetrics(registry))
    thread = threading.Thread(target=repairer.run)
    thread.start()
    try:
        yield registry
    finally:
        repairer.stop()
        thread.join(20)
        kubernetes.close()


def working(ward: Ward) -> Callable[[str, str], None]:
    """Return what works an episode off without Prefect."""

    def work_off(node: str, _episode: str) -> None:
        with EpisodeWork(ward.settings(), node) as work:
            finish(work)

    return work_off


def state_of(ward: Ward, node: str) -> State | None:
    found = ward.store.read(node)
    return found.episode.state if found else None


def test_a_quarantined_node_is_repaired_and_another_one_is_left_alone(ward: Ward, agents: Agents) -> None:
    healthy = ward.world.add_node()
    with repairing(ward, working(ward)) as registry:
        node = ward.quarantine()
        eventually(lambda: state_of(ward, node) is State.RETURNED)
        eventually(lambda: registry.get_sample_value("gameday_repair_ended_total", {"state": "returned"}) == 1)
    assert ward.taint_keys() == [] and ward.store.read(healthy) is None


def test_a_tainted_node_without_a_readable_reason_is_left_to_people(ward: Ward, agents: Agents) -> None:
    by_hand = ward.world.add_node(taints=[OURS])
    with repairing(ward, working(ward)):
        node = ward.quarantine()
        eventually(lambda: state_of(ward, node) is State.RETURNED)
    assert ward.store.read(by_hand) is None and agents.actions() == ["gpu-reset"]


def test_work_that_broke_off_is_begun_again_until_it_can_be_done_and_is_done_once(ward: Ward, agents: Agents) -> None:
    calls: list[str] = []

    def away_twice(node: str, episode: str) -> None:
        calls.append(episode)
        if len(calls) <= 2:
            raise ConnectionError("the Prefect server does not answer")
        working(ward)(node, episode)

    with repairing(ward, away_twice) as registry:
        node = ward.quarantine()
        eventually(lambda: state_of(ward, node) is State.RETURNED)
        assert registry.get_sample_value("gameday_repair_work_failures_total") == 2
    assert len(calls) == 3 and len(set(calls)) == 1
    assert agents.actions() == ["gpu-reset"]


def test_a_repairer_that_dies_is_followed_by_one_that_goes_on(ward: Ward, agents: Agents) -> None:
    hung = threading.Event()
    with repairing(ward, lambda *_: hung.set()):
        node = ward.quarantine()
        assert hung.wait(20)
        assert state_of(ward, node) is State.OPEN
    with repairing(ward, working(ward)):
        eventually(lambda: state_of(ward, node) is State.RETURNED)
    assert agents.actions() == ["gpu-reset"]


def test_of_two_repairers_one_leads(ward: Ward, agents: Agents) -> None:
    started: list[str] = []

    def count(node: str, episode: str) -> None:
        started.append(node)
        working(ward)(node, episode)

    with ExitStack() as stack:
        registries = [stack.enter_context(repairing(ward, count)) for _ in range(2)]
        node = ward.quarantine()
        eventually(lambda: state_of(ward, node) is State.RETURNED)
        assert sorted(one.get_sample_value("gameday_repair_leader") or 0 for one in registries) == [0, 1]
    assert started == [node]


def test_the_breaker_withholds_what_is_too_much_and_lets_it_go_on_later(
    ward: Ward, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gameday_health.episodes.repairer._MOST_AT_A_LOOK", 1)
    first, done, closed = threading.Event(), threading.Event(), threading.Event()

    def one_after_the_other(node: str, episode: str) -> None:
        is_first = not first.is_set()
        if is_first:
            first.set()
            done.wait(20)
        working(ward)(node, episode)
        if is_first:
            closed.wait(20)  # a flow run takes its time to end, and takes nobody's place meanwhile

    with repairing(ward, one_after_the_other, breaker={"nodes": 1}) as registry:
        nodes = [ward.quarantine()]
        assert first.wait(20)
        nodes += [ward.quarantine(), ward.quarantine()]
        eventually(lambda: [state_of(ward, node) for node in nodes[1:]] == [State.WITHHELD] * 2)
        eventually(lambda: "NodeRepairWithheld" in ward.event_reasons() and ward.label() == "withheld")
        assert registry.get_sample_value("gameday_repair_withheld_total") == 2
        withheld = [row for row in status(ward.api, ward.settings(), datetime.now(UTC)) if row.node in nodes[1:]]
        assert all(row.state == "withheld" and "1 nodes are under repair" in row.next for row in withheld)
        assert agents.made == []
        done.set()
        eventually(lambda: all(state_of(ward, node) is State.RETURNED for node in nodes), 90)
        closed.set()
    assert agents.actions() == ["gpu-reset"] * 3 and ward.label() is None


def test_a_handed_over_node_is_not_begun_again_until_a_new_fault_comes(ward: Ward, agents: Agents) -> None:
    first = xid(64, Remedy.CONTACT_SUPPORT)
    started: list[str] = []

    def count(node: str, episode: str) -> None:
        started.append(episode)
        working(ward)(node, episode)

    with repairing(ward, count):
        node = ward.quarantine(first)
        eventually(lambda: ward.label() == "handed-over" and state_of(ward, node) is State.HANDED_OVER)
        assert len(started) == 1
        ward.refault(first, xid(79, Remedy.CONTACT_SUPPORT))
        eventually(lambda: len(started) == 2 and state_of(ward, node) is State.HANDED_OVER)
        ward.world.taint(node)
        eventually(lambda: ward.label() is None)
    assert agents.made == []


def test_the_label_goes_also_where_the_end_of_a_cancelled_repair_broke_off(
    ward: Ward, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[str] = []
    agents.before["remediate"] = lambda: cancelled.append("a person cancelled the flow run")

    def cut_off(*_: object) -> None:
        assert ward.label() == "repairing"
        raise OSError("killed")

    def work_off(node: str, _episode: str) -> None:
        with EpisodeWork(ward.settings(), node, lambda: "".join(cancelled)) as work:
            finish(work)

    monkeypatch.setattr("gameday_health.episodes.acts.clear", cut_off)
    node = ward.quarantine()
    with repairing(ward, work_off):
        eventually(lambda: state_of(ward, node) is State.CANCELLED and ward.label() is None)
    assert ward.taint_keys() == [OURS["key"]]


def test_status_shows_evidence_rung_and_the_next_step(ward: Ward, agents: Agents) -> None:
    node = ward.quarantine()
    ward.open()
    (row,) = [row for row in status(ward.api, ward.settings(), datetime.now(UTC)) if row.node == node]
    assert (row.state, row.evidence) == ("open", "xid 95 on 0000:4e:00")
    assert row.next == "drain (gpu-pods) before gpu-reset"
    ward.work_off()
    (row,) = [row for row in status(ward.api, ward.settings(), datetime.now(UTC)) if row.node == node]
    assert (row.state, row.rung) == ("returned", "gpu-reset (1)")


def test_a_node_that_joins_again_under_its_name_gets_an_episode_of_its_own(ward: Ward, agents: Agents) -> None:
    node = ward.quarantine()
    episode = ward.open()
    found = ward.api.node(node)
    assert found
    seen = ward.settings().seen(found)
    other = transitions.open_episode(seen, episode, datetime.now(UTC))
    assert other.id != episode.id and [past.id for past in other.past] == [episode.id]
    assert transitions.needs_episode(seen, episode.model_copy(update={"uid": "another"}))


def test_work_without_an_episode_is_refused(ward: Ward) -> None:
    ward.quarantine()
    began = time.monotonic()
    with pytest.raises(Exception, match="has no episode"), ward.work(claim_s=1):
        pytest.fail("there is no episode")
    assert time.monotonic() - began < 5

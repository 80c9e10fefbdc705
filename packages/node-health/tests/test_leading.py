"""The lead of one controller among several, and the writes of one that has lost it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gameday.clock import Clock
from gameday.cluster.json_api import CONFLICT, NOT_FOUND
from gameday.cluster.lease import Lease
from gameday.errors import KubernetesError, LeaseLostError
from gameday.ledger.lease import is_game_day_lease
from gameday_health import __main__ as program
from gameday_health import leading
from gameday_health.api import connect
from gameday_health.checkpoint import Checkpoint
from gameday_health.leading import LEADING_CONTROLLER, Lead
from gameday_health.metrics import Metrics
from gameday_health.model import LogProgress, NodeView
from gameday_health.worker import Worker
from tests.health.conftest import eventually
from tests.health.test_restarts import OPTIONS, DictApi, detection

LEASES = "/apis/coordination.k8s.io/v1/namespaces/gameday/leases"


class LeaseApi:
    """A Lease in memory; each write needs the version it was made from."""

    namespace = "gameday"

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.is_away = False

    def get(self, path: str, act: str) -> dict[str, Any] | None:
        assert path == f"{LEASES}/{LEADING_CONTROLLER}"
        self._answer()
        return self.lease

    def request(self, method: str, path: str, body: dict[str, Any], act: str) -> dict[str, Any]:
        self._answer()
        self.version += 1
        if method == "POST":
            if self.lease:
                raise KubernetesError("memory", "there already", status=CONFLICT)
            self.lease = {**body, "metadata": {**body["metadata"], "uid": str(self.version)}}
        elif self.lease is None:
            raise KubernetesError("memory", "not there", status=NOT_FOUND)
        elif body.get("preconditions", body.get("metadata"))["resourceVersion"] != self._version():
            raise KubernetesError("memory", "written since", status=CONFLICT)
        elif method == "DELETE":
            self.lease = None
            return {}
        else:
            self.lease = {**self.lease, "spec": {**self.lease["spec"], **body["spec"]}}
        self.lease = {**self.lease, "metadata": {**self.lease["metadata"], "resourceVersion": str(self.version)}}
        return self.lease

    def _version(self) -> str:
        assert self.lease
        return str(self.lease["metadata"]["resourceVersion"])

    def _answer(self) -> None:
        if self.is_away:
            raise KubernetesError("memory", "no answer")


class HandClock(Clock):
    """A clock of which the test turns the hand."""

    seconds = 1000.0

    def boottime(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "_LOOK_S", 0.01)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def claim_by(api: LeaseApi, holder: str, clock: Clock = Clock()) -> Lease:
    return Lease(api, LEADING_CONTROLLER, holder, timedelta(seconds=15), clock)  # type: ignore[arg-type]


def nobody(_: LeaseLostError) -> None:
    pytest.fail("the lead was not lost")


def test_a_claim_is_taken_over_only_after_its_holder_was_seen_unchanged_for_its_duration(clock: HandClock) -> None:
    api = LeaseApi()
    first, second = claim_by(api, "first", clock), claim_by(api, "second", clock)
    assert first.try_take() and not second.try_take()
    clock.seconds += 14
    assert first.is_held and not second.try_take()
    clock.seconds += 1
    assert not first.is_held and first.seconds_left == 0
    assert second.try_take() and second.is_held


def test_a_claim_that_is_given_back_is_free_immediately(clock: HandClock) -> None:
    api = LeaseApi()
    first, second = claim_by(api, "first", clock), claim_by(api, "second", clock)
    assert first.try_take()
    first.release()
    assert not first.is_held
    assert second.try_take()
    first.release()  # of another one's claim: nothing
    assert api.lease and api.lease["spec"]["holderIdentity"] == "second"


def test_a_claim_that_an_outage_has_cost_is_taken_again_immediately(clock: HandClock) -> None:
    api = LeaseApi()
    claim = claim_by(api, "first", clock)
    assert claim.try_take()
    clock.seconds += 15
    assert not claim.is_held
    assert claim.try_take() and claim.is_held


def test_a_claim_that_says_it_lasts_for_years_is_taken_over_after_ten_minutes(clock: HandClock) -> None:
    api = LeaseApi()
    first, second = claim_by(api, "first", clock), claim_by(api, "second", clock)
    assert first.try_take() and api.lease
    api.lease["spec"]["leaseDurationSeconds"] = 10**9
    assert not second.try_take()
    clock.seconds += 599
    assert not second.try_take()
    clock.seconds += 1
    assert second.try_take()


def test_the_leaders_claim_is_no_lease_of_a_game_day() -> None:
    assert not is_game_day_lease(LEADING_CONTROLLER)


def test_the_second_of_two_stands_by_until_the_first_gives_the_lead_back() -> None:
    api, stopping, standing_by, leads = LeaseApi(), threading.Event(), threading.Event(), threading.Event()
    first, second = (Lead(claim_by(api, name), nobody) for name in ("first", "second"))
    assert first.wait(stopping, lambda: pytest.fail("the lead was free"))

    def follow() -> None:
        if second.wait(stopping, standing_by.set):
            leads.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert standing_by.wait(60)
    with pytest.raises(LeaseLostError):
        second.check()
    assert not leads.is_set()
    first.release()
    assert leads.wait(60)
    second.check()
    second.release()
    thread.join()


def test_a_standby_that_is_stopped_never_leads() -> None:
    api, stopping = LeaseApi(), threading.Event()
    assert claim_by(api, "first").try_take()
    assert not Lead(claim_by(api, "second"), nobody).wait(stopping, stopping.set)


def test_a_standby_waits_for_an_api_server_that_does_not_answer() -> None:
    api = LeaseApi()
    api.is_away = True
    lead = Lead(claim_by(api, "first"), nobody)
    assert lead.wait(threading.Event(), lambda: setattr(api, "is_away", False))
    lead.release()


def test_a_leader_that_cannot_renew_is_ended_when_its_time_is_up(clock: HandClock) -> None:
    api, lost = LeaseApi(), threading.Event()
    lead = Lead(claim_by(api, "first", clock), lambda error: lost.set())
    assert lead.wait(threading.Event(), lambda: None)
    lead.check()
    clock.seconds += 15
    with pytest.raises(LeaseLostError, match="not renewed for 15 s: another process may hold it"):
        lead.check()
    assert lost.wait(60)
    lead.release()


def test_a_leader_that_gives_its_lead_back_has_not_lost_it(clock: HandClock) -> None:
    lead = Lead(claim_by(LeaseApi(), "first", clock), nobody)
    assert lead.wait(threading.Event(), lambda: None)
    lead.release()
    eventually(lambda: all(thread.name != "lead" for thread in threading.enumerate()))


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: x, user: {}}]
"""


@pytest.mark.parametrize("method", ["PATCH", "POST", "DELETE"])
def test_a_write_is_not_sent_by_a_process_that_may_not(tmp_path: Path, method: str) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)

    def refuse() -> None:
        raise LeaseLostError("lost")

    api = connect(tmp_path / "kubeconfig", "gameday", refuse)
    with pytest.raises(LeaseLostError):
        api.request(method, "/api/v1/nodes/n1", {})
    with pytest.raises(KubernetesError):  # a read is sent
        api.request("GET", "/api/v1/nodes/n1")


class Losable:
    """The way of one process to the cluster in memory; it refuses writes once the lead is lost."""

    server = "memory"

    def __init__(self, cluster: DictApi) -> None:
        self._cluster = cluster
        self.is_lost = False
        self.meanwhile: Callable[[], object] = lambda: None
        """Called once between the check of the next write and its arrival, as when the process sleeps there."""

    def request(self, method: str, *rest: Any) -> dict[str, Any]:
        if method != "GET":
            if self.is_lost:
                raise LeaseLostError("lost")
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
        return self._cluster.request(method, *rest)


def test_a_worker_that_lost_the_lead_writes_neither_node_nor_checkpoint() -> None:
    cluster = DictApi()
    api = Losable(cluster)
    worker = Worker(api, OPTIONS, Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    worker.load()
    worker.handle_node(NodeView.of(cluster.node))
    api.is_lost = True
    worker.handle_line(detection(time.time_ns()))
    with pytest.raises(LeaseLostError):
        worker.write_due()
    with suppress(LeaseLostError):
        worker.close()
    assert not cluster.is_tainted() and cluster.data is None


def test_a_checkpoint_of_before_does_not_replace_the_new_leaders() -> None:
    cluster = DictApi()
    old_api, new_api = Losable(cluster), Losable(cluster)
    old, new = (Checkpoint(api, "gameday") for api in (old_api, new_api))  # type: ignore[arg-type]
    old.record("n1", LogProgress(boot="old"))
    assert old.save(with_cursors=False, immediately=True)

    def change_the_leader() -> None:
        old_api.is_lost = True
        new.load()
        new.record("n1", LogProgress(boot="new"))
        assert new.save(with_cursors=False, immediately=True)

    old_api.meanwhile = change_the_leader
    old.record("n1", LogProgress(boot="older"))
    with pytest.raises(LeaseLostError):
        old.save(with_cursors=False, immediately=True)
    assert cluster.progress().boot == "new"


def test_a_process_that_loses_the_lead_says_so_and_ends_as_one_to_start_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(_: object) -> int:
        raise LeaseLostError("the lead is lost")

    monkeypatch.setattr(program, "_run", lose)
    monkeypatch.setattr(sys, "argv", ["gameday_health", "--loki-url", "http://127.0.0.1:1"])
    assert program.main() == 75
    assert capsys.readouterr().err == "gameday_health: the lead is lost\n"


@pytest.mark.parametrize("text", ["0", "-3", "1.5", "soon", "601"])
def test_a_claim_lasts_whole_seconds(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gameday_health", "--loki-url", "http://127.0.0.1:1", f"--claim-seconds={text}"])
    with pytest.raises(SystemExit):
        program.main()
    assert f"{text} is not a whole number of seconds" in capsys.readouterr().err


def test_a_checkpoint_that_a_person_edited_is_saved_all_the_same() -> None:
    cluster = DictApi()
    checkpoint = Checkpoint(Losable(cluster), "gameday")  # type: ignore[arg-type]
    checkpoint.record("n1", LogProgress(boot="b1"))
    assert checkpoint.save(with_cursors=False, immediately=True)
    cluster.request("PATCH", "/api/v1/namespaces/gameday/configmaps/gameday-health", {"data": {"note": "mine"}})
    checkpoint.record("n1", LogProgress(boot="b2"))
    assert checkpoint.save(with_cursors=False, immediately=True)
    assert cluster.progress().boot == "b2"

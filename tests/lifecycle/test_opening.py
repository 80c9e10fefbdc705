"""The beginning of a run: a cluster that must not bear its fault is refused, and what stands for a meaning is noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.clock import Clock
from gameday.cluster.profile import ClusterProfile
from gameday.errors import AdapterError, RefusedError
from gameday.expect.alerts import ExpectedAlert
from gameday.history.events import AlertChosen, Refused
from gameday.lifecycle import opening
from gameday.report.narration import narrate
from gameday.run.record import start_record
from gameday.run.servers import Servers
from tests.guard.observations import plan, profile
from tests.support.opened import BY_HAND
from tests.support.runs import quick_plan, with_plan
from tests.support.virtual_clock import VirtualClock

PAUSED = plan(fault={"type": "etcd_paused", "hold": "2m"}, expect={"api_canary": {}}, rehearsal={"cluster": "lab"})

ALLOWS = profile().model_copy(update={"allow_dangerous": ("etcd_paused",)})


def test_a_fault_that_stops_the_control_plane_is_refused_on_a_cluster_that_is_no_lab() -> None:
    with pytest.raises(RefusedError, match="is no lab") as caught:
        opening._check_dangers(PAUSED, ALLOWS)
    assert caught.value.hint.startswith("gameday rehearse quick ")
    opening._check_dangers(PAUSED, ALLOWS.model_copy(update={"lab_control": Path("/lab/control.sock")}))


def test_the_rule_that_stands_for_a_meaning_is_in_the_history_and_in_words(tmp_path: Path) -> None:
    alert = {"meaning": "gpu-fell-off-the-bus", "name": "NodeQuarantined", "within": "10s"}
    loaded = quick_plan()
    expect = loaded.plan.expect.model_copy(update={"alerts": (ExpectedAlert.model_validate(alert),)})
    record = start_record("a-run", with_plan(loaded, expect=expect), tmp_path)
    opening._note_chosen_alerts(record)
    (chosen,) = record.journal.history().of(AlertChosen)
    sentence = narrate(chosen)
    assert sentence is not None
    assert sentence.text.startswith(
        "Alert NodeQuarantined stands for ‘gpu-fell-off-the-bus’: it reads kube-state-metrics"
    )
    record.journal.close()


def test_the_servers_of_a_run_live_by_its_clock(tmp_path: Path) -> None:
    asked: list[tuple[ClusterProfile, Clock]] = []

    def away(cluster: ClusterProfile, clock: Clock) -> Servers:
        asked.append((cluster, clock))
        raise AdapterError("https://a", "connection refused")

    record, cluster = start_record("a-run", quick_plan(), tmp_path, clock=VirtualClock()), profile()
    with pytest.raises(RefusedError, match="connection refused"), opening.open_run(record, cluster, BY_HAND, away):
        pytest.fail("it was opened")
    assert asked == [(cluster, record.clock)]
    assert [one.why for one in record.journal.history().of(Refused)] == ["https://a: connection refused"]

"""The beginning of a run: a cluster that must not bear its fault is refused, and what stands for a meaning is noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.errors import RefusedError
from gameday.history.events import AlertChosen
from gameday.lifecycle import opening
from gameday.plan.expectations import ExpectedAlert
from gameday.report.narration import narrate
from gameday.run.record import start_record
from tests.guard.observations import plan, profile
from tests.support.runs import quick_plan, with_plan

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

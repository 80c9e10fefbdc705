"""Three-valued: what a server that was read does not have did not happen; what no server could answer is unknown."""

from __future__ import annotations

import pytest

from gameday.checks.verdict import Status
from gameday.history.events import Event, NodeSeen, Record
from gameday.history.journal import History
from gameday.post_mortem.findings import IncidentFinding, findings, first_sign, noticed
from gameday.post_mortem.incident import Incident, SilenceSeen, SourceState
from gameday.report.summary import Noticed
from tests.post_mortem.conftest import USUAL, alert, at, incident, taint, xid
from tests.report.run_builder import snapshot


def history(*events: Event) -> History:
    return History(
        tuple(Record(seq=i, at=getattr(e, "at", at(700)), monotonic=0, boot="b", event=e) for i, e in enumerate(events))
    )


def found(*events: Event, of: Incident | None = None) -> dict[str, IncidentFinding]:
    return {finding.id: finding for finding in findings(of or incident(), history(*events))}


def test_everything_that_was_seen_is_held_and_timed_from_the_first_fatal_line() -> None:
    result = found(*USUAL)
    assert [result[i].status for i in ("log", "alert", "taint", "back")] == [Status.HELD] * 4
    assert (result["alert"].seconds, result["taint"].seconds, result["back"].seconds) == (2.0, 1.0, 40.0)


@pytest.mark.parametrize(
    ("id", "source"),
    [("log", "kernel log (Loki)"), ("alert", "alerts (Prometheus)"), ("taint", "taint history (kube-state-metrics)")],
)
def test_nothing_seen_is_broken_only_where_the_source_was_read(id: str, source: str) -> None:
    kept = xid() if id != "log" else alert()
    assert found(kept)[id].status is Status.BROKEN
    for state in (SourceState.EMPTY, SourceState.FAILED):
        assert found(kept, of=incident({source: state}))[id].status is Status.UNKNOWN


def test_a_line_that_calls_for_no_quarantine_asks_for_no_taint() -> None:
    assert "taint" not in found(xid(decision="workload"), alert())


def test_an_alert_that_stood_before_the_window_says_nothing_of_its_time() -> None:
    result = found(xid(), alert(0, at_baseline=True))["alert"]
    assert result.status is Status.UNKNOWN
    assert "begin it earlier" in result.answer


def silence(start: float) -> SilenceSeen:
    return SilenceSeen(alert="GPUXidCritical", created_by="bob", comment="noise", start=at(start), end=at(600))


def test_a_silenced_alert_reached_nobody() -> None:
    result = found(xid(), alert(silenced=True, receivers=("pager",)), of=incident(silences=[silence(0)]))["reached"]
    assert (result.status, result.answer) == (Status.BROKEN, "not sent; GPUXidCritical was silenced by bob: noise")


def test_an_alert_that_was_silenced_after_it_fired_reached_somebody() -> None:
    result = found(xid(), alert(receivers=("pager",)), of=incident(silences=[silence(300)]))["reached"]
    assert result.status is Status.HELD
    assert "pager" in result.answer
    assert "silenced later, at 09:05:00 UTC, by bob" in result.answer


def test_an_inhibited_alert_was_not_sent_but_the_one_that_mutes_it_may_have_been() -> None:
    muted = alert(inhibited=True, receivers=("pager",))
    result = found(xid(), muted)["reached"]
    assert result.status is Status.BROKEN
    assert result.answer.startswith("not sent; GPUXidCritical was inhibited")
    louder = muted.model_copy(update={"alert": "GPUFellOffTheBus", "inhibited": False})
    assert found(xid(), muted, louder)["reached"].status is Status.HELD


def test_a_taint_that_stood_when_the_window_began_is_no_quarantine_of_this_fault() -> None:
    result = found(xid(), taint(0).model_copy(update={"at_baseline": True}))["taint"]
    assert (result.status, result.seconds) == (Status.UNKNOWN, None)
    assert "was there when the window began" in result.answer


def test_a_node_that_is_still_tainted_is_not_back() -> None:
    result = found(xid(), NodeSeen(phase="after", snapshot=snapshot(tainted=True)))["back"]
    assert result.status is Status.BROKEN


def test_the_first_sign_is_the_first_fatal_line_and_not_the_first_line() -> None:
    sign = first_sign(history(xid(1, code=13, decision="workload"), xid(10)))
    assert sign is not None
    assert sign.at == at(10)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((xid(), alert(), taint()), Noticed.YES),
        ((xid(), alert()), Noticed.PARTLY),
        ((xid(),), Noticed.NO),
    ],
)
def test_noticed_is_folded_from_alert_and_taint(events: tuple[Event, ...], state: Noticed) -> None:
    assert noticed(findings(incident(), history(*events))) is state


def test_a_taint_beside_alerts_that_nobody_could_read_is_not_noticed_in_part() -> None:
    unread = incident({"alerts (Prometheus)": SourceState.FAILED})
    assert noticed(findings(unread, history(xid(), taint()))) is Noticed.UNKNOWN


def test_without_a_kernel_line_nothing_is_timed() -> None:
    result = found(alert(), taint(), taint(50, present=False), NodeSeen(phase="after", snapshot=snapshot()))
    assert {result[id].seconds for id in ("alert", "taint", "back")} == {None}
    assert result["alert"].answer == "GPUXidCritical, at 09:00:12 UTC"


def test_what_came_before_the_first_line_has_no_duration() -> None:
    result = found(xid(10), taint(5))["taint"]
    assert (result.status, result.seconds) == (Status.HELD, None)
    assert "5.0 s before the first sign" in result.answer


def test_a_stamp_in_whole_seconds_is_not_before_the_line_of_its_second() -> None:
    result = found(xid(10.7), taint(10))["taint"]
    assert (result.seconds, "within a second of" in result.answer) == (0.0, True)


def test_a_node_is_called_replaced_only_where_kubernetes_was_asked() -> None:
    gone = incident({"the node (Kubernetes)": SourceState.EMPTY})
    unread = incident({"the node (Kubernetes)": SourceState.FAILED})
    assert "replaced" in found(xid(), of=gone)["back"].answer
    assert "replaced" not in found(xid(), of=unread)["back"].answer


def test_an_unread_taint_history_never_makes_it_not_noticed() -> None:
    unread = incident({"taint history (kube-state-metrics)": SourceState.EMPTY})
    assert noticed(findings(unread, history(xid()))) is Noticed.UNKNOWN

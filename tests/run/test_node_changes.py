"""What a watch shows of a node becomes an event only where something changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from kubernetes import client

from gameday.cluster.nodes import snapshot
from gameday.history.events import AllocatableSeen, ConditionSeen, CordonSeen, LabelSeen
from gameday.run.node_changes import NodeEvents, Sight, changes, view_of_node, view_of_snapshot

NOW = datetime(2026, 3, 3, 9, tzinfo=UTC)
SEEN_AT = NOW + timedelta(hours=1)
WATCHED = Sight(NOW, NOW)
STAMP = NOW - timedelta(seconds=9)


def node(**changes: Any) -> client.V1Node:
    given = {"status": "True", "reason": "Ready", "labels": {"a": "1"}, "gpus": "8", "cordoned": False, "beat": 0}
    given |= changes
    beat = NOW + timedelta(seconds=given["beat"])
    ready = client.V1NodeCondition(
        type="Ready", status=given["status"], reason=given["reason"], last_heartbeat_time=beat
    )
    return client.V1Node(
        metadata=client.V1ObjectMeta(name="n", labels=given["labels"]),
        spec=client.V1NodeSpec(unschedulable=given["cordoned"]),
        status=client.V1NodeStatus(conditions=[ready], allocatable={"nvidia.com/gpu": given["gpus"]}),
    )


def seen(before: client.V1Node, now: client.V1Node, sight: Sight = WATCHED) -> list[Any]:
    return list(changes("n", view_of_node(before), view_of_node(now), sight))


def undated(events: list[Any]) -> list[Any]:
    return [event.model_copy(update={"dated": None}) if hasattr(event, "dated") else event for event in events]


def test_a_heartbeat_is_no_news() -> None:
    assert seen(node(), node(beat=60)) == []


def test_the_first_look_of_the_watch_is_held_against_the_snapshot() -> None:
    before = view_of_snapshot(snapshot(node()))
    assert list(changes("n", before, view_of_node(node()), WATCHED)) == []
    found = changes("n", before, view_of_node(node(status="False")), WATCHED)
    assert [event.kind for event in found] == ["condition_seen"]


def test_a_new_status_and_a_new_reason_are_news() -> None:
    assert undated(seen(node(), node(status="False", reason="Down"))) == [
        ConditionSeen(node="n", condition="Ready", status="False", reason="Down", at=NOW)
    ]
    assert [event.reason for event in seen(node(), node(reason="Other"))] == ["Other"]


def test_a_condition_that_is_gone_has_no_status() -> None:
    bare = node()
    bare.status.conditions = None
    assert undated(seen(node(), bare)) == [ConditionSeen(node="n", condition="Ready", status=None, at=NOW)]


def test_labels_that_come_change_and_go_are_news() -> None:
    found = seen(node(labels={"a": "1", "b": "2"}), node(labels={"a": "9", "c": "3"}))
    assert undated(found) == [
        LabelSeen(node="n", label="a", value="9", at=NOW),
        LabelSeen(node="n", label="b", value=None, at=NOW),
        LabelSeen(node="n", label="c", value="3", at=NOW),
    ]


def test_gpus_and_cordon_are_news() -> None:
    assert undated(seen(node(), node(gpus="7", cordoned=True))) == [
        AllocatableSeen(node="n", gpus=7, before=8, at=NOW),
        CordonSeen(node="n", cordoned=True, at=NOW),
    ]


def stamped(**changes: Any) -> client.V1Node:
    """Return a node that was changed at STAMP, by its own time stamps."""
    changed = node(**changes)
    changed.status.conditions[0].last_transition_time = STAMP
    fields = {"f:metadata": {"f:labels": {"f:b": {}}}, "f:spec": {"f:unschedulable": {}}}
    changed.metadata.managed_fields = [client.V1ManagedFieldsEntry(manager="m", time=STAMP, fields_v1=fields)]
    return changed


def test_what_a_watch_shows_late_has_its_own_time_to_the_second() -> None:
    now = stamped(status="False", labels={"a": "1", "b": "2"}, cordoned=True)
    found = seen(node(), now, Sight(NOW, NOW - timedelta(seconds=20)))
    assert {event.kind: event.at for event in found} == dict.fromkeys(
        ("condition_seen", "label_seen", "cordon_seen"), STAMP + timedelta(seconds=1)
    )
    assert {(event.dated.earliest, event.dated.seen_at) for event in found} == {(STAMP, NOW)}


def test_an_own_time_that_the_watch_refutes_is_not_when_it_came() -> None:
    (found,) = seen(node(), stamped(status="False"))
    assert (found.at, found.dated.behind_s) == (NOW, 8.0)


def test_a_new_reason_is_no_transition_and_has_no_own_time() -> None:
    (found,) = seen(node(), stamped(reason="Other"))
    assert (found.at, found.dated.own) == (NOW, None)


def event(uid: str = "u", count: int | None = 1, **fields: Any) -> Any:
    given: dict[str, Any] = {"series": None, "last_timestamp": NOW, "event_time": None, "first_timestamp": None}
    given |= {"reason": "R", "type": "Warning", "message": "m", "source": SimpleNamespace(component="c")}
    given |= {"reporting_component": None, "count": count} | fields
    return SimpleNamespace(metadata=SimpleNamespace(uid=uid, creation_timestamp=NOW), **given)


def test_an_event_is_news_once_and_again_when_it_counts_up() -> None:
    events = NodeEvents("n")
    first = events.new_event(event(), SEEN_AT)
    assert first is not None
    assert (first.reason, first.source, first.count, first.dated and first.dated.own) == ("R", "c", 1, NOW)
    assert events.new_event(event(), SEEN_AT) is None
    again = events.new_event(event(count=2), SEEN_AT)
    assert again is not None and again.count == 2


def test_an_event_that_was_there_before_is_no_news() -> None:
    events = NodeEvents("n")
    events.remember(event())
    assert events.new_event(event(), SEEN_AT) is None


def test_an_event_of_the_newer_api_is_dated_by_its_series() -> None:
    later = NOW + timedelta(minutes=1)
    series = SimpleNamespace(count=4, last_observed_time=later)
    found = NodeEvents("n").new_event(event(count=None, series=series, last_timestamp=None), SEEN_AT)
    assert found is not None
    assert (found.count, found.dated and found.dated.own) == (4, later)


def test_an_event_without_any_stamp_is_dated_by_its_creation() -> None:
    found = NodeEvents("n").new_event(event(last_timestamp=None), SEEN_AT)
    assert found is not None and found.dated and found.dated.own == NOW


def test_an_event_of_whole_seconds_came_within_its_second_and_not_after_it_was_seen() -> None:
    exact, soon = NOW + timedelta(milliseconds=300), NOW + timedelta(milliseconds=400)
    whole, at_once, micro = (
        NodeEvents("n").new_event(event(last_timestamp=at), seen_at)
        for at, seen_at in ((NOW, SEEN_AT), (NOW, soon), (exact, SEEN_AT))
    )
    assert whole and at_once and micro
    assert (whole.at, at_once.at, micro.at) == (NOW + timedelta(seconds=1), soon, exact)

"""Events of other packages, and of packages that are not installed here: kept as the history has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday import plugins
from gameday.history.events import RECORD, EventModel, RunEnded
from gameday.history.journal import History, HistoryTail, Journal, read_history
from gameday.history.other_events import UnknownEvent, found_events
from gameday.plugins import Group
from gameday.values.results import Cleanliness
from gameday_control_plane.events import ApiCanarySampled, FlowControlRead, FlowControlSet, SeatsRead

TEXT = st.text(max_size=20)
COUNTS = st.integers(0, 2**53)
OURS = st.one_of(
    st.builds(SeatsRead, phase=st.sampled_from(("before", "after")), seats=st.dictionaries(TEXT, COUNTS, max_size=3)),
    st.builds(FlowControlRead, changes=st.lists(TEXT, max_size=3).map(tuple)),
    st.builds(FlowControlSet, name=TEXT, seats=COUNTS, shares=COUNTS, spare_shares=COUNTS, total_seats=COUNTS),
    st.builds(ApiCanarySampled, node=TEXT, samples=st.just(())),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
NAMES = TEXT | st.sampled_from(("node", "model_config", "model_fields", "__class__", "self", "at"))
NOBODYS = st.builds(
    lambda kind, rest: UnknownEvent.model_validate({**rest, "kind": f"acme_{kind}"}),
    TEXT,
    st.dictionaries(NAMES, JSON, max_size=4),
)


@pytest.fixture
def core_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A reader who has installed none of our packages."""
    monkeypatch.setattr(plugins, "_installed", lambda: dict.fromkeys(Group, ()))
    found_events.cache_clear()
    yield
    found_events.cache_clear()


def written(path: Path, *events: EventModel) -> bytes:
    journal = Journal(path)
    for event in events:
        journal.append(event)
    journal.close()
    return path.read_bytes()


def lines_of(history: History) -> bytes:
    return b"".join(RECORD.dump_json(record) + b"\n" for record in history.records)


@given(events=st.lists(OURS | NOBODYS, max_size=4))
def test_an_event_that_is_none_of_the_cores_is_read_as_it_was_written(events: list[EventModel]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        stored = written(path, *events)
        history = read_history(path)
        tail = HistoryTail(path).added()
    assert [record.event for record in history.records] == events
    assert (lines_of(history), history.damaged, tail) == (stored, 0, list(history.records))


def test_without_its_package_an_event_keeps_what_it_says(tmp_path: Path, core_alone: None) -> None:
    path = tmp_path / "history.jsonl"
    events = (SeatsRead(phase="before", seats={"a": 2}), RunEnded(cleanliness=Cleanliness.CLEAN))
    stored = written(path, *events, SeatsRead(phase="after", seats={}))
    history = read_history(path)
    assert (lines_of(history), history.damaged) == (stored, 0)
    assert history.unknown_kinds == ("seats_read",)
    assert len(history.of(UnknownEvent)) == 2
    assert history.of(RunEnded) == [events[1]]


@pytest.mark.parametrize(
    "event",
    [{}, None, [], "seats_read", {"kind": None}, {"kind": ["x"]}, {"kind": "run_ended", "cleanliness": "spotless"},
     {"kind": "seats_read", "phase": "never", "seats": {}}],
)  # fmt: skip
def test_what_is_no_event_is_a_damaged_line(event: Any, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    record = json.loads(written(path, RunEnded(cleanliness=Cleanliness.CLEAN)))
    path.write_text("".join(json.dumps(one) + "\n" for one in (record, record | {"event": event}, {"event": event})))
    history = read_history(path)
    assert (len(history.records), history.damaged, history.unknown_kinds) == (1, 2, ())
    assert len(HistoryTail(path).added()) == 1

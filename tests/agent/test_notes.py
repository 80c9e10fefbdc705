"""Notes in an agent's log: found by their shape, whatever else the pod printed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.agent.task import GpuUserNote, InjectedNote, PriorNote, notes_in
from gameday.host.base import GpuUser

PRIOR = PriorNote(undo_state={"gpu-0": "persistence on"})
INJECTED = InjectedNote(written_at=datetime(2026, 1, 2, tzinfo=UTC), evidence=("wrote",), undo_state={"gpu-0": "x"})


def test_notes_of_one_shape_are_found_in_order_between_other_lines() -> None:
    lines = ["starting", PRIOR.model_dump_json(), "", "{", INJECTED.model_dump_json(), PRIOR.model_dump_json()]
    assert notes_in("\n".join(lines), PriorNote) == [PRIOR, PRIOR]
    assert notes_in("\n".join(lines), InjectedNote) == [INJECTED]
    assert notes_in("", PriorNote) == []


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c"])
def test_a_process_cannot_hide_its_note_by_a_line_separator_in_its_name(separator: str) -> None:
    user = GpuUser(pid=7, command=f"nv{separator}idia", pod="uid")
    log = GpuUserNote(user=user).model_dump_json() + "\n"
    assert [note.user for note in notes_in(log, GpuUserNote)] == [user]


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    assert PRIOR in notes_in(f"{text}\n{PRIOR.model_dump_json()}\n{text}", PriorNote)

"""Reasons why a guest's silence about a target proves nothing: its program was down, died or was cut off."""

from __future__ import annotations

from datetime import timedelta

from gameday.checks.facts import first_fault
from gameday.history.events import GuestNamed, GuestState, StepEnded
from gameday.history.journal import History
from gameday.values.results import Step

_LOOKED_EVERY = timedelta(seconds=3)
"""An end is noted at the next look, which comes within this time (observe/guest_watch.py)."""
_FAILURES = ("ended by itself", "flooded", "not answering")


def why_guest_was_blind(history: History, node: str | None, step: Step) -> str:
    """Return why the guest's silence about a target until the end of a step proves nothing.

    Empty if the silence does prove something, if the run has no guest, and if no fault went in.
    """
    named, fault = history.last(GuestNamed), first_fault(history, node)
    if named is None or fault is None:
        return ""
    ends = [record.at for record, ended in history.with_times(StepEnded) if ended.step is step]
    written, end = fault[1].written_at, (ends[-1] if ends else history.records[-1].at) + _LOOKED_EVERY
    own = [state for about in (node, None) for _, state in history.about(GuestState, about)]
    before = [state for state in own if state.at <= written]
    if not before:
        return f"the guest {named.name} was not seen running when the fault went in"
    if before[-1].change != "running":
        return f"the guest {named.name} did not watch when the fault went in: {_words(before[-1])}"
    failed = next((state for state in own if written < state.at <= end and state.change in _FAILURES), None)
    return f"the guest {named.name} did not watch to the end: {_words(failed)}" if failed else ""


def _words(state: GuestState) -> str:
    said = {
        "flooded": "it wrote more than the rehearsal reads, and the rest was thrown away",
        "not answering": "the rehearsal did not answer for it",
    }.get(state.change, f"it was {state.change}" if state.change == "down" else f"it {state.change}")
    return f"{said} ({state.detail})" if state.detail else said

"""Deadlines of alerts and signals: to arrive in time, and to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from gameday.checks.facts import (
    at_most,
    dated_text,
    first_fault,
    judge_absence,
    judge_across_clocks,
    node_return,
    remediation_end,
    repair_stop,
    seconds_text,
    stop_reason,
)
from gameday.checks.guests import why_guest_was_blind
from gameday.checks.verdict import Status, Verdict
from gameday.expect.base import Sighting
from gameday.history.events import Record
from gameday.history.journal import History
from gameday.values.results import Step


@dataclass(frozen=True)
class ClearingWords:
    """The words of a verdict on something that has to go."""

    never_came: str = "it was not seen coming"
    went: str = "went"
    absent: str = "it went"
    begin: str = "remediation had ended"


def as_expected(seen: Sequence[Sighting]) -> list[Sighting]:
    return [one for one in seen if not one.amiss]


def appears_within(
    history: History,
    node: str | None,
    check: str,
    expectation: str,
    within: timedelta,
    sightings: Sequence[Sighting],
    *,
    awaited_by: Step = Step.VERIFY_TAINT,
    absent: str = "it was seen",
    by_detector: bool = True,
) -> Verdict:
    """Judge whether something came as expected within the bound; if not, name what came in its place.

    `absent` completes the sentence of `awaited_by`, the step that would have seen it, if it did not come.
    `by_detector`: the detector causes it, so its absence is unknown if a guest did not watch.
    """
    fault = first_fault(history, node)
    seen, instead = as_expected(sightings), [one for one in sightings if one.amiss]
    status, why, seconds = Status.UNKNOWN, "", None
    if fault is None:
        why = f"not reached: {stop_reason(history)}"
    elif seen:
        status, seconds, why = judge_across_clocks(history, fault[1].written_at, seen[0].at, within, seen[0].dated)
    elif instead:
        status, why = Status.BROKEN, instead[0].amiss
    else:
        status, why = judge_absence(history, awaited_by, absent)
        if by_detector and (blind := why_guest_was_blind(history, node, awaited_by)):
            status, why = Status.UNKNOWN, blind
    records = [*(one.record for one in (*seen, *instead)[:1]), *([fault[0]] if fault else [])]
    dated = dated_text(seen[0].dated, fault[1].written_at) if fault and seen else ""
    return _verdict(node, check, expectation, within, awaited_by, status, seconds, why, records, dated)


def clears_within(
    history: History,
    node: str | None,
    check: str,
    expectation: str,
    within: timedelta,
    came: Sequence[Sighting],
    gone: Sequence[Sighting],
) -> Verdict:
    """Judge whether it went for good within the bound after the remediation; an end does not count if it came back."""
    ended = next((one for one in gone if came and one.at >= came[-1].at), None)
    verdict = ends_within(history, node, check, expectation, within, ended, came=bool(came))
    if came and not ended and (blind := why_guest_was_blind(history, node, Step.RECOVER)):
        return verdict.model_copy(update={"status": Status.UNKNOWN, "why": blind})
    return verdict


def ends_within(
    history: History,
    node: str | None,
    check: str,
    expectation: str,
    within: timedelta,
    ended: Sighting | None,
    *,
    came: bool,
    still: str = "",
    words: ClearingWords = ClearingWords(),
    until: Step = Step.RECOVER,
) -> Verdict:
    """Judge whether something that came ended within the bound after the remediation.

    `still` names the parts that did not end. `until` is the step that waited for the end; if that is QA, the bound
    counts from the node's return to service.
    """
    start = node_return(history, node) if until is Step.QA_NODE else remediation_end(history, node)
    status, why, seconds, dated = Status.UNKNOWN, "", None, ""
    if not came:
        why = f"not reached: {words.never_came}"
    elif start is None:
        why = f"not reached: {stop_reason(history)}"
    elif stop := repair_stop(history, node):
        why = f"not reached: {stop}"
    elif ended and not still:
        status, seconds, why = judge_across_clocks(history, start.at, max(ended.at, start.at), within, ended.dated)
        if ended.at < start.at:
            why = f"{words.went} before {words.begin}"
        else:
            dated = dated_text(ended.dated, start.at)
    else:
        status, why = judge_absence(history, until, words.absent)
        why = f"{still}: {why}" if still else why
    records = [*([ended.record] if ended else []), *([start] if start else [])]
    return _verdict(node, check, expectation, within, until, status, seconds, why, records, dated)


def _verdict(
    node: str | None,
    check: str,
    expectation: str,
    within: timedelta,
    step: Step,
    status: Status,
    seconds: float | None,
    why: str,
    records: Sequence[Record],
    dated: str,
) -> Verdict:
    return Verdict(
        check=check,
        expectation=expectation,
        bound=at_most(within),
        within_s=within.total_seconds(),
        measured="" if seconds is None else seconds_text(seconds),
        dated=dated,
        status=status,
        step=step,
        why=why,
        seconds=seconds,
        evidence=tuple(record.seq for record in records),
        node=node,
    )

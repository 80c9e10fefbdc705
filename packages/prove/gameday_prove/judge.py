"""Judge a proof's history: one verdict for each detector and line. Pure; the same history gives the same verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gameday.checks.outcome import RunOutcome
from gameday.detectors.models import DetectorProfile
from gameday.exit_codes import ExitCode
from gameday.expect.base import Signal
from gameday.expect.conditions import ExpectedCondition
from gameday.expect.cordoned import ExpectedCordon
from gameday.expect.events import ExpectedEvent
from gameday.expect.taints import ExpectedTaint
from gameday.history.events import (
    AllocatableSeen,
    ConditionSeen,
    CordonSeen,
    KubernetesEventSeen,
    SignalUnwatched,
    TaintSeen,
)
from gameday.history.journal import History
from gameday.values.dated import CLOCK_TOLERANCE_S
from gameday.values.results import Cleanliness
from gameday_prove.events import ProveAlertSeen, ProveEnded, ProveLinePlayed, ProveLooked
from gameday_prove.lines import answer, signals
from gameday_prove.promql import Selector, selectors
from gameday_prove.values import Installed, Line, LoadedRule, Posture, Surroundings

ALERTS = "alerts"
"""The name under which the alerting rules have their rows."""
REPAIR = "repair"
"""The name under which the node's return has its row."""
_LIFECYCLE = "node.kubernetes.io/"
_CORDON_TAINT = "node.kubernetes.io/unschedulable"


class Word(StrEnum):
    """The verdict on one detector and one line."""

    NOTICED = "noticed"
    LATE = "late"
    MISSED = "missed"
    WRONGLY_ACTED = "wrongly acted"
    BLIND = "blind"
    NOT_JUDGED = "not judged"


_RED = (Word.LATE, Word.MISSED, Word.WRONGLY_ACTED)


@dataclass(frozen=True)
class ProofVerdict:
    """A verdict."""

    who: str
    line: int
    word: Word
    why: str
    """The signs and their times, or the reason."""
    seconds: float | None = None
    """Seconds from the line to the first sign."""
    expected_blind: bool = False
    """It cannot see such a line by its own design."""

    @property
    def is_red(self) -> bool:
        """True if the cluster is not as its owner believes."""
        return self.word in _RED or (self.word is Word.BLIND and not self.expected_blind)


@dataclass(frozen=True)
class Proof:
    """A judged proof."""

    looked: ProveLooked | None
    verdicts: tuple[ProofVerdict, ...]
    outcome: RunOutcome
    exit_code: ExitCode
    headline: str

    def of_line(self, number: int) -> list[ProofVerdict]:
        """Return the verdicts on one line."""
        return [one for one in self.verdicts if one.line == number]


@dataclass(frozen=True)
class _Window:
    """The time that belongs to a line."""

    line: Line
    played: ProveLinePlayed
    ends: datetime | None
    """The next line's time; None for the last one."""

    def holds(self, at: datetime) -> bool:
        early = self.played.at - timedelta(seconds=CLOCK_TOLERANCE_S)
        return early <= at and (self.ends is None or at < self.ends - timedelta(seconds=CLOCK_TOLERANCE_S))

    def after_s(self, at: datetime) -> float:
        return max(0.0, (at - self.played.at).total_seconds())


def judge(history: History, profiles: Mapping[str, DetectorProfile]) -> Proof:
    """Return the verdicts.

    Args:
        history: The proof's.
        profiles: The detector profiles by name.
    """
    looked, ended = history.first(ProveLooked), history.last(ProveEnded)
    verdicts = tuple(_verdicts(history, looked, profiles)) if looked else ()
    return _folded(looked, ended, verdicts)


def _verdicts(history: History, looked: ProveLooked, profiles: Mapping[str, DetectorProfile]) -> Iterator[ProofVerdict]:
    around, windows = looked.surroundings, _windows(history, looked)
    installed = [(one, profiles[one.detector]) for one in around.detectors if one.detector in profiles]
    for line in looked.lines:
        window = windows.get(line.number)
        for one, profile in installed:
            if window is None:
                why = "the line was not played: the proof had ended, or the node had left service"
                yield ProofVerdict(one.detector, line.number, Word.NOT_JUDGED, why)
            elif window.played.missing:
                why = "the node's kernel log did not show the line when it was read back"
                yield ProofVerdict(one.detector, line.number, Word.NOT_JUDGED, why)
            else:
                yield _of_detector(history, window, around.node, profile, one)
        if window:
            yield from _wrongly(history, window, around.node, [profile for _, profile in installed])
            yield from _others(history, window, around.node, [profile for _, profile in installed])
            yield from _of_alerts(history, window, around, [profile for _, profile in installed])
    if looked.posture is Posture.REPAIR and windows:
        yield _of_repair(history, windows[max(windows)], around.node)


def _windows(history: History, looked: ProveLooked) -> dict[int, _Window]:
    played = history.of(ProveLinePlayed)
    ends = [*(one.at for one in played[1:]), None][: len(played)]
    lines = {line.number: line for line in looked.lines}
    return {one.line: _Window(lines[one.line], one, end) for one, end in zip(played, ends, strict=True)}


def _of_detector(
    history: History, window: _Window, node: str, profile: DetectorProfile, installed: Installed
) -> ProofVerdict:
    number, rule = window.line.number, answer(profile, window.line.xid)
    wanted = signals(profile, window.line.xid)
    if rule is None:
        return ProofVerdict(profile.name, number, Word.NOT_JUDGED, "its profile says nothing about this line")
    if rule.cannot_see:
        return ProofVerdict(profile.name, number, Word.BLIND, rule.cannot_see, expected_blind=True)
    if not wanted:
        why = "by its profile it shows nothing of this in the cluster: read its own log or API"
        return ProofVerdict(profile.name, number, Word.NOT_JUDGED, why)
    seen = {signal: at for signal in wanted if (at := _first(history, window, node, signal))}
    absent = [signal for signal in wanted if signal not in seen]
    already = [signal for signal in absent if _stands(history, window, node, signal)]
    said = ", ".join(f"{signal} after {window.after_s(at):.1f} s" for signal, at in seen.items())
    if missing := [signal for signal in absent if signal not in already]:
        return _missing(history, profile, number, missing, said, installed, node)
    if not seen:
        return ProofVerdict(profile.name, number, Word.NOT_JUDGED, f"{already[0]} stood since the line before")
    return _came(profile, window, seen, said)


def _came(profile: DetectorProfile, window: _Window, seen: Mapping[Signal, datetime], said: str) -> ProofVerdict:
    late = [signal for signal, at in seen.items() if window.after_s(at) > signal.within.total_seconds()]
    bounds = ", ".join(f"{one} within {one.within.total_seconds():g} s" for one in late)
    word, why = (Word.LATE, f"{said}; wanted {bounds}") if late else (Word.NOTICED, said)
    return ProofVerdict(profile.name, window.line.number, word, why, window.after_s(min(seen.values())))


def _missing(
    history: History,
    profile: DetectorProfile,
    number: int,
    missing: Sequence[Signal],
    said: str,
    installed: Installed,
    node: str,
) -> ProofVerdict:
    unwatched = {one.signal for one in history.of(SignalUnwatched) if one.node == node}
    if all(signal.watch in unwatched for signal in missing):
        return ProofVerdict(profile.name, number, Word.NOT_JUDGED, "this account may not watch the Events of nodes")
    names = ", ".join(str(signal) for signal in missing)
    if said:
        return ProofVerdict(profile.name, number, Word.MISSED, f"no {names}; it did show {said}")
    if installed.blind:
        return ProofVerdict(profile.name, number, Word.BLIND, f"because {'; '.join(installed.blind)}")
    state = "is it there at all" if installed.named else "its pods are ready: is it frozen"
    why = f"no {names}; {state}, can it read the kernel log, does one of its rules fit the line?"
    return ProofVerdict(profile.name, number, Word.MISSED, why)


def _first(history: History, window: _Window, node: str, signal: Signal) -> datetime | None:
    """Return when the signal first came in the line's time."""
    found = [
        event.at
        for _, event in history.about(signal.event, node)
        if window.holds(event.at) and signal.amiss(event) == ""
    ]
    return min(found, default=None)


def _stands(history: History, window: _Window, node: str, signal: Signal) -> bool:
    """Return True if the signal came before the line, and has not gone since; an Event is never there already."""
    if signal.watch == "events":
        return False
    state = False
    for _, event in history.about(signal.event, node):
        if event.at < window.played.at and not window.holds(event.at):
            state = signal.amiss(event) == "" or (state and not _ends(signal, event))
    return state


def _ends(signal: Signal, event: object) -> bool:
    return signal.is_end(event) or (isinstance(event, TaintSeen) and not event.present)


def _wrongly(
    history: History, window: _Window, node: str, profiles: Sequence[DetectorProfile]
) -> Iterator[ProofVerdict]:
    """Yield what took the node out of service in the line's time, although no detector should for this line."""
    if any(rule.quarantines for one in profiles if (rule := answer(one, window.line.xid))):
        return
    for _, taint in history.about(TaintSeen, node):
        if taint.present and window.holds(taint.at) and taint.taint.key != _CORDON_TAINT:
            who = next((one.name for one in profiles if _sets(one, taint.taint.key)), "")
            yield _wrong(window, who, f"put the taint {taint.taint} on the node", taint.manager, taint.at)
    for _, cordon in history.about(CordonSeen, node):
        if cordon.cordoned and window.holds(cordon.at):
            who = next((one.name for one in profiles if any(rule.cordoned for rule in one.rules)), "")
            yield _wrong(window, who, "cordoned the node", cordon.manager, cordon.at)
    for _, fewer in history.about(AllocatableSeen, node):
        if window.holds(fewer.at) and (fewer.gpus or 0) < (fewer.before or 0):
            yield _wrong(window, "", f"offers {fewer.gpus} GPUs in place of {fewer.before}", "the kubelet", fewer.at)


def _sets(profile: DetectorProfile, key: str) -> bool:
    return any(taint.key == key for rule in profile.rules for taint in rule.taints)


def _wrong(window: _Window, who: str, what: str, manager: str | None, at: datetime) -> ProofVerdict:
    seconds = window.after_s(at)
    by = f" (written by {manager})" if manager else ""
    name = who or manager or "somebody"
    return ProofVerdict(name, window.line.number, Word.WRONGLY_ACTED, f"{what} after {seconds:.1f} s{by}", seconds)


def _others(
    history: History, window: _Window, node: str, profiles: Sequence[DetectorProfile]
) -> Iterator[ProofVerdict]:
    """Yield the Events and conditions that no profile of an installed detector foresees."""
    foreseen = [signal for one in profiles for signal in signals(one, window.line.xid)]
    found: dict[tuple[str, str], float] = {}
    for _, event in history.about(KubernetesEventSeen, node):
        if window.holds(event.at) and not any(
            isinstance(one, ExpectedEvent) and one.amiss(event) == "" for one in foreseen
        ):
            found.setdefault((event.source or "somebody", f"Event {event.reason}"), window.after_s(event.at))
    for _, seen in history.about(ConditionSeen, node):
        known = any(isinstance(one, ExpectedCondition) and one.type == seen.condition for one in foreseen)
        if window.holds(seen.at) and seen.status == "True" and seen.condition != "Ready" and not known:
            found.setdefault(("somebody", f"condition {seen.condition}"), window.after_s(seen.at))
    by_whom: dict[str, list[str]] = {}
    for (who, what), seconds in found.items():
        by_whom.setdefault(who, []).append(f"{what} after {seconds:.1f} s")
    for who, said in by_whom.items():
        why = f"{', '.join(said)}: no profile here foresees it"
        yield ProofVerdict(who, window.line.number, Word.NOT_JUDGED, why)


def _of_repair(history: History, window: _Window, node: str) -> ProofVerdict:
    """Return the verdict on the node's return, counted from the last line that was played."""
    marks: dict[str, datetime] = {}
    back: datetime | None = None
    for record in history.records:
        match record.event:
            case TaintSeen(node=found) as seen if found == node and not seen.taint.key.startswith(_LIFECYCLE):
                key, is_there = str(seen.taint), seen.present
            case CordonSeen(node=found) as seen if found == node:
                key, is_there = "the cordon", seen.cordoned
            case _:
                continue
        marks = marks | {key: seen.at} if is_there else {one: at for one, at in marks.items() if one != key}
        back = None if marks else seen.at
    if marks:
        why = f"the node is still out of service: {', '.join(marks)}"
        return ProofVerdict(REPAIR, window.line.number, Word.MISSED, why)
    if back is None:
        return ProofVerdict(REPAIR, window.line.number, Word.NOT_JUDGED, "the node never left service")
    seconds = window.after_s(back)
    why = f"the node is back in service after {seconds:.1f} s"
    return ProofVerdict(REPAIR, window.line.number, Word.NOTICED, why, seconds)


def readers(rules: Sequence[LoadedRule], profiles: Sequence[DetectorProfile], xid: int) -> list[LoadedRule]:
    """Return the loaded rules that read something that a detector shows after such a line."""
    shown = [signal for one in profiles for signal in signals(one, xid)]
    ours = any(one.name == "gameday" for one in profiles if signals(one, xid))
    return [rule for rule in rules if _reads(rule, shown) or (ours and "gameday_health" in rule.query)]


def _reads(rule: LoadedRule, shown: Sequence[Signal]) -> bool:
    return any(_is_read_by(signal, selector) for selector in selectors(rule.query) for signal in shown)


def _is_read_by(signal: Signal, selector: Selector) -> bool:
    """Return True if it accepts series with the signal, of kube-state-metrics or node-problem-detector."""
    match signal, selector.metric:
        case ExpectedCondition(), "kube_node_status_condition":
            return selector.accepts("condition", signal.type) and selector.accepts("status", signal.status.lower())
        case ExpectedCondition(), "problem_gauge":
            return selector.accepts("type", signal.type)
        case ExpectedTaint(), "kube_node_spec_taint":
            return selector.accepts("key", signal.key)
        case ExpectedCordon(), "kube_node_spec_unschedulable":
            return True
    return False


def _of_alerts(
    history: History, window: _Window, around: Surroundings, profiles: Sequence[DetectorProfile]
) -> Iterator[ProofVerdict]:
    """Yield the verdict on the alerting rules, for a line that somebody should be told of."""
    if around.prometheus is None:
        return
    shown = [signal for one in profiles for signal in signals(one, window.line.xid)]
    if not any(signal.check in ("condition-set", "taint-set", "cordoned") for signal in shown):
        return
    number, read = window.line.number, readers(around.prometheus.rules, profiles, window.line.xid)
    fired = [one for one in history.of(ProveAlertSeen) if window.holds(one.at) and one.state == "firing"]
    if fired:
        first = min(fired, key=lambda one: one.at)
        seconds = window.after_s(first.at)
        why = f"{first.alert} fires after {seconds:.1f} s"
        yield ProofVerdict(ALERTS, number, Word.NOTICED, why, seconds)
    elif not read:
        names = ", ".join(dict.fromkeys(str(signal) for signal in shown))
        why = f"because none of {around.prometheus.all_rules} loaded rules reads {names}"
        yield ProofVerdict(ALERTS, number, Word.BLIND, why)
    elif all(rule.never for rule in read):
        why = "; ".join(f"{rule.name} never can: {rule.never}" for rule in read)
        yield ProofVerdict(ALERTS, number, Word.BLIND, f"because {why}")
    elif not any(_first(history, window, around.node, one) for one in shown if one.watch == "nodes"):
        why = f"{', '.join(rule.name for rule in read)} read what no detector showed"
        yield ProofVerdict(ALERTS, number, Word.NOT_JUDGED, why)
    else:
        pending = [one.alert for one in history.of(ProveAlertSeen) if window.holds(one.at)]
        waits = f"; pending: {', '.join(pending)}" if pending else ""
        names = ", ".join(f"{rule.name} (for: {rule.hold_s:g}s)" for rule in read if not rule.never)
        yield ProofVerdict(ALERTS, number, Word.MISSED, f"not fired in the time that was watched: {names}{waits}")


def _folded(looked: ProveLooked | None, ended: ProveEnded | None, verdicts: tuple[ProofVerdict, ...]) -> Proof:
    """Return the outcome, by the precedence of every run: dirty, aborted, failed, unknown, passed."""
    red = [one for one in verdicts if one.is_red]
    noticed = any(one.word is Word.NOTICED for one in verdicts)
    outcome, headline = RunOutcome.PASSED, "What is installed here noticed what it should, and acted on nothing else."
    if ended is None or ended.stopped:
        outcome = RunOutcome.ABORTED
        headline = f"Ended early: {ended.stopped if ended else 'its process died'}."
    elif red:
        outcome = RunOutcome.FAILED
        headline = "; ".join(dict.fromkeys(f"{one.who}: {one.word}" for one in red)) + "."
    elif not noticed and verdicts and all(one.word is Word.BLIND for one in verdicts):
        outcome, headline = RunOutcome.FAILED, "Nothing that is installed here can see such a line."
    elif not noticed:
        outcome, headline = RunOutcome.UNKNOWN, "Nothing could be judged."
    code = {
        RunOutcome.PASSED: ExitCode.PASSED,
        RunOutcome.FAILED: ExitCode.FAILED,
        RunOutcome.ABORTED: ExitCode.ABORTED,
        RunOutcome.UNKNOWN: ExitCode.UNKNOWN,
    }[outcome]
    if ended and ended.cleanliness is not Cleanliness.CLEAN:
        code = ExitCode.DIRTY if ended.cleanliness is Cleanliness.DIRTY else ExitCode.UNKNOWN
    return Proof(looked, verdicts, outcome, code, headline)

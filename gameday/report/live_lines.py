"""A run's events as lines for people who watch it, in the order of cause and effect.

The terminal (gameday/cli/live.py) and the flow run's log in Prefect (flows/live_log.py) show them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from gameday.history.events import (
    Aborted,
    AlertSeen,
    AllocatableSeen,
    ConditionSeen,
    CordonSeen,
    Event,
    FaultInjected,
    FaultUndone,
    NodeReplaced,
    NodeReturned,
    Problem,
    Record,
    RecoveryDisturbed,
    Refused,
    Remediated,
    RepairHopSeen,
    SteadyStateChecked,
    StepEnded,
    StepStarted,
    TaintSeen,
    TargetsChosen,
    WaitStarted,
)
from gameday.text import printable
from gameday.values.results import Step, StepOutcome


class Tone(StrEnum):
    """The meaning of a line; the terminal gives it a colour, a log its level."""

    PLAIN = "plain"
    STRONG = "strong"
    GOOD = "good"
    DOUBT = "doubt"
    BAD = "bad"
    FAINT = "faint"


TONES = {
    StepOutcome.DONE: Tone.GOOD,
    StepOutcome.BROKEN: Tone.BAD,
    StepOutcome.UNKNOWN: Tone.DOUBT,
    StepOutcome.ABORTED: Tone.DOUBT,
    StepOutcome.NOT_REACHED: Tone.FAINT,
    StepOutcome.NOT_ASKED: Tone.FAINT,
}


class Words(NamedTuple):
    """An event as printable text."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class LiveLine:
    """A line, and when it happened."""

    offset_s: float
    """Seconds since the history's first record."""
    words: Words

    @property
    def stamp(self) -> str:
        """The offset, in a column of its own."""
        return f"{self.offset_s:6.1f} s  "


class LiveLines:
    """Turns records into lines, one by one.

    The agent reports a fault only after it is in, so that a quick detector's taint is on record earlier. Signals of a
    node are therefore held back until the fault is in there, or its step has ended.
    """

    def __init__(self) -> None:
        self._begun: datetime | None = None
        self._inject_begun: datetime | None = None
        self._ended: set[Step] = set()
        self._effects: list[Record] = []

    def added(self, record: Record) -> Iterator[LiveLine]:
        """Yield the lines that can be shown after this record."""
        self._begun = self._begun or record.at
        match record.event:
            case StepStarted(step=Step.INJECT):
                self._inject_begun = record.at
            case AlertSeen() | TaintSeen() | ConditionSeen() | CordonSeen() | AllocatableSeen() if self._is_injecting:
                self._effects.append(record)
                return
            case StepEnded(step=step):
                self._ended.add(step)
                yield from self.rest()
        yield from self._lines([record])
        if isinstance(record.event, FaultInjected):
            node = record.event.target.node
            yield from self._lines([one for one in self._effects if _node(one) in (node, "")])
            self._effects = [one for one in self._effects if _node(one) not in (node, "")]

    def rest(self) -> Iterator[LiveLine]:
        """Yield the lines that were held back: no fault will come to explain them."""
        held, self._effects = self._effects, []
        yield from self._lines(held)

    @property
    def _is_injecting(self) -> bool:
        return self._inject_begun is not None and Step.INJECT not in self._ended

    def _lines(self, records: list[Record]) -> Iterator[LiveLine]:
        for record in records:
            words = words_of(record.event)
            if isinstance(record.event, WaitStarted) and record.event.step in self._ended:
                # Nobody else says why a stopped run does not end.
                words = Words(printable(f"waits for {record.event.what}"), Tone.DOUBT)
            if words:
                yield LiveLine(self._offset_s(record), words)

    def _offset_s(self, record: Record) -> float:
        at, event = record.at, record.event
        if isinstance(event, FaultInjected):
            at = min(at, max(self._inject_begun or at, event.written_at))  # the node's clock may be wrong
        return (at - (self._begun or at)).total_seconds()


def _node(record: Record) -> str:
    return getattr(record.event, "node", None) or ""


def words_of(event: Event) -> Words | None:  # noqa: C901, PLR0911, PLR0912 - one line per kind of event, flat
    """Return an event's text, or None if it deserves no line."""
    match event:
        case TargetsChosen(targets=targets, domain=domain, virtual=virtual):
            of = " (virtual GPUs)" if virtual else ""
            of += f" ({len(targets)} of the {domain.nodes} GPU nodes of {domain})" if domain else ""
            return Words("target " + ", ".join(map(str, targets)) + of)
        case SteadyStateChecked(seconds=float() as seconds, node=node):
            return Words(f"log path of {node} alive, {seconds:.1f} s from kernel log to log store")
        case FaultInjected(fault=fault, target=target, layer=layer):
            return Words(f"fault {fault} went in on {target}, layer {layer}", Tone.STRONG)
        case RecoveryDisturbed(fault=fault, target=target, written_at=datetime()):
            return Words(f"fault {fault} went in on {target.node} while it was repaired", Tone.STRONG)
        case AlertSeen(state="firing", receivers=(_, *_)):
            return None  # printed before; noted again when Alertmanager named the receivers
        case AlertSeen(alert=alert, state=state, node=node, expected=expected, at_baseline=False):
            return Words(
                f"alert {alert} {state}" + (f" for {node}" if node else "") + ("" if expected else ", not expected")
            )
        case TaintSeen(node=node, taint=taint, present=present, manager=manager):
            return Words(
                f"taint {taint} {'on' if present else 'gone from'} {node}"
                + (f", by {manager}" if manager and present else "")
            )
        case ConditionSeen(node=node, condition=condition, status=status, reason=reason):
            why = f" ({printable(reason)})" if reason else ""
            return Words(f"condition {printable(condition)} of {node} is {status or 'gone'}{why}")
        case AllocatableSeen(node=node, gpus=gpus, before=before):
            return Words(f"{node} offers {gpus or 0} GPUs, and had {before or 0}")
        case CordonSeen(node=node, cordoned=cordoned):
            return Words(f"{node} {'cordoned' if cordoned else 'uncordoned'}")
        case Remediated(node=node, action=action, ok=ok, seconds=seconds):
            return Words(f"{action} of {node} {'done' if ok else 'failed'} after {seconds:.1f} s")
        case RepairHopSeen(hop=hop, node=node, by=by, took_s=took_s, since=since, repair=repair):
            kind = f" by {repair}" if repair else ""
            return Words(f"{node}: {hop}{kind}, by {printable(by)}, {took_s:.1f} s after {since}", Tone.STRONG)
        case NodeReplaced(node=node, successor=successor):
            return Words(f"{successor} takes the place of {node}", Tone.STRONG)
        case NodeReturned(node=node):
            return Words(f"{node} passed QA and is back in service", Tone.STRONG)
        case FaultUndone(cleanliness=cleanliness, intent=intent) if cleanliness != "clean":
            return Words(f"{intent}: {cleanliness}", Tone.BAD)
        case Problem(what=what, hint=hint):
            return Words(printable(what + (f" ({hint})" if hint else "")), Tone.DOUBT)
        case Refused(why=why, hint=hint):
            return Words(printable(f"refused: {why}" + (f"; {hint}" if hint else "")), Tone.BAD)
        case Aborted(by=by, why=why):
            return Words(printable(f"aborted by {by}: {why}; undoing"), Tone.DOUBT)
        case StepEnded(step=step, outcome=outcome, why=why) if outcome is not StepOutcome.NOT_REACHED:
            return Words(f"{step}: {outcome}" + (f": {printable(why)}" if why else ""), TONES[outcome])
    return None

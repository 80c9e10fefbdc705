"""The events that make each sentence of a report's first screen true.

Some truths are the cluster's own and not the history's: whether a fault was in, and is. A sentence that no claim covers
is an error: a new one has to say first what it claims.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gameday.checks.fault_state import TAKES_OUT_FAULT
from gameday.checks.verdict import Status
from gameday.history.events import (
    Aborted,
    AlertSeen,
    FaultInjected,
    FaultUndone,
    IntentRecorded,
    Refused,
    Remediated,
    RunEnded,
    StepEnded,
    StepStarted,
    TaintSeen,
)
from gameday.report.render import render
from gameday.report.run_folder import RunFolder
from gameday.values.results import Cleanliness, Step, StepOutcome
from tests.report.page import NOW, only


@dataclass(frozen=True)
class Looked:
    """A run at the moment at which its first screen was drawn."""

    run: RunFolder
    screen: str
    was_in: bool
    """A fault was in, by the cluster's own word."""
    is_in: bool

    def has(self, kind: type, **values: object) -> bool:
        """Return True if the history has an event of this type with these values."""
        return any(
            all(getattr(one, name) == value for name, value in values.items()) for one in self.run.history.of(kind)
        )

    def count(self, status: Status) -> int:
        """Return how many expectations have this verdict."""
        return sum(verdict.status is status for verdict in self.run.verdicts)

    @property
    def was_sent(self) -> bool:
        """An injector was sent."""
        return self.has(IntentRecorded, undo=TAKES_OUT_FAULT)

    @property
    def is_proved(self) -> bool:
        """Every change was read back as undone."""
        newest = {one.intent: one.cleanliness for one in self.run.history.of(FaultUndone)}
        return all(newest.get(one.intent) is Cleanliness.CLEAN for one in self.run.history.of(IntentRecorded))

    def sentences(self) -> Iterator[str]:
        """Yield what the first screen says, piece by piece."""
        for text in re.findall(r"<(?:p|li|dt|dd|th scope=\"row\")\b[^>]*>(.*?)</(?:p|li|dt|dd|th)>", self.screen, re.S):
            said = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split()).replace(" :", ":")
            # The words of the verdicts, and of doctor, are held by their own tests.
            said = re.sub(r"^(Why, by gameday doctor): .*", r"\1", said)
            said = re.sub(r"(could not be judged|did not hold): .*?(; the cluster is|$)", r"\1\2", said)
            said = re.sub(r",? ((?:before any|while the|after the) fault (?:went|was to go) in)\b", r"; \1", said)
            said = re.sub(r"^(Did the cluster notice\? [^:]+): ", r"\1; ", said)
            yield from (piece for piece in re.split(r"; |\.\s|\.$", said) if piece)


Claim = Callable[[Looked, re.Match[str]], bool]
CLAIMS: dict[str, Claim] = {
    # Outcome and badges
    "Aborted": lambda at, m: at.has(Aborted),
    "Refused": lambda at, m: at.has(Refused) and not at.has(FaultInjected),
    "Passed": lambda at, m: at.count(Status.BROKEN) == at.count(Status.UNKNOWN) == 0 and at.is_proved,
    "Failed": lambda at, m: at.count(Status.BROKEN) > 0,
    "Unknown": lambda at, m: not at.has(Aborted),
    "Still running": lambda at, m: not at.has(RunEnded),
    "Cluster clean": lambda at, m: not at.is_in and at.is_proved,
    "Cluster unknown": lambda at, m: not at.is_proved,
    "Manual by .+|Exit code [0-5]": lambda at, m: True,
    # Why
    "Aborted by (operator|guard): [^;]+": lambda at, m: at.has(Aborted, by=m[1]),
    "before any fault went in": lambda at, m: not at.was_in,
    "while the fault (went|was to go) in": lambda at, m: (
        not at.has(StepEnded, step=Step.INJECT, outcome=StepOutcome.DONE)
        and (m[1] == "was to go" or (at.was_in and at.has(FaultInjected)))
    ),
    "after the fault went in": lambda at, m: at.was_in and at.has(FaultInjected),
    "it is out again": lambda at, m: at.was_in and not at.is_in,
    "if it did, it is out again": lambda at, m: at.was_sent and not at.has(FaultInjected) and not at.is_in,
    "it did not": lambda at, m: at.was_sent and not at.was_in,
    "it is not proved to be out": lambda at, m: not at.is_proved,
    "Refused before anything was broken: .+": lambda at, m: at.has(Refused) and not at.was_in,
    "Refused, and it is not known whether the fault went in: .+": lambda at, m: at.has(Refused) and at.was_sent,
    "Step '(.+)' ended unknown: .+": lambda at, m: (
        at.has(StepEnded, step=m[1], outcome=StepOutcome.UNKNOWN)
    ),
    "The run's history stops before its end: it was killed, it crashed, .+": lambda at, m: not at.has(RunEnded),
    "It is still running: the step '(.+)' began at .+": lambda at, m: at.has(StepStarted, step=m[1]),
    "It is still running( since .+)?: no step has begun": lambda at, m: not at.has(StepStarted),
    r"(\d+) of \d+ expectations could not be judged": lambda at, m: int(m[1]) == at.count(Status.UNKNOWN),
    r"(\d+) of \d+ expectations did not hold": lambda at, m: int(m[1]) == at.count(Status.BROKEN),
    "All .+ held and the cluster was left as it was found": lambda at, m: not at.is_in and at.is_proved,
    "the cluster is unknown: no proof that this was undone: .+": lambda at, m: not at.is_proved,
    r"create (agent|canary) pod .+|and \d more|let the detector quarantine the node": lambda at, m: not at.is_proved,
    "what the run had changed was undone by the reaper at .+": lambda at, m: at.is_proved and not at.is_in,
    # Did the cluster notice?
    r"Did the cluster notice\? Yes": lambda at, m: at.has(AlertSeen, state="firing") and at.has(TaintSeen),
    r"Did the cluster notice\? In part": lambda at, m: at.has(AlertSeen) != at.has(TaintSeen),
    r"Did the cluster notice\? Not known": lambda at, m: not (at.has(AlertSeen) and at.has(TaintSeen) and at.was_in),
    "no fault went in( so far)?": lambda at, m: not at.was_in,
    "it is not known whether the fault went in( so far)?": lambda at, m: at.was_sent and not at.has(FaultInjected),
    r"alert (\S+) fired for \S+": lambda at, m: at.has(AlertSeen, alert=m[1], state="firing"),
    r"(\S+) was tainted with .+": lambda at, m: at.has(TaintSeen, node=m[1], present=True),
    "alert firing [0-9.]+ s after the fault": lambda at, m: at.was_in and at.has(AlertSeen, state="firing"),
    "node tainted [0-9.]+ s after the fault": lambda at, m: at.was_in and at.has(TaintSeen, present=True),
    "alert firing: not seen .+": lambda at, m: not at.has(AlertSeen, state="firing"),
    "node tainted: not seen .+": lambda at, m: not at.has(TaintSeen),
    # What next, figures, lanes
    "Why, by gameday doctor": lambda at, m: at.has(RunEnded) and at.count(Status.BROKEN) + at.count(Status.UNKNOWN) > 0,
    "(To run it again|Once that is mended, run it again): .+": lambda at, m: at.is_proved,
    "To undo what the run may have left, or to prove that nothing is left: .+": lambda at, m: not at.is_proved,
    "To find out what could not be read on this cluster: .+": lambda at, m: at.has(RunEnded),
    r"\d+ held · (\d+) broken · (\d+) unknown.*": lambda at, m: (
        (int(m[1]), int(m[2])) == (at.count(Status.BROKEN), at.count(Status.UNKNOWN))
    ),
    "Time to (alert|taint|recover|QA pass|return)": lambda at, m: True,
    "(fault in|recovery begun|QA begun) → .+|not measured|[0-9.]+ s": lambda at, m: True,
    "seen at [0-9.]+ s.*": lambda at, m: at.has(AlertSeen) or at.has(TaintSeen),
    "Fault xid in .+": lambda at, m: at.was_in and at.has(FaultInjected),
    r"Alert (\S+) .+": lambda at, m: at.has(AlertSeen, alert=m[1]),
    "Taint .+": lambda at, m: at.has(TaintSeen),
    "Repair: .+": lambda at, m: at.has(Remediated),
    "QA and return .+": lambda at, m: at.has(StepStarted, step=Step.QA_NODE),
    "the latest moment that the plan allows": lambda at, m: True,
}  # fmt: skip


def look(folder: Path, *, was_in: bool, is_in: bool) -> Looked:
    """Draw a run's first screen as it is now; the words are of the cluster."""
    with only("verdict"):
        made = render(folder, NOW)
    screen = made.html.read_text().partition('<section id="verdict"')[2].partition("</section>")[0]
    return Looked(made.run, screen, was_in, is_in)


def false_sentences(at: Looked) -> list[str]:
    """Return each sentence that is not true, and each that nothing here can judge."""
    wrong = []
    for said in at.sentences():
        claims = [(claim, found) for pattern, claim in CLAIMS.items() if (found := re.fullmatch(pattern, said))]
        if not claims:
            wrong.append(f"no claim covers: {said}")
        wrong += [f"not true: {said}" for claim, found in claims if not claim(at, found)]
    return wrong

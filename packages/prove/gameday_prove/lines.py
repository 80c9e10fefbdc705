"""Choose the lines to play, and say what each installed detector does about them, by its profile. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from gameday.detectors.facts import facts, rule_for
from gameday.detectors.models import DetectorProfile, Rule
from gameday.detectors.resolve import expectations_of
from gameday.expect.base import Signal
from gameday.faults.xid import XidParameters
from gameday.host.shell_writer import NO_GPU, PCI_PLACE
from gameday.xid.catalogue import xids
from gameday.xid.lines import format_xid
from gameday_prove.values import Line, Posture

_HARMLESS = (43, 31, 13, 45)
"""Xids of an application's own error: the catalogue asks for nothing but to restart it."""
_ANSWERED = (79, 48, 95, 119, 74, 64, 63, 94, 92, 31, 43)
"""Xids of which the detectors' own answer is tried, the one that most of them know first."""
_SERIOUS = (79, 48)
_QUIET_LINES = 2
_FACILITY = "<3>"
"""Severity error, as the driver's; the kernel makes facility user of it, because user space writes it."""


def record_of(line: Line) -> str:
    """Return the record for the kernel log, with a place for the GPU's address."""
    return _FACILITY + format_xid(line.xid, NO_GPU).replace(NO_GPU, PCI_PLACE, 1)


def answer(profile: DetectorProfile, xid: int) -> Rule | None:
    """Return the profile's rule for a line; None if it says nothing of it."""
    return rule_for(profile, XidParameters(xid=xid))


def signals(profile: DetectorProfile, xid: int) -> list[Signal]:
    """Return what the detector shows in the cluster after such a line."""
    fault = XidParameters(xid=xid)
    rule = rule_for(profile, fault)
    found: list[Signal] = []
    for value in (expectations_of(profile, rule, facts(fault)) if rule else {}).values():
        parts = value if isinstance(value, tuple) else (value,)
        found += [one for one in parts if isinstance(one, Signal)]
    return found


def lines_for(posture: Posture, profiles: Sequence[DetectorProfile]) -> list[Line]:
    """Return the lines of a posture for these detectors, in the order of playing; none if every line quarantines."""
    harmless = [xid for xid in _HARMLESS if not _quarantining(profiles, xid)][:_QUIET_LINES]
    chosen = [(xid, "nobody should act on it") for xid in harmless]
    if posture is Posture.QUIET:
        quiet = [xid for xid in _ANSWERED if xid not in harmless and not _quarantining(profiles, xid)]
        answers = {xid: sum(bool(signals(one, xid)) for one in profiles) for xid in quiet}
        if best := max((xid for xid in quiet if answers[xid]), key=lambda xid: answers[xid], default=None):
            chosen.append((best, "the detectors answer it, and leave the node in service"))
    else:
        chosen += [(xid, "the node has to leave service") for xid in _SERIOUS]
    return [Line(number=number, xid=xid, name=xids()[xid].name, why=why) for number, (xid, why) in enumerate(chosen, 1)]


def _quarantining(profiles: Sequence[DetectorProfile], xid: int) -> bool:
    return any(rule.quarantines for one in profiles if (rule := answer(one, xid)))


def foreseen(profile: DetectorProfile, line: Line) -> str:
    """Return what a detector will do about a line, in words."""
    rule = answer(profile, line.xid)
    if rule is None:
        return "its profile does not say"
    if rule.cannot_see:
        return f"sees nothing: {rule.cannot_see}"
    shown = [str(one) for one in signals(profile, line.xid)]
    said = ", ".join(shown) if shown else "nothing that the cluster shows"
    if rule.quarantines and profile.repairs:
        said += f"; then {profile.repairs.by} would repair the node: {_kinds(rule)}"
    return said


def _kinds(rule: Rule) -> str:
    if rule.repaired_by is None:
        return "in its own way"
    return ", ".join(rule.repaired_by) or "it leaves that to a person"


def watch_for(profiles: Sequence[DetectorProfile], line: Line) -> timedelta:
    """Return how long the slowest detector may take, and half of that again, so that a late answer is seen as late."""
    bounds = [within for one in profiles for signal in signals(one, line.xid) if (within := signal.within)]
    quiet = [one.quiet_for for one in profiles]
    return max([*(bound * 1.5 for bound in bounds), *quiet, timedelta(seconds=10)])


def must_go_by_hand(profiles: Sequence[DetectorProfile], lines: Sequence[Line]) -> Iterator[str]:
    """Yield each mark that the lines leave on the node and that its detector never takes back by itself."""
    for profile in profiles:
        rules = [(line.xid, rule) for line in lines if (rule := answer(profile, line.xid))]
        staying = [xid for xid, rule in rules if (rule.quarantines or rule.conditions) and not rule.ends_with]
        marks = dict.fromkeys(str(one) for xid in staying for one in signals(profile, xid) if one.watch != "events")
        yield from (f"{mark} of {profile.name}" for mark in marks)

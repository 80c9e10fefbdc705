"""What a kernel event asks for, by policy. Pure: no clock, no cluster.

`catalogue` (the default) quarantines where NVIDIA asks for a hardware action
(reset, restart of machine or VM, support), and for nothing else: workload
errors (13, 31, 43, 45, 94 …) are the application's, codes that are unused or
not in the catalogue are recorded, an Xid 154 follows the recovery action it
states, and for NVLink5 (144-150) and NVSwitch lines the driver's own word
Fatal or Non-fatal decides before any table.

`konduktor` does what Konduktor's released controller does: every Xid, every
SXid and every peermem line taints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from gameday.xid.catalogue import Action, FatalClass, Remedy, Rule, nvlink5_actions, sxids, xids
from gameday.xid.lines import KernelEvent, Kind, Severity

# Trainy-ai/konduktor konduktor/controller/parse.py: what its Loki query keeps, and all it keeps taints.
_KONDUKTOR = re.compile(r"NVRM: xid|SXid|nvidia-peermem .{0,200}detected invalid context", re.IGNORECASE)

# The recovery actions' numbers (docs/sources.md, DCGM fields): reset, reboot, drain peer-to-peer, drain and reset. What
# is neither reset nor reboot is for support, as NVSentinel has it (docs/sources.md, NVSentinel).
_BY_NUMBER = {1: Remedy.GPU_RESET, 2: Remedy.REBOOT, 3: Remedy.CONTACT_SUPPORT, 4: Remedy.GPU_RESET}
_BY_WORD = {"reboot": Remedy.REBOOT, "reset": Remedy.GPU_RESET}


class Policy(StrEnum):
    CATALOGUE = "catalogue"
    KONDUKTOR = "konduktor"


class Outcome(StrEnum):
    QUARANTINE = "quarantine"
    WORKLOAD = "workload"
    EVENT = "event"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    remedy: Remedy
    """What ends the fault; NONE beside a quarantine: only the taint's removal does."""
    reason: str


def decide(event: KernelEvent, policy: Policy = Policy.CATALOGUE) -> Decision:
    by_catalogue = _by_catalogue(event)
    if policy is Policy.CATALOGUE:
        return by_catalogue
    if not _KONDUKTOR.search(event.line):
        return Decision(Outcome.NOTHING, Remedy.NONE, "Konduktor does not look for this line")
    remedy = by_catalogue.remedy if by_catalogue.outcome is Outcome.QUARANTINE else Remedy.NONE
    return Decision(Outcome.QUARANTINE, remedy, "Konduktor taints on every Xid, SXid and peermem line")


def _by_catalogue(event: KernelEvent) -> Decision:
    if event.kind is Kind.GPU_RESET:
        return Decision(Outcome.NOTHING, Remedy.NONE, "the agent's note of a GPU reset")
    if event.kind is Kind.GPU_LOST:
        return Decision(Outcome.QUARANTINE, Remedy.REBOOT, "GPU has fallen off the bus")
    if event.kind is Kind.PEERMEM:
        return Decision(Outcome.EVENT, Remedy.NONE, "nvidia-peermem found an invalid context")
    if event.code is None:
        return Decision(Outcome.EVENT, Remedy.NONE, f"a line about an {event.kind} without a readable code")
    return _sxid(event, event.code) if event.kind is Kind.SXID else _xid(event, event.code)


def _xid(event: KernelEvent, code: int) -> Decision:
    known = xids().get(code)
    if known is None:
        return Decision(Outcome.EVENT, Remedy.NONE, f"Xid {code} is not in the catalogue")
    if known.rule is Rule.STATED:
        return _stated(event)
    if known.rule is Rule.DECODE:
        return _nvlink5(event, code, known.name)
    if not known.in_use:
        reason = "unused: a stray line proves nothing about the hardware"
    else:
        reason = f"{known.name} (NVIDIA: {known.immediate or 'no action stated'})"
    return Decision(Outcome(known.rule), known.remedy, reason)


def _stated(event: KernelEvent) -> Decision:
    if event.recovery is None or event.recovery_number is None:
        return Decision(Outcome.EVENT, Remedy.NONE, "Xid 154 without a readable recovery action")
    if event.recovery_number == 0:
        return Decision(Outcome.EVENT, Remedy.NONE, "the driver states no recovery action")
    by_word = (remedy for word, remedy in _BY_WORD.items() if word in event.recovery.lower())
    remedy = _BY_NUMBER.get(event.recovery_number) or next(by_word, Remedy.CONTACT_SUPPORT)
    return Decision(Outcome.QUARANTINE, remedy, f"the driver states: {event.recovery}")


def _nvlink5(event: KernelEvent, code: int, name: str) -> Decision:
    actions = nvlink5_actions(code, event.unit, event.error_status) if event.unit else frozenset()
    said = f"{name}: {event.unit or 'no sub-unit'}, {event.severity or 'severity not stated'}"
    fatal = event.severity is Severity.FATAL or (event.severity is None and Action.RESET_GPU in actions)
    if not fatal:
        return Decision(Outcome.EVENT, Remedy.NONE, said)
    return Decision(Outcome.QUARANTINE, Remedy.GPU_RESET, said)


def _sxid(event: KernelEvent, code: int) -> Decision:
    if event.detail_only:
        return Decision(Outcome.NOTHING, Remedy.NONE, "details of the SXid line before")
    known = sxids().get(code)
    said = (
        f"NVSwitch {known.name if known else 'error not in the catalogue'}, {event.severity or 'severity not stated'}"
    )
    by_table = known is not None and known.fatal is not FatalClass.NO and not known.allow_listed
    if event.severity is Severity.FATAL or (event.severity is None and by_table):
        # Restarting the machine is what the guide asks for; of a fatal code nobody lists, nobody knows the repair.
        return Decision(Outcome.QUARANTINE, Remedy.REBOOT if known else Remedy.CONTACT_SUPPORT, said)
    return Decision(Outcome.EVENT, Remedy.NONE, said)

"""Decide how to respond to a kernel event, by NVIDIA's catalogue. Pure: no clock, no cluster.

A node is quarantined if NVIDIA asks for a hardware action (a reset, a restart of the machine or VM, support):

* Workload errors (13, 31, 43, 45, 94 …) belong to the application.
* Codes that are unused or not in the catalogue are only recorded.
* An Xid 154 follows the recovery action in its line.
* For NVLink5 (144-150) and NVSwitch lines the severity in the line, Fatal or Non-fatal, takes precedence over any
  table.
* A message without a code quarantines the node if it asks for a repair itself.

The node-health controller uses a policy file (`gameday_health.policy`); its `default` decides the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gameday.xid.catalogue import Action, FatalClass, Remedy, XidRule, nvlink5_actions, sxids, xids
from gameday.xid.lines import KernelEvent, Kind, Severity
from gameday.xid.messages import MESSAGE_BY_NAME

# The recovery actions' numbers (docs/sources.md, DCGM fields): reset, reboot, drain peer-to-peer, drain and reset. Any
# other action needs support, as in NVSentinel (docs/sources.md, NVSentinel).
_REMEDY_BY_NUMBER = {
    1: Remedy.GPU_RESET,
    2: Remedy.REBOOT,
    3: Remedy.CONTACT_SUPPORT,
    4: Remedy.GPU_RESET,
    6: Remedy.GPU_RESET,
    7: Remedy.REBOOT,
}
_RECOVER_IMEX_DOMAIN = 5
_REMEDY_BY_TEXT = {"reboot": Remedy.REBOOT, "reset": Remedy.GPU_RESET}


class Response(StrEnum):
    """The response to a kernel event, or to another signal."""

    QUARANTINE = "quarantine"
    WATCH = "watch"
    """Record it, and quarantine if it comes again; only by a policy."""
    WORKLOAD = "workload"
    """Record it as an application's error."""
    EVENT = "event"
    """Record it."""
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Decision:
    """The response to one kernel event, with its reason."""

    response: Response
    remedy: Remedy
    """The repair that ends the fault. NONE with a quarantine: it ends only when a person removes the taint."""
    reason: str


def decide(event: KernelEvent) -> Decision:
    """Return the response that NVIDIA's catalogue asks for."""
    if event.kind is Kind.GPU_RESET:
        return Decision(Response.IGNORE, Remedy.NONE, "the agent's note of a GPU reset")
    if event.kind is Kind.GPU_LOST:
        return Decision(Response.QUARANTINE, Remedy.REBOOT, "GPU has fallen off the bus")
    if event.kind is Kind.PEERMEM:
        return Decision(Response.EVENT, Remedy.NONE, "nvidia-peermem found an invalid context")
    if event.kind is Kind.DRIVER:
        message = MESSAGE_BY_NAME[event.name]
        return Decision(
            Response.EVENT if message.asks is Remedy.NONE else Response.QUARANTINE, message.asks, message.about
        )
    if event.code is None:
        return Decision(Response.EVENT, Remedy.NONE, f"a line about an {event.kind} without a readable code")
    return _by_sxid(event, event.code) if event.kind is Kind.SXID else _by_xid(event, event.code)


def _by_xid(event: KernelEvent, code: int) -> Decision:
    xid = xids().get(code)
    if xid is None:
        return Decision(Response.EVENT, Remedy.NONE, f"Xid {code} is not in the catalogue")
    if xid.rule is XidRule.STATED:
        return _by_stated_action(event)
    if xid.rule is XidRule.DECODE:
        return _by_nvlink5_unit(event, code, xid.name)
    if not xid.is_used:
        reason = "unused: a stray line proves nothing about the hardware"
    else:
        reason = f"{xid.name} (NVIDIA: {xid.immediate or 'no action stated'})"
    return Decision(Response(xid.rule), xid.remedy, reason)


def _by_stated_action(event: KernelEvent) -> Decision:
    if event.recovery is None or event.recovery_number is None:
        return Decision(Response.EVENT, Remedy.NONE, "Xid 154 without a readable recovery action")
    if event.recovery_number == 0:
        return Decision(Response.EVENT, Remedy.NONE, "the driver states no recovery action")
    if event.recovery_number == _RECOVER_IMEX_DOMAIN:
        return Decision(
            Response.EVENT, Remedy.NONE, "the driver asks for its IMEX domain, not this GPU, to be recovered"
        )
    by_text = (remedy for text, remedy in _REMEDY_BY_TEXT.items() if text in event.recovery.lower())
    remedy = _REMEDY_BY_NUMBER.get(event.recovery_number) or next(by_text, Remedy.CONTACT_SUPPORT)
    return Decision(Response.QUARANTINE, remedy, f"the driver states: {event.recovery}")


def _by_nvlink5_unit(event: KernelEvent, code: int, name: str) -> Decision:
    actions = nvlink5_actions(code, event.unit, event.error_status) if event.unit else frozenset()
    reason = f"{name}: {event.unit or 'no sub-unit'}, {event.severity or 'severity not stated'}"
    is_fatal = event.severity is Severity.FATAL or (event.severity is None and Action.RESET_GPU in actions)
    if not is_fatal:
        return Decision(Response.EVENT, Remedy.NONE, reason)
    return Decision(Response.QUARANTINE, Remedy.GPU_RESET, reason)


def _by_sxid(event: KernelEvent, code: int) -> Decision:
    if event.detail_only:
        return Decision(Response.IGNORE, Remedy.NONE, "details of the SXid line before")
    sxid = sxids().get(code)
    name = sxid.name if sxid else "error not in the catalogue"
    reason = f"NVSwitch {name}, {event.severity or 'severity not stated'}"
    fatal_by_table = sxid is not None and sxid.fatal is not FatalClass.NO and not sxid.allow_listed
    if event.severity is Severity.FATAL or (event.severity is None and fatal_by_table):
        # The guide asks for a restart of the machine. For a fatal code that it does not list, the repair is unknown.
        return Decision(Response.QUARANTINE, Remedy.REBOOT if sxid else Remedy.CONTACT_SUPPORT, reason)
    return Decision(Response.EVENT, Remedy.NONE, reason)

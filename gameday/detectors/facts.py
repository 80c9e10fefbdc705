"""The facts of a fault, under the names that a profile's rules use, and the rule that fits.

A kernel-log fault is known by its line, as the detector meets it: a plan's parameters and a line in a log store give
the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from gameday.detectors.models import DetectorProfile, Fact, Rule
from gameday.faults.base import Layer
from gameday.faults.cuda_crash import XIDS, CudaCrashParameters
from gameday.faults.dcgm_field import DcgmFieldParameters
from gameday.faults.registry import fault_for
from gameday.faults.sxid import SxidParameters
from gameday.faults.xid import XidParameters
from gameday.plan.fault import FaultParameters
from gameday.values.results import RepairKind
from gameday.xid.catalogue import Action, xids
from gameday.xid.decide import Response, decide
from gameday.xid.lines import Form, KernelEvent, Kind, Severity, format_xid, recognise

E = TypeVar("E")
# Any GPU's address will do: the facts in a line do not depend on it.
_SOME_PCI = "0000:00:00"

_DECISIONS = frozenset(str(response) for response in Response if response is not Response.WATCH)
_ACTIONS = frozenset([*map(str, Action), None])
DERIVED: Mapping[str, Mapping[str, frozenset[str | int | None]]] = {
    "xid": {"decision": _DECISIONS, "nvidia_action": _ACTIONS},
    "sxid": {"decision": _DECISIONS},
    "cuda_crash": {"xid": frozenset(XIDS.values()), "decision": _DECISIONS, "nvidia_action": _ACTIONS},
    "dcgm_field": {"nvidia_action": _ACTIONS},
}
"""Facts that follow from a fault and are not its parameters, with their possible values, by fault type. `decision`: the
default policy's answer to the line. `nvidia_action`: the immediate action in NVIDIA's catalogue, null for a code that
it lacks.
"""


def facts(fault: FaultParameters) -> dict[str, Fact]:
    """Return the fault's parameters in the form that a rule's `when` compares, and the facts that follow from them."""
    found: dict[str, Fact] = {
        name: value
        for name, value in fault.model_dump(mode="json").items()
        if value is None or isinstance(value, bool | int | float | str)
    }
    line = _line(fault)
    if line is not None:
        found |= facts_of(line)
    if isinstance(fault, DcgmFieldParameters):
        found |= facts_of_field(str(fault.field), float(fault.injected))
    return found


def facts_of(event: KernelEvent) -> dict[str, Fact]:
    """Return the facts of a recognised line; those that the line lacks are left out."""
    decision = str(decide(event).response)
    if event.kind in (Kind.XID, Kind.GPU_LOST):
        return {"xid": event.code, "form": _form(event), "nvidia_action": _action(event.code), "decision": decision}
    severity = None if event.severity is None else "Fatal" if event.severity is Severity.FATAL else "Non-fatal"
    form = "kernel" if "kernel: " in event.line else "bare"
    return {"sxid": event.code, "severity": severity, "link": event.link, "form": form, "decision": decision}


def facts_of_field(name: str, value: float) -> dict[str, Fact]:
    """Return the facts of a DCGM field that has a value."""
    found: dict[str, Fact] = {"field": name, "value": value}
    if name == "DCGM_FI_DEV_XID_ERRORS":
        found["nvidia_action"] = _action(int(value))
    return found


def rule_for(profile: DetectorProfile, fault: FaultParameters) -> Rule | None:
    """Return the profile's rule for this fault, or None if it says nothing. Several faults get each part's effects."""
    return _together(rules_for(profile, fault))


def rules_for(profile: DetectorProfile, fault: FaultParameters) -> list[Rule]:
    """Return the profile's rules for the single faults that this one is made of, if it has any."""
    if parts := fault.made_of():
        return [rule for part in parts for rule in rules_for(profile, part)]
    rule = matching(profile, fault.type, fault_for(fault).layer, facts(fault))
    if rule is None and isinstance(fault, CudaCrashParameters):  # a reader of the log meets the line of an Xid
        rule = matching(profile, "xid", Layer.KERNEL_LOG, facts(fault))
    return [rule] if rule else []


def _together(rules: list[Rule]) -> Rule | None:
    """Merge several rules into one: every effect once, as in the first rule that names it."""
    acting = [rule for rule in rules if rule.acts]
    if len(acting) < 2:
        return acting[0] if acting else next(iter(rules), None)
    return Rule(
        faults=("compound",),
        conditions=_once([one for rule in acting for one in rule.conditions], lambda one: one.type),
        taints=_once([one for rule in acting for one in rule.taints], lambda one: (one.key, one.effect)),
        labels=_once([one for rule in acting for one in rule.labels], lambda one: one.key),
        labels_left=tuple(dict.fromkeys(key for rule in acting for key in rule.labels_left)),
        events=_once([one for rule in acting for one in rule.events], lambda one: one.reason),
        cordoned=next((rule.cordoned for rule in acting if rule.cordoned), None),
        allocatable_falls=next((rule.allocatable_falls for rule in acting if rule.allocatable_falls), None),
        repaired_by=_repaired_by(acting),
        note=" ".join(dict.fromkeys(rule.note for rule in acting if rule.note))[:1000],
        source="; ".join(dict.fromkeys(rule.source for rule in acting))[:500],
    )


def _repaired_by(rules: list[Rule]) -> tuple[RepairKind, ...] | None:
    """Return the repairs for all faults together. If one is left to a person, the node stays out of service."""
    kinds = [rule.repaired_by for rule in rules if rule.repaired_by is not None]
    if not kinds:
        return None
    return tuple(dict.fromkeys(kind for some in kinds for kind in some)) if all(kinds) else ()


def _once(effects: list[E], key: Callable[[E], object]) -> tuple[E, ...]:
    return tuple({key(effect): effect for effect in reversed(effects)}.values())[::-1]


def matching(profile: DetectorProfile, fault: str, layer: Layer, known: Mapping[str, Fact]) -> Rule | None:
    """Return the first rule about this fault type or layer with conditions that all fit these facts."""
    return next(
        (
            rule
            for rule in profile.rules
            if (fault in rule.faults or layer in rule.layers)
            and all(name in known and known[name] in values for name, values in rule.when.items())
        ),
        None,
    )


def _line(fault: FaultParameters) -> KernelEvent | None:
    if isinstance(fault, XidParameters):
        return recognise(format_xid(fault.xid, _SOME_PCI, fault.form))
    if isinstance(fault, CudaCrashParameters):
        return recognise(format_xid(fault.xid, _SOME_PCI, Form.KERNEL))
    return recognise(fault.line) if isinstance(fault, SxidParameters) else None


def _form(event: KernelEvent) -> str:
    if event.gpu_instance is not None:
        return Form.MIG
    if "PCI:" not in event.line:
        return Form.OLD
    return Form.KERNEL if "kernel: " in event.line else Form.BARE


def _action(code: int | None) -> str | None:
    known = xids().get(code) if code is not None else None
    return str(known.immediate) if known else None

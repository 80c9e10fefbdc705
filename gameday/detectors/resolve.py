"""Complete a plan with the profile of the detector that it names; the plan's own keys win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gameday.detectors.facts import facts, rule_for, rules_for
from gameday.detectors.load import load_detector
from gameday.detectors.models import PLACEHOLDER, DetectorProfile, Fact, Rule
from gameday.detectors.silent_sources import silent_sources
from gameday.documents.problems import dotted
from gameday.documents.source import parse
from gameday.errors import DocumentError, DocumentProblem
from gameday.faults.base import Layer
from gameday.faults.registry import fault_for, parameter_models
from gameday.plan.expectations import (
    ExpectedAllocatable,
    ExpectedCondition,
    ExpectedCordon,
    ExpectedEvent,
    ExpectedLabel,
    ExpectedTaint,
)
from gameday.plan.load import DetectorWarning, FromDetector, LoadedPlan, beside_plan, load_plan
from gameday.plan.models import Plan, Recovery
from gameday.plan.repair_chain import RepairChain
from gameday.remediations.registry import known_remediations
from gameday.text import shown
from gameday.values.alert_families import FAULTY_TAINT, AlertSource, rule_of_source

M = TypeVar("M", bound=BaseModel)
_UNSTATED_DETECTOR = "gameday"
"""The cluster profile's default, which says nothing about the detector in the cluster."""


def load_complete_plan(path: Path, folders: Sequence[Path] = (), watching: str | None = None) -> LoadedPlan:
    """Read a plan, and complete it by the profile of the detector that it names.

    Args:
        path: The plan's file; it may name any fault and remediation that is installed.
        folders: Folders of the team's own profiles, as the cluster profile's `detector_profiles`. A profile that the
            plan names by a path is relative to the plan's folder.
        watching: The detector that watches the cluster, as the cluster profile's `detector`; it may warn of the fault.

    Raises:
        DocumentError: The plan or a profile that it needs cannot be used.
    """
    return completed(load_plan(path, parameter_models(), known_remediations()), path, folders, watching)


def completed(loaded: LoadedPlan, path: Path, folders: Sequence[Path] = (), watching: str | None = None) -> LoadedPlan:
    """Complete a plan that was read from `path`, as `load_complete_plan` does."""
    arms = tuple(completed(one, path, folders, watching) for one in loaded.arms)
    scales = {name: completed(one, path, folders, watching) for name, one in loaded.scales.items()}
    detector = beside_plan(loaded.plan.detector, path.parent)
    named = load_detector(detector, folders) if loaded.plan.names_detector else None
    loaded = _complete(loaded, path, named) if named else loaded
    by_name = all(alert.name for alert in loaded.plan.expect.alerts)
    foreign = named or _foreign(watching, folders, needed=not by_name)
    loaded = loaded if by_name else _name_alerts(loaded, path, foreign)
    warnings = tuple(_warnings(loaded.plan, named, watching, folders))
    silent = tuple(silent_sources(loaded.plan, foreign))
    return replace(loaded, detector_warnings=warnings, silent_sources=silent, arms=arms, scales=scales)


def _foreign(watching: str | None, folders: Sequence[Path], *, needed: bool) -> DetectorProfile | None:
    """Return the profile of the watching detector, or None if it is ours or nobody names it.

    Raises DocumentError if the profile cannot be read and is needed; otherwise a warning says so elsewhere.
    """
    if not watching or watching == _UNSTATED_DETECTOR:
        return None
    try:
        return load_detector(watching, folders)
    except DocumentError:
        if needed:
            raise
        return None


def _name_alerts(loaded: LoadedPlan, path: Path, profile: DetectorProfile | None) -> LoadedPlan:
    """Name the rule of each alert that the plan expects by meaning; `profile` None: our controller watches."""
    expect = loaded.plan.expect
    source = _alert_source(loaded.plan, profile)
    alerts = []
    for place, alert in enumerate(expect.alerts):
        rule = rule_of_source(alert.meaning, source) if source and alert.meaning and not alert.name else None
        if not (alert.name or rule):
            watcher = profile.name if profile else _UNSTATED_DETECTOR
            why = f"no shipped rule shows this fault as {alert.meaning} where {watcher} watches"
            fix = "write the rule's `name`; docs/alerts.md, Which rule says it on your cluster, has the table"
            raise _problem(loaded, path, why, fix, ("expect", "alerts", place, "meaning"), str(alert.meaning))
        chosen = {"name": rule.alert, "labels": {**dict(rule.labels), **alert.labels}} if rule else {}
        alerts.append(alert.model_copy(update=chosen))
    plan = loaded.plan.model_copy(update={"expect": expect.model_copy(update={"alerts": tuple(alerts)})})
    return replace(loaded, plan=plan)


def _alert_source(plan: Plan, profile: DetectorProfile | None) -> AlertSource | None:
    """Return the source with series that show the plan's fault; `profile` None: our own controller watches."""
    if fault_for(plan.fault).layer is Layer.DCGM_CACHE:
        return AlertSource.DCGM
    if profile is None or profile.name == _UNSTATED_DETECTOR:
        return AlertSource.CONTROLLER
    rule = rule_for(profile, plan.fault)
    if rule and rule.conditions:
        return AlertSource.CONDITIONS
    return AlertSource.TAINTS if rule and any(taint.key == FAULTY_TAINT for taint in rule.taints) else None


def _warnings(
    plan: Plan, named: DetectorProfile | None, watching: str | None, folders: Sequence[Path]
) -> Iterator[DetectorWarning]:
    profiles = [named] if named else []
    if watching and not (named and named.name == watching):
        try:
            profiles.append(load_detector(watching, folders))
        except DocumentError as error:
            what = f"it is unknown whether the fault harms the detector {shown(watching)}: {error}"
            yield DetectorWarning(
                watching, what, "set `detector` in the cluster profile: `gameday detectors` lists them"
            )
    yield from _repairers(plan, named, profiles)
    faults = [plan.fault, *([plan.recover.fault_during] if plan.recover.fault_during else [])]
    for profile in profiles:
        rules = [rule for fault in faults for rule in rules_for(profile, fault)]
        for harm in dict.fromkeys(rule.harm for rule in rules if rule.harm):
            yield DetectorWarning(profile.name, harm.what, harm.fix)


def _repairers(
    plan: Plan, named: DetectorProfile | None, profiles: Sequence[DetectorProfile]
) -> Iterator[DetectorWarning]:
    """Yield a warning if nobody is known to repair the node, and if two would."""
    if plan.recover.is_hands_off:
        nothing = next((profile for profile in profiles if profile.repairs_nothing), None)
        if nothing:
            fix = "as a negative control the run is to end as failed; else name the detector of a stack that repairs"
            yield DetectorWarning(nothing.name, f"it repairs nothing: {nothing.repairs_nothing}", fix)
        if unseen := plan.recover.hops.without_signs():
            what = f"no sign is known of the hops {' and '.join(unseen)}, so that the run may end there as failed"
            fix = "write the hop's signs in recover.hops, or name a detector whose profile has `repairs`"
            yield DetectorWarning(named.name if named else "of this cluster", what, fix)
        return
    for profile in profiles:
        repairs = profile.repairs
        if plan.recover.repairs_node and repairs and (profile is named or profile.name != _UNSTATED_DETECTOR):
            what = f"{repairs.by} repairs the node as well where its repair is on: two repairs would meet"
            if repairs.cancelled_by:
                what += f"; it reads our {' and '.join(repairs.cancelled_by)} as an order to stop"
            yield DetectorWarning(profile.name, what, "write `recover: {by: cluster}`, or switch its repair off first")


def _complete(loaded: LoadedPlan, path: Path, profile: DetectorProfile) -> LoadedPlan:
    plan = loaded.plan
    rule = rule_for(profile, plan.fault)
    found = expectations_of(profile, rule, facts(plan.fault)) if rule else {}
    taken = _taken(plan, found)
    try:
        completed: dict[str, Any] = {"expect": type(plan.expect)(**written_fields(plan.expect) | taken)}
        if plan.recover.is_hands_off:
            completed["recover"] = _recovery(plan.recover, profile, rule)
        whole = Plan(**written_fields(plan) | completed)
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"]
        raise _problem(loaded, path, f"what the profile {profile.name} says does not fit this plan: {why}") from None
    if not whole.expect.can_be_broken:
        raise _problem(loaded, path, f"this plan expects nothing, and {_silence(profile, rule, plan.fault.type)}")
    if whole.recover.is_hands_off and not whole.recover.hops.expected():
        why = profile.repairs_nothing or "nobody has described its repair"
        raise _problem(
            loaded,
            path,
            f"the cluster repairs (`recover.by: cluster`), but {profile.name} does not: {why}",
            "write the hops that you expect under `recover.hops`",
        )
    return replace(loaded, plan=whole, from_detector=consulted(profile, rule, tuple(taken)))


def consulted(profile: DetectorProfile, rule: Rule | None, filled: tuple[str, ...]) -> FromDetector:
    """Return the report's text about a profile; `filled` are the plan's keys that come from it."""
    sees = None if rule is None else not rule.cannot_see
    why = (rule.cannot_see or rule.note) if rule else ""
    source = rule.source if rule else profile.source
    return FromDetector(profile.name, profile.title, source, sees, why, filled)


def expectations_of(profile: DetectorProfile, rule: Rule, known: Mapping[str, Fact]) -> dict[str, Any]:
    """Return the rule's expectations, under the names of the plan's `expect`."""
    found: dict[str, Any] = {
        "taints": tuple(_plain(one, ExpectedTaint, known) for one in rule.taints),
        "cordoned": _plain(rule.cordoned, ExpectedCordon, known) if rule.cordoned else None,
        "conditions": tuple(_plain(one, ExpectedCondition, known) for one in rule.conditions),
        "labels": tuple(_plain(one, ExpectedLabel, known) for one in rule.labels),
        "labels_left": rule.labels_left,
        "events": tuple(_plain(one, ExpectedEvent, known) for one in rule.events),
        "allocatable_falls": _plain(rule.allocatable_falls, ExpectedAllocatable, known)
        if rule.allocatable_falls
        else None,
        # A detector that never quarantines cannot be blamed for leaving a node alone.
        "stays_schedulable_for": profile.quiet_for if profile.ever_quarantines and not rule.quarantines else None,
    }
    return {name: value for name, value in found.items() if value}


def _recovery(recover: Recovery, profile: DetectorProfile, rule: Rule | None) -> Recovery:
    """Complete a hands-off recovery; the plan's own keys win."""
    if profile.repairs is None:
        return recover
    known, kinds, fields = profile.repairs.hops, rule.repaired_by if rule else None, written_fields(recover)
    if kinds == () and "node_ends" not in fields:
        fields["node_ends"] = "out-of-service"
    if kinds == ():
        known = RepairChain(quarantined=known.quarantined, returned=known.returned)
    elif kinds and known.repaired:
        known = known.model_copy(update={"repaired": known.repaired.model_copy(update={"kinds": kinds})})
    return type(recover)(**fields | {"hops": recover.hops.completed_by(known)})


def _taken(plan: Plan, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the plan leaves out. If two keys exclude each other, the plan's own wins."""
    expect = plan.expect
    taken = {name: value for name, value in found.items() if name not in expect.model_fields_set}
    if expect.stays_schedulable_for:
        taken = {name: value for name, value in taken.items() if name not in ("taints", "cordoned")}
    if expect.expects_quarantine:
        taken.pop("stays_schedulable_for", None)
    return taken


def _plain(effect: BaseModel, model: type[M], known: Mapping[str, Fact]) -> M:
    """Return a profile's effect as a plan's expectation, with its reason filled in."""
    values = {name: value for name, value in written_fields(effect).items() if name in model.model_fields}
    if isinstance(reason := values.get("reason"), str):
        values["reason"] = filled_in(reason, known)
    return model(**values)


def filled_in(reason: str, known: Mapping[str, Fact]) -> str:
    """Return `NvidiaXID{value}Error` with the fault's own value, a whole number without decimals."""

    def value(name: str) -> str:
        found = known.get(name)
        return f"{found:g}" if isinstance(found, float) else str(found)

    return PLACEHOLDER.sub(lambda match: value(match[1]), reason)


def written_fields(model: BaseModel) -> dict[str, Any]:
    """Return the fields that were written, as they were validated, without defaults."""
    return {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}


def _silence(profile: DetectorProfile, rule: Rule | None, fault: str) -> str:
    if rule is None:
        return f"the profile {profile.name} says nothing about this {fault} fault"
    if rule.cannot_see:
        return f"{profile.name} cannot see this fault: {rule.cannot_see}"
    return f"nothing that {profile.name} does about this fault can be seen in the cluster"


def _problem(
    loaded: LoadedPlan,
    path: Path,
    message: str,
    suggestion: str = "write what you expect under `expect`, or mend the profile",
    at: tuple[str | int, ...] = ("detector",),
    value: str = "",
) -> DocumentError:
    """Return the problem at a key of the plan, by default `detector` with the plan's own value."""
    document = parse(loaded.source.decode("utf-8-sig"), str(path))
    line, column = document.place((*loaded.at, *at)).value
    written = shown(value or loaded.plan.detector)
    return DocumentError([DocumentProblem(str(path), line, column, dotted(at), written, message, suggestion)])

"""Complete a plan by the profile of the detector that it names; what the plan says itself wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from gameday.expect.allocatable_falls import ExpectedAllocatable
from gameday.expect.conditions import ExpectedCondition
from gameday.expect.cordoned import ExpectedCordon
from gameday.expect.events import ExpectedEvent
from gameday.expect.labels import ExpectedLabel
from gameday.expect.taints import ExpectedTaint
from gameday.faults.base import Layer
from gameday.faults.registry import fault_for, parameter_models
from gameday.plan.load import DetectorWarning, FromDetector, LoadedPlan, load_plan
from gameday.plan.models import Plan, Recovery
from gameday.plan.repair_chain import RepairChain
from gameday.remediations.registry import known_remediations
from gameday.text import shown
from gameday.values.alert_families import FAULTY_TAINT, AlertSource, rule_of_source

M = TypeVar("M", bound=BaseModel)
_UNSTATED_DETECTOR = "gameday"
"""The cluster profile's default, which says nothing about the detector in the cluster."""


@dataclass(frozen=True)
class _Watcher:
    """The detector that watches the cluster."""

    name: str
    profile: DetectorProfile | None
    error: DocumentError | None = None
    """The reason why its profile cannot be read."""

    @property
    def is_foreign(self) -> bool:
        """True if somebody has named a detector that is not ours."""
        return self.name not in ("", _UNSTATED_DETECTOR)


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
    return completed(load_plan(path, parameter_models(), known_remediations()), folders, watching)


def completed(loaded: LoadedPlan, folders: Sequence[Path] = (), watching: str | None = None) -> LoadedPlan:
    """Complete a plan that has been read, its arms and its scales, as `load_complete_plan` does."""
    watcher = _watcher(watching, folders)

    def whole(one: LoadedPlan) -> LoadedPlan:
        named = load_detector(_named_by(one), folders) if one.plan.names_detector else None
        arms, scales = tuple(map(whole, one.arms)), {name: whole(scale) for name, scale in one.scales.items()}
        return replace(_completed(one, named, watcher), arms=arms, scales=scales)

    return whole(loaded)


def _watcher(name: str | None, folders: Sequence[Path]) -> _Watcher:
    try:
        return _Watcher(name or "", load_detector(name, folders) if name else None)
    except DocumentError as error:
        return _Watcher(name or "", None, error)


def _named_by(loaded: LoadedPlan) -> str:
    """Return the detector that the plan names: a name as it is, a path from the folder of the plan's file."""
    detector = loaded.plan.detector
    return str(loaded.file.parent / detector) if detector.endswith((".yaml", ".yml")) else detector


def _completed(loaded: LoadedPlan, named: DetectorProfile | None, watcher: _Watcher) -> LoadedPlan:
    """Complete one plan by the profile that it names and by the detector that watches; reads nothing."""
    loaded = _filled(loaded, named) if named else loaded
    foreign = named or (watcher.profile if watcher.is_foreign else None)
    if not all(alert.name for alert in loaded.plan.expect.alerts):
        if watcher.error and not named:
            raise watcher.error
        loaded = _name_alerts(loaded, foreign)
    warnings = tuple(_warnings(loaded.plan, named, watcher))
    return replace(loaded, detector_warnings=warnings, silent_sources=tuple(silent_sources(loaded.plan, foreign)))


def _name_alerts(loaded: LoadedPlan, profile: DetectorProfile | None) -> LoadedPlan:
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
            raise _problem(loaded, why, fix, ("expect", "alerts", place, "meaning"), str(alert.meaning))
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


def _warnings(plan: Plan, named: DetectorProfile | None, watcher: _Watcher) -> Iterator[DetectorWarning]:
    if watcher.error and not (named and named.name == watcher.name):
        what = f"it is unknown whether the fault harms the detector {shown(watcher.name)}: {watcher.error}"
        fix = "set `detector` in the cluster profile: `gameday detectors` lists them"
        yield DetectorWarning(watcher.name, what, fix)
    profiles = [named] if named else []
    if watcher.profile and not (named and named.name == watcher.profile.name):
        profiles.append(watcher.profile)
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


def _filled(loaded: LoadedPlan, profile: DetectorProfile) -> LoadedPlan:
    """Fill in what the plan leaves to the profile of the detector that it names."""
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
        raise _problem(loaded, f"what the profile {profile.name} says does not fit this plan: {why}") from None
    if not whole.expect.can_be_broken:
        raise _problem(loaded, f"this plan expects nothing, and {_silence(profile, rule, plan.fault.type)}")
    if whole.recover.is_hands_off and not whole.recover.hops.expected():
        why = profile.repairs_nothing or "nobody has described its repair"
        raise _problem(
            loaded,
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
    message: str,
    suggestion: str = "write what you expect under `expect`, or mend the profile",
    at: tuple[str | int, ...] = ("detector",),
    value: str = "",
) -> DocumentError:
    """Return the problem at a key of the plan, by default `detector` with the plan's own value."""
    file = str(loaded.file)
    document = parse(loaded.source.decode("utf-8-sig"), file)
    line, column = document.place((*loaded.at, *at)).value
    written = shown(value or loaded.plan.detector)
    return DocumentError([DocumentProblem(file, line, column, dotted(at), written, message, suggestion)])

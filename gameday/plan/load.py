"""Read a plan file and return the validated plan with the hash of its bytes, or report every problem in it."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath

from pydantic import ValidationError

from gameday.documents.explain import Tagged, explain
from gameday.documents.read import decode, read
from gameday.documents.source import Path, Source, parse
from gameday.errors import DocumentError, DocumentProblem
from gameday.plan.arms import Arm, source_of_arm
from gameday.plan.fault import FaultParameters
from gameday.plan.models import Plan
from gameday.plan.scales import AS_WRITTEN, source_of_scale
from gameday.text import shown
from gameday.values.alert_families import AlertSource


@dataclass(frozen=True, slots=True)
class FromDetector:
    """The part of a plan's expectations that comes from a detector's profile; the report shows it."""

    detector: str
    """Name of the profile."""
    title: str
    source: str
    """The document that supports the profile's statement about this fault."""
    sees: bool | None
    """True if the detector sees the fault; None: the profile does not mention it."""
    why: str
    """The reason why it cannot see the fault, or a note about it."""
    filled: tuple[str, ...]
    """Names of the plan's `expect` keys that come from the profile."""


@dataclass(frozen=True, slots=True)
class DetectorWarning:
    """A warning, for the person who is about to run the plan, about the harm that its fault does to a detector."""

    detector: str
    what: str
    """The harm, with its cause."""
    fix: str
    """Advice on what to do before the run."""


@dataclass(frozen=True, slots=True)
class SilentSource:
    """A source of alert rules that does not show the plan's fault."""

    source: AlertSource
    why: str
    certain: bool
    """True if that follows from where the fault enters; False if only a detector's profile says so."""


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A validated plan with the file that it was read from."""

    plan: Plan
    source: bytes
    """The file as it was read; a run keeps it beside its history as plan.yaml."""
    sha256: str
    """Hash of `source`, in hexadecimal."""
    file: FilePath
    """The file's path; a detector's profile that the plan names by a path is relative to its folder."""
    from_detector: FromDetector | None = None
    """The detector's part of the plan; None if the plan names no detector."""
    detector_warnings: tuple[DetectorWarning, ...] = ()
    """Warnings about the detector that the plan names and, if it is known, about the one that watches the cluster."""
    silent_sources: tuple[SilentSource, ...] = ()
    """Sources of alert rules that do not show the fault; if the detector is unknown there may be more."""
    arm: Arm | None = None
    """The arm that changed the plan; None for a plan as its file has it."""
    at: Path = ()
    """Path of the plan's own keys in the file: an arm's `set`."""
    arms: tuple[LoadedPlan, ...] = ()
    """The plan as each of its arms changes it, in the file's order; empty for a plan without arms."""
    scales: Mapping[str, LoadedPlan] = field(default_factory=dict)
    """The plan at each of its other scales, by name, with its arms at that scale."""

    @property
    def played(self) -> tuple[LoadedPlan, ...]:
        """The game-days that the plan stands for: its arms, or itself if it has none."""
        return self.arms or (self,)

    def of_arm(self, name: str | None) -> LoadedPlan:
        """Return the plan as the arm of this name changes it; without a name, the plan itself.

        Raises:
            DocumentError: The plan has no such arm, or it has arms and none is named.
        """
        names = [one.arm.name for one in self.arms if one.arm]
        if not (name or names):
            return self
        if name in names:
            return self.arms[names.index(name)]
        if not names:
            what, fix = f"this plan has no arms, so none is called {shown(name)}", "leave the arm out"
        else:
            what = f"this plan has no arm {shown(name)}" if name else "this plan has arms, which are played together"
            near = difflib.get_close_matches((name or "")[:64], names, n=1, cutoff=0.5)
            fix = f"did you mean {near[0]}?" if near else f"its arms: {', '.join(names)}"
            if not name:
                fix += f"; `gameday run {self.plan.name}` or the deployment `comparison/arms (breaks GPUs)` plays them"
        raise DocumentError([DocumentProblem(self.plan.name, None, None, "arms", None, what, fix)])

    def of_scale(self, name: str) -> LoadedPlan:
        """Return the plan at the scale of this name. Raises DocumentError if it has none."""
        if name == AS_WRITTEN:
            return self
        if name in self.scales:
            return self.scales[name]
        what, fix = f"this plan has no scale {shown(name)}", f"its scales: {', '.join((AS_WRITTEN, *self.scales))}"
        raise DocumentError([DocumentProblem(self.plan.name, None, None, "scales", None, what, fix)])


def load_plan(
    path: FilePath, faults: Mapping[str, type[FaultParameters]], remediations: Collection[str] | None = None
) -> LoadedPlan:
    """Read and validate one plan.

    Args:
        path: The plan's file.
        faults: The parameter models of the faults that it may use, by their `type`.
        remediations: The names that it may give under `recover.remediation`; None: any.

    Raises:
        DocumentError: Something is wrong with the path or the file. Nothing else is raised.
    """
    return parse_plan(read(path), str(path), faults, remediations)


def parse_plan(
    source: bytes,
    file: str,
    faults: Mapping[str, type[FaultParameters]],
    remediations: Collection[str] | None = None,
) -> LoadedPlan:
    """Validate a plan as `load_plan` does, from bytes that were read already; `file` is only named in problems."""
    parsed, sha256 = parse(decode(source, file), file), hashlib.sha256(source).hexdigest()

    def loaded(document: Source, at: Path, arm: Arm | None) -> LoadedPlan:
        plan = _validated(document, file, faults, remediations)
        return LoadedPlan(plan, source, sha256, FilePath(file), arm=arm, at=at)

    whole = _with_arms(parsed, loaded, ())
    scales, problems = {}, []
    for name, scale in whole.plan.scales.items():
        try:
            at = source_of_scale(parsed, name, scale)
            scales[name] = _with_arms(at, loaded, ("scales", name, "set"))
        except DocumentError as error:
            problems += [replace(one, message=f"at the scale {name}: {one.message}") for one in error.problems]
    if problems:
        raise DocumentError(problems)
    return replace(whole, scales=scales)


def _with_arms(parsed: Source, loaded: Callable[[Source, Path, Arm | None], LoadedPlan], at: Path) -> LoadedPlan:
    """Return the plan of a document, with its arms; `at` is the document's path in the file."""
    whole = loaded(parsed, at, None)
    arms, problems = [], []
    for number, arm in enumerate(whole.plan.arms.compare if whole.plan.arms else ()):
        try:
            arms.append(loaded(source_of_arm(parsed, number, arm), (*at, "arms", "compare", number, "set"), arm))
        except DocumentError as error:
            problems += [replace(one, message=f"in the arm {arm.name}: {one.message}") for one in error.problems]
    if problems:
        raise DocumentError(problems)
    return replace(whole, arms=tuple(arms))


def _validated(
    source: Source, file: str, faults: Mapping[str, type[FaultParameters]], remediations: Collection[str] | None
) -> Plan:
    try:
        return Plan.model_validate(source.data, context={"faults": faults, "remediations": remediations})
    except ValidationError as error:
        raise DocumentError(explain(error, source, file, Plan, Tagged(FaultParameters, faults))) from None

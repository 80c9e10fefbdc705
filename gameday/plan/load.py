"""Read a plan file into a validated plan with the hash of its bytes, or report every problem in it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gameday.documents.explain import Tagged, explain
from gameday.documents.read import decode, read
from gameday.documents.source import parse
from gameday.errors import DocumentError
from gameday.plan.models import FaultParameters, Plan


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
    """The harm that the plan's fault does to a detector, for the person who is about to run the plan."""

    detector: str
    what: str
    """The harm, with its cause."""
    fix: str
    """The advice: a step to take before the run."""


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A validated plan with the file that it was read from."""

    plan: Plan
    source: bytes
    """The file as it was read; a run keeps it beside its history as plan.yaml."""
    sha256: str
    """Hash of `source`, in hexadecimal."""
    from_detector: FromDetector | None = None
    """The detector's part of the plan; None if the plan names no detector."""
    detector_warnings: tuple[DetectorWarning, ...] = ()
    """Warnings about the detector that the plan names, and about the one that watches the cluster if it is known."""


def load_plan(
    path: Path, faults: Mapping[str, type[FaultParameters]], remediations: Collection[str] | None = None
) -> LoadedPlan:
    """Read and validate one plan.

    Args:
        path: The plan's file.
        faults: The parameter models of the faults that it may use, by their `type`.
        remediations: The names that it may give under `recover.remediation`; None: any.

    Raises:
        DocumentError: Whatever is wrong with the path or the file, and nothing else.
    """
    return parse_plan(read(path), str(path), faults, remediations)


def parse_plan(
    source: bytes,
    file: str,
    faults: Mapping[str, type[FaultParameters]],
    remediations: Collection[str] | None = None,
) -> LoadedPlan:
    """Validate a plan as `load_plan` does, for bytes already read; `file` is only named in problems."""
    parsed = parse(decode(source, file), file)
    try:
        plan = Plan.model_validate(parsed.data, context={"faults": faults, "remediations": remediations})
    except ValidationError as error:
        raise DocumentError(explain(error, parsed, file, Plan, Tagged(FaultParameters, faults))) from None
    return LoadedPlan(plan, source, hashlib.sha256(source).hexdigest())

"""Read a plan file: bytes in, a validated plan with the hash of those bytes out, or every problem at once."""

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
    """What a plan took from the profile of the detector it names; told in the report."""

    detector: str
    title: str
    source: str
    """Where the profile's word on this fault stands."""
    sees: bool | None
    """None: the profile says nothing about this fault."""
    why: str
    """Why it cannot see the fault, or what else is to be known."""
    filled: tuple[str, ...]
    """Names of the plan's `expect` keys that come from the profile."""


@dataclass(frozen=True, slots=True)
class DetectorWarning:
    """Harm that the plan's fault does to a detector, for the person who is about to run it."""

    detector: str
    what: str
    """Cause and effect."""
    fix: str
    """What to do before the run."""


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    plan: Plan
    source: bytes
    """The file as it was read; kept beside the history as plan.yaml."""
    sha256: str
    """Of `source`, in hexadecimal."""
    from_detector: FromDetector | None = None
    """None where the plan names no detector."""
    detector_warnings: tuple[DetectorWarning, ...] = ()
    """Of the detector that the plan names, and of the one that watches the cluster where that is known."""


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

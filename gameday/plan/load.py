"""Read a plan file: bytes in, a validated plan with the hash of those bytes out, or every problem at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gameday.plan.explain import explain
from gameday.plan.models import FaultParameters, Plan
from gameday.plan.problems import PlanError, PlanProblem
from gameday.plan.yaml_source import MAX_BYTES, parse


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


def load_plan(path: Path, faults: Mapping[str, type[FaultParameters]]) -> LoadedPlan:
    """Read and validate one plan. `faults` are the parameter models known, by their `type`.

    Raises PlanError, and nothing else, whatever the path is and whatever the
    file holds.
    """
    return parse_plan(read(path), str(path), faults)


def parse_plan(source: bytes, file: str, faults: Mapping[str, type[FaultParameters]]) -> LoadedPlan:
    """As `load_plan`, for bytes already read; `file` is only named in problems."""
    parsed = parse(decode(source, file), file)
    try:
        plan = Plan.model_validate(parsed.data, context={"faults": faults})
    except ValidationError as error:
        raise PlanError(explain(error, parsed, file, faults)) from None
    return LoadedPlan(plan, source, hashlib.sha256(source).hexdigest())


def read(path: Path) -> bytes:
    """A file's bytes, or one more than a plan may have of a larger one; raises PlanError for what cannot be read."""
    try:
        # A device or a pipe could be read for ever.
        if path.exists() and not path.is_file():
            raise PlanError([_unreadable(str(path), "not a regular file")])
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PlanError([_unreadable(str(path), f"cannot be read: {error.strerror}")]) from None
    except ValueError:  # a NUL in the name
        raise PlanError([_unreadable(str(path), "not a file name")]) from None


def decode(source: bytes, file: str) -> str:
    """The text of a file; raises PlanError where it is too large or not UTF-8."""
    if len(source) > MAX_BYTES:
        raise PlanError([_unreadable(file, f"larger than {MAX_BYTES // 1024} KiB, which no plan is")])
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        byte = source[error.start]
        raise PlanError(
            [PlanProblem(file, line, column, "", None, f"byte 0x{byte:02x} is not UTF-8 text", "save it as UTF-8")]
        ) from None


def _unreadable(file: str, message: str) -> PlanProblem:
    return PlanProblem(file, None, None, "", None, message)

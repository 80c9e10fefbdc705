"""Find the remediations: every one in a module of this package, and those that other packages add by entry points.

To add a remediation, add a file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from types import ModuleType

import gameday.remediations
from gameday.documents.fields import PLAN_NAME
from gameday.plugins import Found, Group, classes_in, find, modules_of
from gameday.remediations.base import Remediation
from gameday.text import shown


@cache
def found_remediations() -> Found[Remediation]:
    """Return one instance of every remediation by its name. Raises ValueError for a bug in ours."""
    return find(Group.REMEDIATIONS, modules_of(gameday.remediations), remediations_in)


def known_remediations() -> Mapping[str, Remediation]:
    """Return one instance of every remediation by its name."""
    return found_remediations().parts


def remediation_for(name: str) -> Remediation:
    """Return the remediation of this name. Raises ValueError if there is none."""
    known = known_remediations()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name[:64], known, n=1)
    suggestion = f"did you mean {near[0]}? " if near else ""
    raise ValueError(
        f"unknown remediation {shown(name)}: no package that is installed here has it; {suggestion}"
        f"known: {', '.join(sorted(known))}"
    )


def remediations_in(module: ModuleType) -> dict[str, Remediation]:
    """Return one instance of each remediation that a module defines, by its name.

    Raises:
        ValueError: One lacks a method, or has no name that a plan could write.
    """
    found: dict[str, Remediation] = {}
    for kind in classes_in(module, Remediation, ("name", "summary")):  # type: ignore[type-abstract]
        if not re.fullmatch(PLAN_NAME, kind.name):
            raise ValueError(f"the name {shown(kind.name)} of {kind.__qualname__} must match {PLAN_NAME}")
        found[kind.name] = kind()
    return found

"""The shipped plans, read once for all tests of a process: all of them take a second."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from gameday.faults.registry import parameter_models
from gameday.plan.catalogue import load_shipped
from gameday.plan.models import Plan


@cache
def shipped() -> Mapping[str, Plan]:
    """Return every shipped plan by its name, in the order of the names."""
    return MappingProxyType({one.plan.name: one.plan for one in load_shipped(parameter_models())})

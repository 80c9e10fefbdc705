"""Find the faults: every Fault in a module of this package, and those that other packages add by entry points.

To add a fault, add a file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any, get_args

import gameday.faults
from gameday.faults.base import Fault
from gameday.plan.fault import FaultParameters
from gameday.plugins import Found, Group, classes_in, find, modules_of
from gameday.text import shown


@cache
def found_faults() -> Found[Fault[Any]]:
    """Return one instance of every fault, by the `type` of its parameters. Raises ValueError for a bug in ours."""
    return find(Group.FAULTS, modules_of(gameday.faults), faults_in)


def known_faults() -> Mapping[str, Fault[Any]]:
    """Return one instance of every fault, by the `type` of its parameters."""
    return found_faults().parts


def faults_in(module: ModuleType) -> dict[str, Fault[Any]]:
    """Return one instance of each fault that a module defines, by the `type` of its parameters.

    Raises:
        ValueError: Two of them have the same name, or one has no name or lacks a method.
    """
    faults: dict[str, Fault[Any]] = {}
    for kind in classes_in(module, Fault, ("parameters", "layer", "summary")):  # type: ignore[type-abstract]
        name = _name(kind)
        if name in faults:
            first = type(faults[name]).__qualname__
            raise ValueError(f"{name!r} is defined twice in {module.__name__}: {first} and {kind.__qualname__}")
        faults[name] = kind()
    return faults


def parameter_models() -> dict[str, type[FaultParameters]]:
    """Return the models that a plan's `fault` is validated against, by their `type`."""
    return {name: fault.parameters for name, fault in known_faults().items()}


def fault_for(parameters: FaultParameters) -> Fault[Any]:
    """Return the fault of these parameters. Raises ValueError for a type that no fault has."""
    return _known(parameters.type)


def parse_parameters(data: dict[str, Any]) -> FaultParameters:
    """Validate plain data against the model of its `type`. Raises ValueError, which includes pydantic's error."""
    return _known(data.get("type")).parameters.model_validate(data, context={"faults": parameter_models()})


def _known(name: object) -> Fault[Any]:
    faults = known_faults()
    if isinstance(name, str) and name in faults:
        return faults[name]
    near = difflib.get_close_matches(str(name)[:64], faults, n=1)
    suggestion = f"did you mean {near[0]}? " if near else ""
    raise ValueError(
        f"unknown fault type {shown(name)}: no package that is installed here has it; {suggestion}"
        f"known: {', '.join(sorted(faults))}"
    )


def _name(fault: type[Fault[Any]]) -> str:
    literal = get_args(fault.parameters.model_fields["type"].annotation)
    if len(literal) != 1 or not isinstance(literal[0], str):
        raise ValueError(
            f"{fault.__module__}.{fault.__qualname__}: its parameters' `type` must be a Literal of one name"
        )
    return literal[0]

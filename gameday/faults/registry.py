"""Which faults there are: every Fault in a module of this package. Adding a fault is adding a file."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from inspect import isabstract
from types import ModuleType
from typing import Any, get_args

import gameday.faults
from gameday.faults.base import NODE, Fault
from gameday.plan.models import FaultParameters


@cache
def known_faults() -> dict[str, Fault[Any]]:
    """One instance of every fault, by the `type` its parameters carry. Raises ValueError as `collect` does."""
    names = sorted(module.name for module in pkgutil.iter_modules(gameday.faults.__path__))
    return collect([import_module(f"gameday.faults.{name}") for name in names])


def collect(modules: list[ModuleType]) -> dict[str, Fault[Any]]:
    """The faults defined in these modules; ValueError when two share a name or one has none."""
    faults: dict[str, Fault[Any]] = {}
    for module in modules:
        for found in vars(module).values():
            if not _is_fault_of(found, module):
                continue
            name = _name(found)
            if name in faults:
                other = type(faults[name])
                raise ValueError(
                    f"fault type {name!r} is defined twice: {other.__module__}.{other.__qualname__} "
                    f"and {found.__module__}.{found.__qualname__}; rename one"
                )
            faults[name] = found()
    return faults


def parameter_models() -> dict[str, type[FaultParameters]]:
    """What `plan.load` validates a plan's `fault` against."""
    return {name: fault.parameters for name, fault in known_faults().items()}


def fault_for(parameters: FaultParameters) -> Fault[Any]:
    """Raises ValueError for a type nobody defines."""
    return _known(parameters.type)


def takes_node_down(parameters: FaultParameters) -> bool:
    """Whether the agent does not outlive the fault or cannot end it early, nor then any other pod of the node."""
    return any(claim.what == NODE and not claim.shared for claim in fault_for(parameters).claims(parameters))


def parse_parameters(data: dict[str, Any]) -> FaultParameters:
    """Plain data to the fault's own model; raises ValueError (pydantic's included) that names what is wrong."""
    return _known(data.get("type")).parameters.model_validate(data, context={"faults": parameter_models()})


def _known(name: object) -> Fault[Any]:
    faults = known_faults()
    if not isinstance(name, str) or name not in faults:
        raise ValueError(f"unknown fault type {str(name)[:60]!r}; known: {', '.join(sorted(faults))}")
    return faults[name]


def _is_fault_of(found: object, module: ModuleType) -> bool:
    return (
        isinstance(found, type)
        and issubclass(found, Fault)
        and not isabstract(found)
        and found.__module__ == module.__name__
    )


def _name(fault: type[Fault[Any]]) -> str:
    literal = get_args(fault.parameters.model_fields["type"].annotation)
    if len(literal) != 1 or not isinstance(literal[0], str):
        raise ValueError(
            f"{fault.__module__}.{fault.__qualname__}: its parameters' `type` must be a Literal of one name"
        )
    return literal[0]

"""Find the parts that gameday is made of: modules of our own, and those that installed packages add by entry points.

An entry point names a module. It holds what a module of ours in the same place holds: a `Fault`, a `check` function and
so on (docs/extending.md). Installing a package is trusting it: its code runs with the rights of the process that loads
it, and faults and remediations run on the GPU nodes.

A package that cannot be loaded never keeps the rest from working, for the same registries are read where a dead run is
undone. It is logged as a warning, and each registry decides what it means: a guardrail that cannot be loaded refuses
every run.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from types import ModuleType
from typing import Generic, TypeVar

from gameday.text import printable

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Group(StrEnum):
    """The entry-point groups, by what a module of the group holds."""

    FAULTS = "gameday.faults"
    REMEDIATIONS = "gameday.remediations"
    CHECKS = "gameday.checks"
    EXPECTATIONS = "gameday.expectations"
    GUARDRAILS = "gameday.guardrails"
    REPORT_SECTIONS = "gameday.report_sections"
    DETECTORS = "gameday.detectors"
    FIGURES = "gameday.figures"


@dataclass(frozen=True)
class BrokenPlugin:
    """An entry point of an installed package that cannot be used."""

    group: Group
    name: str
    """The entry point's name."""
    package: str
    """The distribution's name and version; empty where its metadata has none."""
    why: str

    def __str__(self) -> str:
        of = f" of {self.package}" if self.package else ""
        return f"plug-in {self.name}{of} ({self.group}) cannot be used: {self.why}; mend or uninstall it"


@dataclass(frozen=True)
class Found(Generic[T]):
    """The parts of one group."""

    parts: Mapping[str, T]
    """Parts by name: our own, then those of other packages."""
    packages: Mapping[str, str]
    """Distributions by the names of the parts they add; our own parts are left out."""
    broken: tuple[BrokenPlugin, ...] = ()


def modules_of(package: ModuleType) -> list[ModuleType]:
    """Import every module of a package of ours, in the order of their names."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return [import_module(f"{package.__name__}.{name}") for name in names]


def find(group: Group, own: Iterable[ModuleType], read: Callable[[ModuleType], Mapping[str, T]]) -> Found[T]:
    """Collect the parts of a group.

    Args:
        group: The entry-point group of other packages.
        own: Our modules.
        read: Return what a module holds, by name; raises ValueError for a module that holds it wrongly.

    Returns:
        All parts. A package that cannot be imported or read, or that takes a name that is in use, is in `broken`.

    Raises:
        ValueError: Two modules of ours use the same name, or one holds its part wrongly.
    """
    parts: dict[str, T] = {}
    places: dict[str, str] = {}
    packages: dict[str, str] = {}
    broken: list[BrokenPlugin] = []
    for module in own:
        parts |= _unused(read(module), module, places)
    for point in sorted(_installed()[group], key=_package_and_name):
        package = _package(point)
        try:
            module = _module(point)
            added = _unused(read(module), module, places)
            if not added:
                raise ValueError(f"the module {module.__name__} holds nothing for this group")
        except (Exception, SystemExit) as error:
            broken.append(BrokenPlugin(group, printable(point.name), package, _why(error)))
            _log.warning("%s", broken[-1])
        else:
            parts |= added
            packages |= dict.fromkeys(added, package)
    return Found(parts, packages, tuple(broken))


def classes_in(module: ModuleType, base: type[T], required: Sequence[str]) -> Iterator[type[T]]:
    """Yield the subclasses of `base` that a module defines, and not those that it imports.

    A class with an abstract method of its own is a base for others, and is left out.

    Args:
        module: The module.
        base: The class to look for.
        required: Names of the class variables that each must have.

    Raises:
        ValueError: A class lacks a method or one of these variables.
    """
    for found in vars(module).values():
        if not (isinstance(found, type) and issubclass(found, base) and found.__module__ == module.__name__):
            continue
        if any(getattr(own, "__isabstractmethod__", False) for own in vars(found).values()):
            continue
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        missing += [name for name in required if not hasattr(found, name)]
        if missing:
            raise ValueError(f"{module.__name__}.{found.__qualname__} lacks {', '.join(missing)}")
        yield found


@cache
def _installed() -> Mapping[Group, EntryPoints]:
    """Return the entry points of our groups, after one scan of every installed package's metadata."""
    every = entry_points()
    return {group: every.select(group=group) for group in Group}


def _module(point: EntryPoint) -> ModuleType:
    loaded = point.load()
    if not isinstance(loaded, ModuleType):
        raise TypeError(f"{point.value} is no module; an entry point of this group names a module")
    return loaded


def _unused(added: Mapping[str, T], module: ModuleType, places: dict[str, str]) -> Mapping[str, T]:
    """Return what a module adds, and note where it is from. Raises ValueError for a name that is in use."""
    for name in added:
        if name in places:
            raise ValueError(f"{name!r} is defined twice: in {places[name]} and in {module.__name__}; rename one")
    places |= dict.fromkeys(added, module.__name__)
    return added


def _package(point: EntryPoint) -> str:
    return printable(f"{point.dist.name} {point.dist.version}") if point.dist else ""


def _package_and_name(point: EntryPoint) -> tuple[str, str]:
    return _package(point), point.name


def _why(error: BaseException) -> str:
    return printable(str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")

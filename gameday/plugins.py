"""Find the parts of gameday: our own modules, and those that installed packages add by entry points.

An entry point names a module, which holds the same as one of ours in that place: a `Fault`, a `check` function and so
on (docs/extending.md). If it names a package, each of its modules counts. Installing a package is trusting it: its code
runs with the rights of the process that loads it, and faults and remediations run on the GPU nodes.

A package that cannot be loaded never stops the rest, because the undo of a dead run uses the same registries. It is
logged as a warning, and each registry decides what it means: a guardrail that cannot be loaded refuses every run.
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
    SETTINGS = "gameday.settings"
    MOMENTS = "gameday.moments"
    PREFLIGHT = "gameday.preflight"
    EVENTS = "gameday.events"
    UNDOS = "gameday.undos"
    AGENT_TASKS = "gameday.agent_tasks"
    PLANS = "gameday.plans"
    COMMANDS = "gameday.commands"
    DOCUMENTS = "gameday.documents"
    VIRTUAL_CLUSTERS = "gameday.virtual_clusters"


@dataclass(frozen=True)
class BrokenPlugin:
    """An entry point of an installed package that cannot be used."""

    group: Group
    name: str
    """The entry point's name."""
    package: str
    """The distribution's name and version; empty if its metadata has none."""
    why: str

    def __str__(self) -> str:
        of = f" of {self.package}" if self.package else ""
        return f"plug-in {self.name}{of} ({self.group}) cannot be used: {self.why}; mend or uninstall it"


@dataclass(frozen=True)
class Found(Generic[T]):
    """The parts that were found for one group."""

    parts: Mapping[str, T]
    """Parts by name: our own, then those of other packages."""
    packages: Mapping[str, str]
    """Distributions by the names of the parts they add; our own parts are not in it."""
    broken: tuple[BrokenPlugin, ...] = ()

    @property
    def documented(self) -> Mapping[str, T]:
        """The parts that our own pages describe: those of the core, and of the packages that are made with it."""
        others = {name for name, package in self.packages.items() if not package.startswith("gpu-gameday-")}
        return {name: part for name, part in self.parts.items() if name not in others}


def modules_of(package: ModuleType) -> list[ModuleType]:
    """Import every module of one of our packages, in the order of their names."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return [import_module(f"{package.__name__}.{name}") for name in names]


def find(group: Group, own: Iterable[ModuleType], read: Callable[[ModuleType], Mapping[str, T]]) -> Found[T]:
    """Collect the parts of a group.

    Args:
        group: The entry-point group of other packages.
        own: Our modules.
        read: Returns the parts of a module by name; raises ValueError if the module defines them wrongly.

    Returns:
        All parts. A package that cannot be imported or read, or that uses a name already taken, is in `broken`.

    Raises:
        ValueError: Two of our modules use the same name, or one defines its part wrongly.
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
            modules = _modules(point)
            found = [(one, read(one)) for one in modules]
            if not any(parts_of for _, parts_of in found):
                raise ValueError(f"the module {modules[0].__name__} holds nothing for this group")
            added = {name: part for one, parts_of in found for name, part in _unused(parts_of, one, places).items()}
        except (Exception, SystemExit) as error:
            broken.append(BrokenPlugin(group, printable(point.name), package, _why(error)))
            _log.warning("%s", broken[-1])
        else:
            parts |= added
            packages |= dict.fromkeys(added, package)
    return Found(parts, packages, tuple(broken))


def installed_packages() -> dict[str, str]:
    """Return the versions of the distributions that add parts, by their names."""
    return {point.dist.name: point.dist.version for points in _installed().values() for point in points if point.dist}


def broken_parts(package: str, groups: Iterable[Group]) -> list[BrokenPlugin]:
    """Import the parts of a distribution, and return those that cannot be imported.

    Args:
        package: The distribution's name.
        groups: The groups to look at.
    """
    broken = []
    for group in groups:
        for point in _installed()[group]:
            if point.dist and point.dist.name == package:
                try:
                    _modules(point)
                except (Exception, SystemExit) as error:
                    broken.append(BrokenPlugin(group, printable(point.name), _package(point), _why(error)))
    return broken


def classes_in(module: ModuleType, base: type[T], required: Sequence[str]) -> Iterator[type[T]]:
    """Yield the subclasses of `base` that a module defines itself, without those that it imports.

    A class that adds an abstract method is a base for others, and is left out.

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


def _modules(point: EntryPoint) -> list[ModuleType]:
    """Return the module that an entry point names, and the modules in it if it is a package."""
    loaded = point.load()
    if not isinstance(loaded, ModuleType):
        raise TypeError(f"{point.value} is no module; an entry point of this group names a module")
    return [loaded, *(modules_of(loaded) if hasattr(loaded, "__path__") else ())]


def _unused(added: Mapping[str, T], module: ModuleType, places: dict[str, str]) -> Mapping[str, T]:
    """Return the parts that a module adds, and remember where they are from. Raises ValueError for a name in use."""
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

"""Find and read detector profiles: shipped ones, and a team's own by path or from its folder."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from gameday.detectors.facts import DERIVED
from gameday.detectors.models import PLACEHOLDER, DetectorProfile, Fact, Rule
from gameday.documents.explain import explain
from gameday.documents.problems import dotted
from gameday.documents.read import decode, read
from gameday.documents.source import Path as Where
from gameday.documents.source import Source, parse
from gameday.errors import DocumentError, DocumentProblem
from gameday.faults.registry import parameter_models
from gameday.plan.fault import FaultParameters
from gameday.plugins import Group, find
from gameday.text import shown

KIND = "DetectorProfile"
"""The `kind:` that distinguishes a profile's file from a plan's."""


def known_detectors(folders: Sequence[Path] = ()) -> dict[str, Path]:
    """Map every profile's name to its file; a team's folder overrides a shipped one of the same name.

    Raises DocumentError for a folder that cannot be read.
    """
    found = dict(_packaged())
    for folder in folders:
        if not folder.is_dir():
            raise DocumentError(
                [DocumentProblem(str(folder), None, None, "", None, "no such folder of detector profiles")]
            )
        found |= {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    return found


@cache
def _packaged() -> Mapping[str, Path]:
    """Return by name the files of shipped profiles, and of those that other packages add (docs/extending.md)."""
    return find(Group.DETECTORS, [import_module("gameday.detectors.profiles")], _profiles_in).parts


def _profiles_in(package: ModuleType) -> Mapping[str, Path]:
    return {path.stem: path for folder in package.__path__ for path in sorted(Path(folder).glob("*.yaml"))}


def load_detector(name_or_path: str, folders: Sequence[Path] = ()) -> DetectorProfile:
    """Return the profile of this name, or in this file. Raises DocumentError, with a line for every problem."""
    return read_detector(find_detector(name_or_path, folders))


def find_detector(name_or_path: str, folders: Sequence[Path] = (), others: Sequence[str] = ()) -> Path:
    """Return the file of a profile. Raises DocumentError if there is none of this name.

    `others` are further words that the option takes.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) != 1:
        return path
    known = known_detectors(folders)
    if name_or_path in known:
        return known[name_or_path]
    near = difflib.get_close_matches(name_or_path[:64], [*others, *known], n=1, cutoff=0.5)
    suggestion = f"did you mean {near[0]}?" if near else f"known are: {', '.join(dict.fromkeys([*others, *known]))}"
    message = "no detector profile of this name, and no path of a .yaml file"
    raise DocumentError([DocumentProblem(name_or_path, None, None, "", None, message, suggestion)])


def read_detector(path: Path) -> DetectorProfile:
    """Read and validate one file. Raises nothing but DocumentError."""
    return _parsed(read(path), str(path))


@lru_cache(maxsize=64)
def _parsed(source: bytes, file: str) -> DetectorProfile:
    """Read a profile from its file's bytes: a season completes 100 plans by the same profile."""
    return parse_detector(parse(decode(source, file), file), file)


def parse_detector(parsed: Source, file: str) -> DetectorProfile:
    """Read a profile from a parsed file; `file` is only named in problems."""
    try:
        profile = DetectorProfile.model_validate(parsed.data)
    except ValidationError as error:
        raise DocumentError(explain(error, parsed, file, DetectorProfile)) from None
    if problems := list(_unknown_names(profile, parsed, file)):
        raise DocumentError(problems)
    return profile


def _unknown_names(profile: DetectorProfile, parsed: Source, file: str) -> Iterator[DocumentProblem]:
    """Yield what models cannot see: unknown fault types, parameters and values in rules."""
    known = parameter_models()
    if Path(file).suffix in (".yaml", ".yml") and Path(file).stem != profile.name:
        yield _problem(parsed, file, ("name",), profile.name, f"the file is called {Path(file).name}", "rename one")
    for number, rule in enumerate(profile.rules):
        where: Where = ("rules", number)
        for index, name in enumerate(rule.faults):
            if name not in known:
                hint = _close(name, list(known))
                yield _problem(parsed, file, (*where, "faults", index), name, "unknown fault type", hint)
        models = {name: known[name] for name in rule.faults if name in known}
        for fact, values in rule.when.items():
            for fault, model in models.items():
                yield from _wrong_fact(parsed, file, (*where, "when", fact), fault, model, values)
        yield from _wrong_reasons(rule, parsed, file, where, models)


def _wrong_reasons(
    rule: Rule, parsed: Source, file: str, where: Where, models: Mapping[str, type[FaultParameters]]
) -> Iterator[DocumentProblem]:
    """Yield the placeholders that nothing will fill."""
    reasons: dict[str, list[str | None]] = {
        "conditions": [condition.reason for condition in rule.conditions],
        "events": [event.reason for event in rule.events],
    }
    for part, written in reasons.items():
        for index, reason in enumerate(written):
            for name in PLACEHOLDER.findall(reason or ""):
                if not models or any(name not in _names(fault, model) for fault, model in models.items()):
                    of = " and ".join(models) or "a layer"
                    message = f"{{{name}}} is not a parameter of every fault of this rule ({of})"
                    yield _problem(parsed, file, (*where, part, index, "reason"), reason, message, None)


def _names(fault: str, model: type[FaultParameters]) -> list[str]:
    return [*model.model_fields, *DERIVED.get(fault, ())]


def _wrong_fact(
    parsed: Source, file: str, at: Where, fault: str, model: type[FaultParameters], values: tuple[Fact, ...]
) -> Iterator[DocumentProblem]:
    fact, derived = str(at[-1]), DERIVED.get(fault, {})
    if fact not in derived and fact not in model.model_fields:
        choices = _names(fault, model)
        message = f"a fault of type {fault} has no such parameter"
        yield _problem(parsed, file, at, fact, message, _close(fact, choices) or f"known: {', '.join(choices)}")
        return
    for index, value in enumerate(values):
        wrong = _not_one_of(value, derived[fact]) if fact in derived else _not_valid(value, model.model_fields[fact])
        if wrong:
            message = f"no {fact} of a fault of type {fault}: {wrong}"
            yield _problem(parsed, file, (*at, index), value, message, None)


def _not_one_of(value: Fact, choices: frozenset[str | int | None]) -> str:
    return "" if value in choices else f"it is one of {', '.join(sorted(repr(one) for one in choices))}"


def _not_valid(value: Fact, field: FieldInfo) -> str:
    """Return why the parameter's own type and bounds refuse the value; empty if they accept it unchanged."""
    type = _type_of(field)
    try:
        meant = type.dump_python(type.validate_python(value), mode="json")
        # Facts are compared as they are, so '79' is never 79.
        return "" if meant == value else f"write it as {meant!r}"
    except ValidationError as error:
        return str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")


def _type_of(field: FieldInfo) -> TypeAdapter[Any]:
    annotation: Any = field.annotation
    for constraint in field.metadata:
        annotation = Annotated[annotation, constraint]
    return TypeAdapter(annotation)


def _problem(
    parsed: Source, file: str, at: Where, value: object, message: str, suggestion: str | None
) -> DocumentProblem:
    line, column = parsed.place(at).value
    return DocumentProblem(file, line, column, dotted(at), shown(value), message, suggestion)


def _close(name: str, choices: list[str]) -> str | None:
    near = difflib.get_close_matches(name[:64], choices, n=1, cutoff=0.5)
    return f"did you mean `{near[0]}`?" if near else None

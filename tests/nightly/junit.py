"""The nightly's only store: JUnit files, which pytest writes of tests, and the nightly of a suite as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test in one suite of one round; `passed` is None where it was skipped."""

    test: str
    passed: bool | None
    why: str = ""


def read(file: Path) -> list[Outcome]:
    """Return the outcomes in a file, one a test. Raises ParseError (xml.etree.ElementTree)."""
    found: dict[str, Outcome] = {}
    for case in ElementTree.parse(file).iter("testcase"):
        one = _outcome(case)
        before = found.get(one.test)  # pytest writes an error of the teardown as a case of its own
        if before is None or before.passed is not False:
            found[one.test] = one
    return list(found.values())


def write(file: Path, suite: str, seconds: float, outcomes: list[Outcome]) -> None:
    """Write what became of a suite as a whole, in one step: the file is also the sign that it was played."""
    root = ElementTree.Element("testsuite", name=suite, time=f"{seconds:.1f}")
    for outcome in outcomes:
        case = ElementTree.SubElement(root, "testcase", name=outcome.test)
        if not outcome.passed:
            ElementTree.SubElement(case, "failure", message=_valid(outcome.why))
    partial = file.with_suffix(".part")
    ElementTree.ElementTree(root).write(partial, encoding="utf-8", xml_declaration=True)
    partial.replace(file)


def seconds(file: Path) -> float:
    """Return how long a suite took that `write` was given."""
    return float(ElementTree.parse(file).getroot().get("time", "0"))


def _outcome(case: ElementTree.Element) -> Outcome:
    test = _node_id(case)
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            lines = (found.get("message") or found.text or kind).strip().splitlines()
            return Outcome(test, False, lines[0] if lines else kind)
    return Outcome(test, None if case.find("skipped") is not None else True)


def _node_id(case: ElementTree.Element) -> str:
    """Return pytest's id of a test, by which it can be played again; a module that cannot be imported has its name."""
    name, file, owner = (case.get(key, "") for key in ("name", "file", "classname"))
    if not file:
        return f"{owner}: {name}" if owner else name
    module = file.removesuffix(".py").replace("/", ".")
    return "::".join([file, *filter(None, owner.removeprefix(module).split(".")), name])


def _valid(text: str) -> str:
    """Replace what XML cannot hold; a program's last words may be anything."""
    return "".join(char if char.isprintable() else " " for char in text)

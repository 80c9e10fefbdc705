"""Label selectors: the grammar `key in (a,b),!other,size>3`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kubesim.apiserver.names import qualified_problems, value_problems
from kubesim.errors import SelectorError

LabelTest = Callable[[Mapping[str, str]], bool]

# The commas between parentheses separate values.
_REQUIREMENTS = re.compile(r",(?![^(]*\))")
_WORD = r"[^=!(),<>\s]+"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<missing>{_WORD})"
    rf"|(?P<key>{_WORD})(?:\s*(?P<operator>==|!=|[=<>])\s*(?P<value>{_WORD})?|\s+(?P<set>in|notin)\s*"
    r"\((?P<values>[^()]*)\))?)\s*"
)
_INTEGER = re.compile(r"[+-]?\d+")


def parse(selector: str) -> list[LabelTest]:
    """Return a selector's tests, which must all hold. Raises SelectorError."""
    if not selector.strip():
        return []
    return [_test(text) for text in _REQUIREMENTS.split(selector)]


def _test(text: str) -> LabelTest:
    found = _REQUIREMENT.fullmatch(text)
    if found is None:
        raise SelectorError(
            f"unable to parse requirement: {text.strip()!r}: write key, !key, key=value or key in (a,b)"
        )
    key = found["key"] or found["missing"]
    if wrong := qualified_problems(key):
        raise SelectorError(f'unable to parse requirement: <nil>: Invalid value: "{key}": {"; ".join(wrong)}')
    if found["absent"]:
        return lambda labels: key not in labels
    operator = found["set"] or found["operator"]
    if operator is None:
        return lambda labels: key in labels
    given = found["values"].split(",") if found["set"] else [found["value"] or ""]
    values = frozenset(value.strip() for value in given)
    for value in sorted(values):
        if wrong := value_problems(value):
            raise SelectorError(f'unable to parse requirement: {key}: Invalid value: "{value}": {"; ".join(wrong)}')
    if operator in ("<", ">"):
        return _ordered(key, operator, found["value"] or "")
    if operator in ("notin", "!="):
        return lambda labels: key not in labels or labels[key] not in values
    return lambda labels: labels.get(key) in values


def _ordered(key: str, operator: str, value: str) -> LabelTest:
    """Return a test that a label is a whole number above or below another."""
    if not _INTEGER.fullmatch(value):
        raise SelectorError(f"unable to parse requirement: {key}{operator}{value}: the value must be an integer")
    bound = int(value)

    def test(labels: Mapping[str, str]) -> bool:
        text = labels.get(key, "")
        if not _INTEGER.fullmatch(text):
            return False
        return int(text) > bound if operator == ">" else int(text) < bound

    return test

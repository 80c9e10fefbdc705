"""Read the series that an alerting rule asks for out of its expression. Pure.

It is no parser: it knows selectors, and which of them comes first. A rule is called dead only where that is enough.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_STRING = r'"(?:\\.|[^"\\])*"' + r"|'(?:\\.|[^'\\])*'|`[^`]*`"
_NAME = r"(?<![\w:.$])[a-zA-Z_:][\w:]*"
_SELECTOR = re.compile(rf"(?P<metric>{_NAME})\s*\{{(?P<labels>(?:{_STRING}|[^}}\"'`])*)\}}")
_MATCHER = re.compile(rf"(?P<label>[a-zA-Z_]\w*)\s*(?P<how>=~|!~|!=|=)\s*(?P<value>{_STRING})")
_LABEL_LISTS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", re.IGNORECASE)
_BARE = re.compile(rf"(?P<metric>{_NAME})(?!\s*\()(?![\w:])")
_WORDS = frozenset(
    """and or unless by without on ignoring group_left group_right bool offset inf nan start end atan2 sum min max avg
    count topk bottomk quantile stddev stdvar group count_values limitk limit_ratio""".split()  # noqa: SIM905
)
_BORN_WITH_THE_FAULT = re.compile(r"^(kube_node_spec_taint|ALERTS|DCGM_EXP_.*|gameday_.*)$")
"""Metrics with series that exist only once there is a fault or a taint: that they are absent now means nothing."""


@dataclass(frozen=True)
class Selector:
    """A selector of series."""

    metric: str
    text: str
    """The selector as the rule has it."""
    matchers: tuple[tuple[str, str, str], ...] = ()
    """Label, operator and value of each matcher."""

    def accepts(self, label: str, value: str) -> bool:
        """Return True if a series with this label can be selected."""
        return all(_fits(how, wanted, value) for name, how, wanted in self.matchers if name == label)

    @property
    def appears_later(self) -> bool:
        """True for series that exist only once there is a fault."""
        return _BORN_WITH_THE_FAULT.match(self.metric) is not None


def _fits(how: str, wanted: str, value: str) -> bool:
    if how in ("=", "!="):
        return (wanted == value) is (how == "=")
    try:
        return (re.fullmatch(wanted, value) is not None) is (how == "=~")
    except re.error:  # RE2 knows expressions that Python does not
        return True


def selectors(query: str) -> list[Selector]:
    """Return the selectors of an expression, in their order."""
    found = [
        (one.start(), Selector(one["metric"], one[0], _matchers(one["labels"]))) for one in _SELECTOR.finditer(query)
    ]
    rest = _SELECTOR.sub(lambda one: " " * len(one[0]), query)
    for pattern in (re.compile(_STRING), _LABEL_LISTS):
        rest = pattern.sub(lambda one: " " * len(one[0]), rest)
    found += [
        (one.start(), Selector(one["metric"], one["metric"]))
        for one in _BARE.finditer(rest)
        if one["metric"].lower() not in _WORDS
    ]
    return [selector for _, selector in sorted(found, key=lambda one: one[0])]


def _matchers(labels: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((one["label"], one["how"], _unquoted(one["value"])) for one in _MATCHER.finditer(labels))


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] != "`" else text[1:-1]


def why_never(query: str, series: Mapping[str, int]) -> str:
    """Return why an expression cannot hold as things are; empty if it can, or if that cannot be said.

    Args:
        query: The expression.
        series: The number of series of each selector and of each bare metric, by its text.
    """
    asked = selectors(query)
    needed = asked if re.search(r"\bor\b", query) else asked[:1]
    dead = [one for one in needed if not one.appears_later and series.get(one.text, 1) == 0]
    if not needed or len(dead) < len(needed) or re.search(r"\babsent(_over_time)?\s*\(", query):
        return ""
    first = dead[0]
    if series.get(first.metric, 0) == 0:
        return f"there is no series of {first.metric}: nothing here exports it"
    return f"{first.metric} has series, but none that fits {first.text}"

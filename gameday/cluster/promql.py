"""Series that a PromQL expression needs before it can have a result.

It reads expressions from Prometheus' rules API: parsed by Prometheus itself, then printed without comments. Servers
before 3.0 do not offer the parsed tree (`/api/v1/parse_query`), so this module separates selectors from functions,
keywords and label lists, and knows only `or`, `and`, `unless` and `absent`. A part that it does not understand needs
nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_STRING = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'|`[^`]*`"
_TOKEN = re.compile(
    rf"(?P<blank>\s+|\#[^\n]*)|(?P<string>{_STRING})|(?P<braces>\{{(?:[^{{}}\"'`]|{_STRING})*\}})|(?P<range>\[[^][]*\])"
    r"|(?P<number>[0-9.][\w.]*)|(?P<name>[A-Za-z_:][\w:]*)|(?P<mark>.)",
    re.DOTALL,
)
# https://prometheus.io/docs/prometheus/latest/querying/operators/: the words before a list of labels, and those that
# are not metrics, like `sum` if its list of labels comes before its argument.
_BEFORE_LABELS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS = frozenset(
    {"bool", "offset", "atan2", "inf", "nan", "sum", "avg", "min", "max", "group", "stddev", "stdvar", "count",
     "count_values", "bottomk", "topk", "quantile", "limitk", "limit_ratio"}
)  # fmt: skip
_OF_NOTHING = frozenset({"absent", "absent_over_time"})


@dataclass(frozen=True, slots=True)
class Selector:
    """`up{job="x"}`: `metric` is empty if only the matchers in `text` select the series."""

    metric: str
    text: str


@dataclass(frozen=True, slots=True)
class AllOf:
    """Needs that must all have series before an expression has a result; without parts it needs no series."""

    parts: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Needs of which one is enough, as with `or`."""

    parts: tuple[Need, ...]


Need = Selector | AllOf | AnyOf


def needs(expression: str) -> Need:
    """Return the series without which the expression has no result."""
    found = (match for match in _TOKEN.finditer(expression) if match.lastgroup != "blank")
    return _Reader([(str(match.lastgroup), match.group()) for match in found]).alternatives()


class _Reader:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def alternatives(self) -> Need:
        """Read up to a closing parenthesis, a comma or the end; `or` binds weakest."""
        parts = [self._conditions()]
        while self._took_word("or"):
            parts.append(self._conditions())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _conditions(self) -> Need:
        parts = self._operand()
        while word := self._took_word("and", "unless"):
            operand = self._operand()
            parts += operand if word == "and" else []
        return AllOf(tuple(parts))

    def _operand(self) -> list[Need]:
        """Read everything that binds more tightly: each selector in it is needed."""
        parts: list[Need] = []
        while (token := self._peek()) and not self._ends_operand(token):
            self._at += 1
            kind, text = token
            if text == "(":
                parts += self._arguments()
            elif kind == "braces":
                parts.append(Selector("", text))
            elif kind == "name":
                parts += self._named(text)
        return parts

    def _named(self, name: str) -> list[Need]:
        following = self._peek()
        if following and following[1] == "(":
            self._at += 1
            arguments = self._arguments()
            return [] if name.lower() in _BEFORE_LABELS | _OF_NOTHING else arguments
        if name.lower() in _BEFORE_LABELS | _WORDS:
            return []
        if following and following[0] == "braces":
            self._at += 1
            return [Selector(name, name + following[1])]
        return [Selector(name, name)]

    def _arguments(self) -> list[Need]:
        """Read the arguments between parentheses, including the closing one."""
        parts = [self.alternatives()]
        while self._peek() == ("mark", ","):
            self._at += 1
            parts.append(self.alternatives())
        self._at += 1
        return parts

    def _took_word(self, *words: str) -> str:
        token = self._peek()
        if not token or token[0] != "name" or token[1].lower() not in words:
            return ""
        self._at += 1
        return token[1].lower()

    def _peek(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _ends_operand(self, token: tuple[str, str]) -> bool:
        kind, text = token
        return (kind == "mark" and text in "),") or (kind == "name" and text.lower() in ("or", "and", "unless"))

"""The part of LogQL that fault detectors use: a stream selector, line filters and label filters.

The rest of LogQL is refused by name, so that nobody looks for a mistake in a query that a real Loki answers.

Patterns run on Python's `re`, not RE2. What RE2 refuses (look-around, back-references) is refused here too, so that a
query that works in a rehearsal works on Loki. RE2 takes an inline flag like `(?i)` anywhere, but this only at the
beginning. RE2 is linear in time; here a pattern with nested repeats is not, which is acceptable on your own machine.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gameday.errors import LogQLError

LONGEST_QUERY = 5120  # characters; bounds the parser: detectors' queries have a few hundred

_TOKEN = re.compile(
    r'[ \t\r\n]+|(?P<string>"(?:[^"\\\n]|\\.)*"|`[^`]*`)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)'
    r"|(?P<sign>\|=|\|~|!=|!~|=~|=|\||\{|\}|,)"
)
_METRIC_QUERY = re.compile(r"\s*(?:[a-z_0-9]+\s*(?:(?:by|without)\s*)?\(|\(|[0-9.]+\s*(?:$|[-+*/%^=!<>]))")
"""The start of every metric query: a function, an aggregation, a bracket or a number. A log query begins with `{`."""
_STAGES = frozenset(
    (
        *("json", "logfmt", "pattern", "regexp", "unpack", "line_format", "label_format"),
        *("decolorize", "drop", "keep", "distinct", "unwrap"),
    )
)
_COMPARISONS = ("=", "!=", "=~", "!~")
_OTHER_SIGNS = "()[]<>#"
_NOT_RE2 = re.compile(r"\(\?(?:[=!]|<[=!])|\\[1-9]|\(\?P=")


@dataclass(frozen=True)
class Matcher:
    """A condition `name <sign> value` on a stream's labels, or behind `|` on an entry's."""

    name: str
    sign: str
    value: str
    test: Callable[[str], bool]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.test(labels.get(self.name, ""))


@dataclass(frozen=True)
class LineFilter:
    test: Callable[[str], bool]


@dataclass(frozen=True)
class Query:
    selector: tuple[Matcher, ...]
    stages: tuple[LineFilter | Matcher, ...]

    def selects(self, stream: Mapping[str, str]) -> bool:
        return all(matcher.matches(stream) for matcher in self.selector)

    def keeps(self, line: str, labels: Mapping[str, str]) -> bool:
        """Return True if the entry passes; `labels` are the stream's and the entry's structured metadata."""
        return all(
            stage.test(line) if isinstance(stage, LineFilter) else stage.matches(labels) for stage in self.stages
        )


def parse(text: str) -> Query:
    """Parse a LogQL query of the supported part. Raises LogQLError."""
    if len(text) > LONGEST_QUERY:
        raise LogQLError(f"parse error : query is longer than {LONGEST_QUERY} characters")
    if _METRIC_QUERY.match(text):
        raise _not_here("metric queries (rate, count_over_time, sum by, vector and the like)")
    return _Parser(text).query()


def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Parse a stream selector alone, as in the series endpoint's `match[]`. Raises LogQLError."""
    query = parse(text)
    if query.stages:
        raise LogQLError("parse error : only label matchers are allowed here")
    return query.selector


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._tokenise())
        self._next = 0

    def _tokenise(self) -> list[_Token]:
        tokens, at = [], 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if not found:
                if self._text[at] in _OTHER_SIGNS:
                    raise _not_here(f"the sign {self._text[at]} of LogQL")
                raise self._error(f"syntax error: unexpected {self._text[at]!r}", at)
            if found.lastgroup:
                tokens.append(_Token(found.lastgroup, found.group(), at))
            at = found.end()
        return [*tokens, _Token("end", "$end", at)]

    def query(self) -> Query:
        selector = self._selector()
        stages: list[LineFilter | Matcher] = []
        while self._peek().kind != "end":
            sign = self._take("|=", "|~", "!=", "!~", "|", expecting="a line filter or a label filter")
            if sign.text == "|":
                stages += self._label_filters()
            else:
                stages.append(self._line_filter(sign))
        if all(matcher.test("") for matcher in selector):
            raise LogQLError(
                "parse error : queries require at least one regexp or equality matcher that does not have an "
                'empty-compatible value. For instance, app=~".*" does not meet this requirement, but app=~".+" will'
            )
        return Query(selector, tuple(stages))

    def _selector(self) -> tuple[Matcher, ...]:
        self._take("{", expecting="{")
        matchers = []
        while self._peek().text != "}":
            matchers.append(self._matcher())
            if self._peek().text != "}":
                self._take(",", expecting="} or ,")
        self._take("}", expecting="}")
        return tuple(matchers)

    def _matcher(self) -> Matcher:
        name = self._take_kind("name", "IDENTIFIER")
        sign = self._take(*_COMPARISONS, expecting="= or != or =~ or !~")
        at = self._peek().at
        value = self._string()
        return Matcher(name.text, sign.text, value, self._label_test(sign.text, value, at))

    def _label_filters(self) -> list[Matcher]:
        name = self._peek()
        if name.text in _STAGES and self._tokens[self._next + 1].text not in _COMPARISONS:
            raise _not_here(f"the stage `| {name.text}`")
        filters = [self._matcher()]
        while self._peek().text in ("and", ","):
            self._next += 1
            filters.append(self._matcher())
        if self._peek().kind == "name":
            if self._peek().text == "or":
                raise _not_here("label filters joined by `or`")
            raise self._error(f"syntax error: unexpected {self._peek().text}")
        return filters

    def _line_filter(self, sign: _Token) -> LineFilter:
        tests = []
        while True:
            at = self._peek().at
            value = self._string()
            tests.append(self._compile(value, at).search if sign.text.endswith("~") else _containing(value))
            if self._peek().text != "or":
                break
            self._next += 1
        wanted = sign.text.startswith("|")
        return LineFilter(lambda line: any(test(line) for test in tests) is wanted)

    def _label_test(self, sign: str, value: str, at: int) -> Callable[[str], bool]:
        if sign in ("=", "!="):
            compare = operator.eq if sign == "=" else operator.ne
            return lambda found: bool(compare(found, value))
        full = self._compile(value, at).fullmatch
        return lambda found: (full(found) is not None) is (sign == "=~")

    def _compile(self, pattern: str, at: int) -> re.Pattern[str]:
        if refused := _NOT_RE2.search(pattern):
            raise self._error(f"error parsing regexp: invalid or unsupported Perl syntax: `{refused.group()}`", at)
        try:
            return re.compile(pattern.replace(r"\z", r"\Z"))
        except (re.error, RecursionError, OverflowError) as error:
            raise self._error(f"error parsing regexp: {error}", at) from None

    def _string(self) -> str:
        token = self._take_kind("string", "STRING")
        if token.text.startswith("`"):
            return token.text[1:-1]
        try:
            # Go's escapes that JSON lacks and that people use: \' \a \v \xNN.
            body = re.sub(r"\\x([0-9A-Fa-f]{2})", r"\\u00\1", token.text).replace(r"\'", "'")
            return str(json.loads(body.replace(r"\a", r"\u0007").replace(r"\v", r"\u000b")))
        except ValueError:
            raise self._error("invalid char escape", token.at) from None

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *wanted: str, expecting: str) -> _Token:
        token = self._peek()
        if token.kind != "sign" or token.text not in wanted:
            raise self._unexpected(token, expecting)
        self._next += 1
        return token

    def _take_kind(self, kind: str, expecting: str) -> _Token:
        token = self._peek()
        if token.kind != kind:
            raise self._unexpected(token, expecting)
        self._next += 1
        return token

    def _unexpected(self, token: _Token, expecting: str) -> LogQLError:
        shown = {"name": "IDENTIFIER", "string": "STRING"}.get(token.kind, token.text)
        return self._error(f"syntax error: unexpected {shown}, expecting {expecting}", token.at)

    def _error(self, what: str, at: int | None = None) -> LogQLError:
        before = self._text[: self._peek().at if at is None else at]
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        return LogQLError(f"parse error at line {line}, col {column}: {what}")


def _not_here(what: str) -> LogQLError:
    return LogQLError(
        f"the rehearsal's log store does not have {what}; a real Loki does. This one answers log queries: a stream "
        "selector, line filters, and label filters joined by `and`"
    )


def _containing(value: str) -> Callable[[str], bool]:
    return lambda line: value in line

"""Label selectors: the grammar `key in (a,b),!other,size>3`, with the real server's words for what does not parse."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kubesim.apiserver.names import qualified_problems, value_problems
from kubesim.errors import SelectorError

LabelTest = Callable[[Mapping[str, str]], bool]

_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+)")
_SYMBOLS = frozenset({"==", "!=", *"=!(),<>"})
_END = ""
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class _Requirement:
    """`operator` is one of in, notin, =, ==, !=, <, >, exists and !."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def problems(self) -> list[str]:
        found: list[str] = []
        for index, value in enumerate(self.values):
            if self.operator in ("<", ">") and not _INTEGER.fullmatch(value):
                hint = "for 'Gt', 'Lt' operators, the value must be an integer"
                found.append(f'values[{index}]: Invalid value: "{value}": {hint}')
        for index, value in enumerate(self.values):
            if wrong := value_problems(value):
                found.append(f'values[{index}][{self.key}]: Invalid value: "{value}": {"; ".join(wrong)}')
        return found

    def test(self) -> LabelTest:
        key, values = self.key, frozenset(self.values)
        match self.operator:
            case "exists":
                return lambda labels: key in labels
            case "!":
                return lambda labels: key not in labels
            case "notin" | "!=":
                return lambda labels: key not in labels or labels[key] not in values
            case "<" | ">":
                return self._ordered()
        return lambda labels: labels.get(key) in values

    def _ordered(self) -> LabelTest:
        key, above, bound = self.key, self.operator == ">", int(self.values[0])

        def test(labels: Mapping[str, str]) -> bool:
            text = labels.get(key, "")
            if not _INTEGER.fullmatch(text):
                return False
            return int(text) > bound if above else int(text) < bound

        return test


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._position = 0

    def _ahead(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else _END

    def _next(self) -> str:
        lexeme = self._ahead()
        self._position += 1
        return lexeme

    def requirements(self) -> list[_Requirement]:
        found: list[_Requirement] = []
        while self._ahead() != _END:
            if self._ahead() in _SYMBOLS - {"!"}:
                raise SelectorError(f"found '{self._ahead()}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            lexeme = self._next()
            if lexeme == _END:
                break
            if lexeme != ",":
                raise SelectorError(f"found '{lexeme}', expected: ',' or 'end of string'")
            if self._ahead() in (_SYMBOLS - {"!"}) | {_END}:
                raise SelectorError(f"found '{self._ahead()}', expected: identifier after ','")
        return found

    def _requirement(self) -> _Requirement:
        key = self._next()
        absent = key == "!"
        if absent:
            key = self._next()
        if key in _SYMBOLS or key == _END:
            raise SelectorError(f"found '{key}', expected: identifier")
        if wrong := qualified_problems(key):
            raise SelectorError(f'<nil>: Invalid value: "{key}": {"; ".join(wrong)}')
        if absent:
            return _Requirement(key, "!")
        if self._ahead() in (_END, ","):
            return _Requirement(key, "exists")
        operator = self._next()
        if operator not in ("in", "notin", "=", "==", "!=", "<", ">"):
            raise SelectorError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if operator in ("in", "notin") else {self._value()}
        made = _Requirement(key, operator, tuple(sorted(values)))
        problems = made.problems()
        if problems:
            raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
        return made

    def _value(self) -> str:
        if self._ahead() in (_END, ","):
            return ""
        lexeme = self._next()
        if lexeme in _SYMBOLS:
            raise SelectorError(f"found '{lexeme}', expected: identifier")
        return lexeme

    def _values(self) -> set[str]:
        """`(a,,b)`: empty places count as the empty string."""
        lexeme = self._next()
        if lexeme != "(":
            raise SelectorError(f"found '{lexeme}' expected: '('")
        found: set[str] = set()
        place = ""
        while True:
            lexeme = self._next()
            if lexeme in (",", ")"):
                found.add(place)
                place = ""
                if lexeme == ")":
                    return found
            elif place:
                raise SelectorError(f"found '{lexeme}', expected: ',' or ')'")
            elif lexeme in _SYMBOLS or lexeme == _END:
                expected = "',', or identifier" if found else "',', ')' or identifier"
                raise SelectorError(f"found '{lexeme}', expected: {expected}")
            else:
                place = lexeme


def parse(selector: str) -> list[LabelTest]:
    """The tests of a selector, all of which must hold. Raises SelectorError."""
    return [requirement.test() for requirement in _Parser(selector).requirements()]

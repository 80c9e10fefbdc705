"""Parse YAML text into plain data, and keep the line and column of every key and value.

It uses the parser's events instead of its loader. An event carries its line, and everything that a document has no
use for (tags, directives, a second document, deep nesting, aliases that multiply) is refused while it is read, before
anything is built from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError

from gameday.documents.problems import dotted
from gameday.errors import DocumentError, DocumentProblem
from gameday.text import shown

MAX_BYTES = 256 * 1024
"""A hundred times the size of the largest shipped plan."""
_MAX_DEPTH = 16
"""Deepest nesting; shipped plans have five levels, the rest leaves room for faults' own parameters."""
_MAX_VALUES = 10_000
"""The most values in a document, counted with expanded aliases, so that an alias of aliases cannot multiply."""
_BITS = 64
"""Bits of a whole number with its sign, as in Go; Python itself refuses to print very large ones."""
_NUMBERS = f"a whole number lies between -2^{_BITS - 1} and 2^{_BITS - 1}; put text in quotes"
# Control characters except tab and newline, lone surrogates, and the marks that reverse text in a terminal.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")

_REMEMBERED = 128
"""More than all shipped plans and detector profiles; a digest or a season reads them again for every run."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The start of an entry's key and of its value, each as (line, column) counted from 1."""

    key: tuple[int, int]
    """Line and column of the key; for an item of a list, of the start of the item."""
    value: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed document: its data, and the place of every entry by path."""

    data: dict[str, Any]
    places: dict[Path, Place]

    def place(self, path: Path) -> Place:
        """Return the entry's place, or that of the nearest parent that is in the file."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


@lru_cache(maxsize=_REMEMBERED)
def parse(text: str, file: str) -> Source:
    """Parse text that holds one YAML mapping.

    The same text of the same file gives the same object, so do not change it.

    Args:
        text: The document's text; hostile input.
        file: The file's name, for the messages.

    Raises:
        DocumentError: The text is anything else. No other exception is raised.
    """
    builder = _Builder(file)
    try:
        built = builder.document(text)
    except _Stop as stop:
        builder.problems.append(stop.problem)
    except YAMLError as error:
        builder.problems.append(_syntax_problem(error, text, file))
    except (ValueError, OverflowError, LookupError, AssertionError, AttributeError, TypeError) as error:
        # For some bad escapes, directives and numbers the parser raises built-in errors, which carry no place.
        builder.problems.append(DocumentProblem(file, 1, 1, "", None, f"this cannot be read as YAML: {error}"))
    if builder.problems:
        raise DocumentError(builder.problems)
    return Source(built.data, built.places)


class _Stop(Exception):
    """A problem after which reading on makes no sense."""

    def __init__(self, problem: DocumentProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(slots=True)
class _Built:
    """A value with everything inside it."""

    data: Any
    values: int = 1
    places: dict[Path, Place] = field(default_factory=dict)
    """Places by their path from this value, so that an alias can use them under another path."""

    def adopt(self, step: str | int, key: tuple[int, int], value: tuple[int, int], child: _Built) -> None:
        self.values += child.values
        self.places[(step,)] = Place(key, value)
        self.places.update({(step, *path): place for path, place in child.places.items()})


class _Builder:
    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[DocumentProblem] = []
        self._yaml = YAML(typ="safe", pure=True)
        self._anchors: dict[str, _Built] = {}
        self._values = 0

    def document(self, text: str) -> _Built:
        events: Iterator[Any] = iter(self._yaml.parse(text))
        next(events)  # StreamStart
        start = next(events)
        if not isinstance(start, DocumentStartEvent):
            raise self._stop(
                (1, 1), (), "the file is empty", "copy a shipped one: `gameday plans` and `gameday detectors` list them"
            )
        if start.version or start.tags:
            raise self._stop((1, 1), (), "YAML directives (%YAML, %TAG) are not allowed", "remove the % line")
        first = next(events)
        built = self._value(first, events, ())
        if not isinstance(built.data, dict):
            raise self._stop(_at(first), (), "a document is a mapping of keys to values", None, built.data)
        built.places[()] = Place(_at(first), _at(first))
        next(events)  # DocumentEnd
        after = next(events)
        if isinstance(after, DocumentStartEvent):
            raise self._stop(_at(after), (), "a second YAML document starts here", "keep one document in each file")
        return built

    def _value(self, event: Any, events: Iterator[Any], path: Path) -> _Built:
        if len(path) > _MAX_DEPTH:
            raise self._stop(_at(event), path[:4], f"nested deeper than {_MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            return self._count(self._alias(event, path), event, path)
        self._refuse_tag(event, path)
        if isinstance(event, ScalarEvent):
            built = self._count(_Built(self._scalar(event, path)), event, path)
        elif isinstance(event, SequenceStartEvent):
            built = self._sequence(event, events, path)
        else:
            built = self._mapping(event, events, path)
        if event.anchor:
            self._anchors[event.anchor] = built
        return built

    def _count(self, built: _Built, event: Any, path: Path) -> _Built:
        self._values += built.values
        if self._values > _MAX_VALUES:
            raise self._stop(_at(event), path, f"more than {_MAX_VALUES} values, aliases expanded")
        return built

    def _alias(self, event: Any, path: Path) -> _Built:
        if event.anchor not in self._anchors:
            raise self._stop(_at(event), path, f"alias *{event.anchor} comes before or inside its anchor")
        return self._anchors[event.anchor]

    def _refuse_tag(self, event: Any, path: Path) -> None:
        if event.tag is not None:
            raise self._stop(_at(event), path, f"YAML tags such as {event.tag} are not allowed", "remove the tag")

    def _sequence(self, start: Any, events: Iterator[Any], path: Path) -> _Built:
        built = self._count(_Built([]), start, path)
        for event in events:
            if isinstance(event, SequenceEndEvent):
                break
            item = self._value(event, events, (*path, len(built.data)))
            built.adopt(len(built.data), _at(event), _at(event), item)
            built.data.append(item.data)
        return built

    def _mapping(self, start: Any, events: Iterator[Any], path: Path) -> _Built:
        built = self._count(_Built({}), start, path)
        for event in events:
            if isinstance(event, MappingEndEvent):
                break
            key = self._key(event, path)
            value_event = next(events)
            value = self._value(value_event, events, (*path, key))
            if key in built.data:
                first = built.places[(key,)].key[0]
                message = f"the key is written twice, first in line {first}"
                self.problems.append(self._problem(_at(event), (*path, key), message, "keep one of them", value.data))
                continue
            # The parser places an empty value at the thing after it.
            at = _at(event) if value_event.start_mark.index == value_event.end_mark.index else _at(value_event)
            built.adopt(key, _at(event), at, value)
            built.data[key] = value.data
        return built

    def _key(self, event: Any, path: Path) -> str:
        if not isinstance(event, ScalarEvent):
            raise self._stop(_at(event), path, "a key must be plain text, not a list, a mapping or an alias")
        self._refuse_tag(event, path)
        key = self._scalar(event, path)
        if event.value == "<<" and event.implicit[0]:
            raise self._stop(_at(event), path, "merge keys (<<) are not allowed", "write the keys out")
        if not isinstance(key, str):
            raise self._stop(_at(event), path, "a key must be text", f"put it in quotes: '{event.value}'", key)
        return key

    def _scalar(self, event: Any, path: Path) -> Any:
        if unsafe := _UNSAFE.search(event.value):
            raise self._stop(
                _at(event), path, f"the text holds the unprintable character U+{ord(unsafe.group()):04X}", "remove it"
            )
        if not event.implicit[0]:
            return event.value
        tag = str(self._yaml.resolver.resolve(ScalarNode, event.value, (True, False))).rpartition(":")[2]
        node = ScalarNode(tag, event.value)
        try:
            match tag:
                case "int":
                    number: int = self._yaml.constructor.construct_yaml_int(node)
                    if number.bit_length() < _BITS:
                        return number
                case "float":
                    return self._yaml.constructor.construct_yaml_float(node)
                case "bool":
                    return self._yaml.constructor.construct_yaml_bool(node)
                case "null":
                    return None
                case _:
                    return event.value
        except (ValueError, LookupError):
            pass
        raise self._stop(_at(event), path, "this number cannot be read", _NUMBERS, event.value)

    def _stop(
        self, at: tuple[int, int], path: Path, message: str, suggestion: str | None = None, value: Any = ...
    ) -> _Stop:
        return _Stop(self._problem(at, path, message, suggestion, value))

    def _problem(
        self, at: tuple[int, int], path: Path, message: str, suggestion: str | None, value: Any
    ) -> DocumentProblem:
        return DocumentProblem(
            self.file, at[0], at[1], dotted(path), None if value is ... else shown(value), message, suggestion
        )


def _at(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _syntax_problem(error: YAMLError, text: str, file: str) -> DocumentProblem:
    if isinstance(error, ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        return DocumentProblem(
            file, line, column, "", None, f"character U+{error.character:04X} is not allowed in YAML"
        )
    if not isinstance(error, MarkedYAMLError):
        return DocumentProblem(file, 1, 1, "", None, "this cannot be read as YAML")
    # If the file ends too early, the mistake is where the unfinished part began.
    ended = "unexpected end of stream" in (error.problem or "")
    mark = (error.context_mark if ended else None) or error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    cause = ": ".join(part for part in (error.context, error.problem) if part)
    return DocumentProblem(file, line, column, "", None, f"not YAML: {cause}", _syntax_suggestion(error.problem or ""))


def _syntax_suggestion(problem: str) -> str | None:
    if "'\\t'" in problem or "tab" in problem:
        return "indent with spaces; YAML forbids tabs there"
    if "mapping values are not allowed" in problem:
        return "put text that holds `: ` in quotes, and check the indentation"
    if "could not find expected ':'" in problem:
        return "a key is followed by `: `"
    return None

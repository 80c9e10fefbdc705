"""Events that other packages define, and those of packages that are not installed here."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import orjson
from pydantic import ConfigDict, ValidationError

from gameday.history.events import RECORD, Record
from gameday.history.events.model import EventModel
from gameday.plugins import Found, Group, classes_in, find


class UnknownEvent(EventModel):
    """An event of a kind that no installed package defines; it keeps what the history says of it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str


@cache
def found_events() -> Found[type[EventModel]]:
    """Return the events of other packages by their kinds."""
    return find(Group.EVENTS, (), _events_in)


def read_record(line: bytes) -> Record:
    """Return the record of a line whose event is none of the core's.

    Raises:
        ValueError: It is no record, or its kind is known and the rest does not fit.
    """
    try:
        written = orjson.loads(line)
        kind = written["event"]["kind"]
        if not isinstance(kind, str) or kind in _own_kinds():
            raise ValueError(f"no event {kind!r}")
        event = found_events().parts.get(kind, UnknownEvent).model_validate(written["event"])
        return RECORD.validate_python({**written, "event": event})
    except (TypeError, KeyError, ValidationError) as error:
        raise ValueError(f"no record: {error}") from None


@cache
def _own_kinds() -> frozenset[str]:
    every = [one for one in EventModel.__subclasses__() if one.__module__.startswith("gameday.history.events.")]
    return frozenset(one.model_fields["kind"].default for one in every if "kind" in one.model_fields)


def _events_in(module: ModuleType) -> dict[str, type[EventModel]]:
    return {event.model_fields["kind"].default: event for event in classes_in(module, EventModel, ())}

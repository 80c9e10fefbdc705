"""Objects in memory, with every change in an append-only log and offered to the watchers.

Objects are dicts without `kind` and `apiVersion`, which never change once stored: a write stores a new dict. Each is
kept with its JSON, so that reads, lists and watches join bytes instead of encoding.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import orjson

from kubesim.apiserver.errors import StatusError
from kubesim.apiserver.resources import BY_NAME

Json = dict[str, Any]
log = logging.getLogger(__name__)

# Events kept per collection for watches that resume; about as many as in a real server's watch cache at this load.
EVENT_WINDOW = 10_000
# The log is rewritten once it has grown by this much since the last rewrite.
COMPACT_AFTER_BYTES = 64 * 1024 * 1024


class Stored:
    """A version of an object: the dict, its JSON after `{"kind":…,"apiVersion":…,`, and its version."""

    __slots__ = ("_obj", "name", "namespace", "rv", "tail")

    def __init__(self, obj: Json, rv: int) -> None:
        meta = obj["metadata"]
        self._obj: Json | None = obj
        self.rv = rv
        self.namespace: str = meta.get("namespace", "")
        self.name: str = meta["name"]
        self.tail = orjson.dumps(obj)[1:]

    @property
    def obj(self) -> Json:
        """The dict, which is decoded at each call once a newer version has taken this one's place."""
        return self.fresh() if self._obj is None else self._obj

    def release(self) -> None:
        """Drop the dict, which takes five times the memory of the JSON."""
        self._obj = None

    def fresh(self) -> Json:
        """Return a deep copy, made from the JSON."""
        copied: Json = orjson.loads(b"{" + self.tail)
        return copied


class Form(Protocol):
    """A form of objects that a caller wants; hashable, so that events are encoded once per form."""

    def encode(self, stored: Stored) -> bytes:
        """Return one object as JSON."""


def watch_line(kind: str, encoded: bytes) -> bytes:
    """Return a line of a watch response."""
    return b'{"type":"' + kind.encode() + b'","object":' + encoded + b"}\n"


class Event:
    """A change. `new` is the last state if the type is DELETED; `old` is None for a creation."""

    __slots__ = ("_encoded", "new", "old", "rv", "type")

    def __init__(self, kind: str, rv: int, new: Stored, old: Stored | None) -> None:
        self.type = kind
        self.rv = rv
        self.new = new
        self.old = old
        self._encoded: dict[Form, bytes] = {}

    def encoded(self, form: Form) -> bytes:
        """Return the watch line in a form, encoded once and shared by the watchers that ask for that form."""
        line = self._encoded.get(form)
        if line is None:
            line = self._encoded[form] = watch_line(self.type, form.encode(self.new))
        return line

    def forget(self) -> None:
        """Drop the encoded lines after delivery; a watch that resumes encodes again."""
        self._encoded.clear()


Listener = Callable[[Event], None]


class Collection:
    """All objects of one kind, by namespace, with the recent events."""

    def __init__(self) -> None:
        self.by_namespace: dict[str, dict[str, Stored]] = {}
        self.events: deque[Event] = deque(maxlen=EVENT_WINDOW)
        self.window_starts_after = 0
        self.last_rv = 0
        self.listeners: set[Listener] = set()

    def get(self, namespace: str, name: str) -> Stored | None:
        """Return the object, or None."""
        items = self.by_namespace.get(namespace)
        return items.get(name) if items else None

    def all(self, namespace: str = "") -> Iterator[Stored]:
        """Return the objects of one namespace, or all, in key order as in etcd."""
        spaces = [namespace] if namespace else sorted(self.by_namespace, key=lambda space: f"{space}/")
        for space in spaces:
            items = self.by_namespace.get(space, {})
            for name in sorted(items):
                yield items[name]

    def count(self) -> int:
        """Return the number of objects."""
        return sum(len(items) for items in self.by_namespace.values())

    def record(self, event: Event) -> None:
        """Keep an event and pass it to every listener."""
        if len(self.events) == EVENT_WINDOW:
            self.window_starts_after = self.events[0].rv
        self.events.append(event)
        self.last_rv = event.rv
        for listener in tuple(self.listeners):
            listener(event)
        event.forget()

    def put(self, stored: Stored) -> None:
        """Keep an object."""
        self.by_namespace.setdefault(stored.namespace, {})[stored.name] = stored

    def drop(self, namespace: str, name: str) -> Stored | None:
        """Forget an object."""
        items = self.by_namespace.get(namespace)
        if not items:
            return None
        gone = items.pop(name, None)
        if not items:
            del self.by_namespace[namespace]
        return gone


class Store:
    """Every collection, the version counter and the log.

    With a `path` of None nothing is kept on disk. A write has reached the kernel before it is acknowledged, so a killed
    process loses nothing; a crash of the machine may lose writes, as there is no fsync.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.collections: dict[str, Collection] = {key: Collection() for key in BY_NAME}
        self.rv = 1
        self.observers: list[Callable[[str, Event], None]] = []
        self._path = path
        self._fd = -1
        self._grown = 0
        if path is not None:
            self._load(path)
            self._compact(path)

    def __getitem__(self, key: str) -> Collection:
        return self.collections[key]

    def get(self, key: str, namespace: str, name: str) -> Stored | None:
        """Return the object, or None."""
        return self.collections[key].get(namespace, name)

    def put(self, key: str, obj: Json) -> Stored:
        """Create or replace; write metadata.resourceVersion into `obj`, which must not be changed afterwards."""
        collection = self.collections[key]
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        stored = Stored(obj, self.rv)
        self._append(b'{"r":"%b","v":%d,"o":{%b}\n' % (key.encode(), self.rv, stored.tail))
        old = collection.get(stored.namespace, stored.name)
        collection.put(stored)
        self._tell(key, Event("MODIFIED" if old else "ADDED", self.rv, stored, old))
        return stored

    def delete(self, key: str, namespace: str, name: str) -> Stored | None:
        """Remove an object; the DELETED event has the last state under the version of the removal."""
        collection = self.collections[key]
        old = collection.get(namespace, name)
        if old is None:
            return None
        self.rv += 1
        last = Stored({**old.obj, "metadata": {**old.obj["metadata"], "resourceVersion": str(self.rv)}}, self.rv)
        self._append(orjson.dumps({"r": key, "v": self.rv, "d": [namespace, name]}) + b"\n")
        collection.drop(namespace, name)
        self._tell(key, Event("DELETED", self.rv, last, old))
        return last

    def close(self) -> None:
        """Close the log."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _tell(self, key: str, event: Event) -> None:
        self.collections[key].record(event)
        for observer in self.observers:
            observer(key, event)
        # The window of events keeps thousands of versions, which only a watch that resumes needs.
        if event.old:
            event.old.release()
        if event.type == "DELETED":
            event.new.release()

    def _append(self, line: bytes) -> None:
        if self._fd < 0:
            return
        whole = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(self._fd, whole)
            raise StatusError(500, "InternalError", f"{self._path} cannot be written: {error.strerror}") from error
        self._grown += len(line)
        if self._grown > COMPACT_AFTER_BYTES and self._path is not None:
            # A write is applied only after this line; the rewrite must not lose it.
            self._compact(self._path, pending=line)

    def _load(self, path: Path) -> None:
        if not path.exists():
            return
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    log.warning("%s line %d was cut short by a kill and is dropped", path, number)
                    break
                self._replay(orjson.loads(line))
        for collection in self.collections.values():
            collection.window_starts_after = collection.last_rv

    def _replay(self, entry: Json) -> None:
        self.rv = max(self.rv, entry["v"])
        collection = self.collections.get(entry.get("r", ""))
        if collection is None:
            return
        collection.last_rv = entry["v"]
        if "o" in entry:
            collection.put(Stored(entry["o"], entry["v"]))
        elif "d" in entry:
            collection.drop(*entry["d"])

    def _compact(self, path: Path, pending: bytes = b"") -> None:
        """Write the live state to a new log and swap it in."""
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as out:
            for key, collection in self.collections.items():
                for stored in collection.all():
                    out.write(b'{"r":"%b","v":%d,"o":{%b}\n' % (key.encode(), stored.rv, stored.tail))
                # A line without an object or a deletion only records the version that this collection has reached.
                out.write(orjson.dumps({"r": key, "v": max(collection.last_rv, 1)}) + b"\n")
            out.write(orjson.dumps({"v": self.rv}) + b"\n")
            out.write(pending)
        self.close()
        fresh.replace(path)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        with contextlib.suppress(OSError):
            path.chmod(0o600)
        self._fd = fd
        self._grown = 0

"""Loki: lines of a time range, page by page, and a tail that loses nothing when the store restarts.

Loki's tail alone is not enough: it breaks with the connection, and late lines (from a shipper that catches up after an
outage) may have earlier times than lines already seen. `LogFollower` therefore reads a range again at every connection,
and sometimes in between, and drops what it has already delivered.
"""

from __future__ import annotations

import heapq
import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import ValidationError
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_websocket
from websockets.sync.connection import Connection

from gameday.cluster.back_off import pause_s
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.http import Answer, HttpAdapter
from gameday.cluster.http_errors import excerpt
from gameday.cluster.profile import ClusterProfile
from gameday.errors import AdapterError

log = logging.getLogger(__name__)

_RANGE = "loki/api/v1/query_range"
_TAIL = "loki/api/v1/tail"
_LABELS = "loki/api/v1/labels"
_PAGE_LINES = 1000
_BACK_OFF_S = (0.2, 5.0)
_ENDS_WITHIN_S = 5.0
_WITHOUT_TAIL = 2
"""Failures of the tail in a row after which the range is read; after one, the store may have just come back."""
RANGE_EVERY_S = 5.0
"""Interval of the queries to a store with a tail that cannot be opened: a line is late by as much, and each query
reads two minutes of the wanted lines. Our choice."""
# A frame holds the lines of one flush; a line is at most 256 KB by Loki's default limits_config.max_line_size.
_LARGEST_FRAME_BYTES = 16 * 1024 * 1024
_NS_DIGITS = 19  # until the year 2286
# How far ahead a shipper's clock may be: Loki refuses lines 10 minutes ahead (creation_grace_period).
_AHEAD_NS = 600 * 10**9
# The newest lines are remembered to recognise repetitions; this many take 36 MB.
_MOST_REMEMBERED = 200_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log store."""

    ns: int
    """Unix time, nanoseconds."""
    labels: tuple[tuple[str, str], ...]
    """The stream's labels and the entry's structured metadata together, as Loki shows them; sorted."""
    text: str

    @property
    def at(self) -> datetime:
        """The time of the line, to the microsecond."""
        return datetime.fromtimestamp(self.ns // 10**9, UTC).replace(microsecond=self.ns % 10**9 // 1000)

    def label(self, name: str) -> str | None:
        """Return the label's value, None if the line has no such label."""
        return next((value for key, value in self.labels if key == name), None)


class _Stream(Answer):
    stream: dict[str, str]
    values: list[Any]

    def lines(self) -> Iterator[LogLine | None]:
        labels = tuple(sorted(self.stream.items()))
        return (_line(labels, value) for value in self.values)


def _line(labels: tuple[tuple[str, str], ...], entry: object) -> LogLine | None:
    """Return the line of an entry, [nanoseconds, line]; None for anything else.

    A third member is structured metadata if Loki separates that; otherwise it is in the labels.
    """
    match entry:
        case [str() as ns, str() as text, *_] if ns.isascii() and ns.isdecimal() and len(ns) <= _NS_DIGITS:
            return LogLine(int(ns), labels, text)
    return None


class _Data(Answer):
    result: list[Any]


class _LabelsAnswer(Answer):
    data: tuple[str, ...] = ()


class _RangeAnswer(Answer):
    data: _Data


class _Frame(Answer):
    streams: list[Any] | None = None
    dropped_entries: list[dict[str, Any]] | None = None


class Followed(StrEnum):
    """The ways in which a log is followed."""

    TAIL = "tail"
    """The store sends each line as it comes."""
    RANGE = "range"
    """The newest lines are queried again and again, because a proxy in front of the store does not serve the tail."""


def _uncounted(_: int) -> None:
    """Skip unreadable parts without counting them."""


def nanoseconds(at: datetime) -> int:
    """Return the Unix time of an aware datetime, exact to the microsecond."""
    return int(at.timestamp()) * 10**9 + at.microsecond * 1000


class LogStore(HttpAdapter):
    """A Loki. Methods raise AdapterError, with status 400 for a query that Loki cannot parse."""

    def query_range(
        self,
        query: str,
        start_ns: int,
        end_ns: int,
        page: int = _PAGE_LINES,
        on_unreadable: Callable[[int], None] = _uncounted,
    ) -> Iterator[LogLine]:
        """Yield every line with start <= time < end, oldest first, even beyond the store's limit per answer.

        Args:
            query: LogQL without metrics.
            start_ns: Unix time.
            end_ns: Unix time.
            page: Lines to ask for at a time.
            on_unreadable: Called with the number of unreadable streams and entries, which are skipped.

        Raises:
            AdapterError: Also if more lines have the same time than the store hands out.
        """
        delivered: set[LogLine] = set()
        while start_ns < end_ns:
            found = self._page(query, start_ns, end_ns, page)
            lines = _sorted(found, on_unreadable)
            yield from (line for line in lines if line not in delivered)
            if len(found) < page:
                return
            last = lines[-1].ns if lines else start_ns
            # If all lines have one time, only a larger page gets past them; the store refuses a page that is too large.
            if last == start_ns:
                page *= 2
            delivered = {line for line in lines if line.ns == last}
            start_ns = last

    def labels(self) -> set[str]:
        """Return the names of the index labels of all lines of the last hours (Loki's default window: 6 h)."""
        return set(self.http.get_as(_LabelsAnswer, _LABELS).data)

    def _page(self, query: str, start_ns: int, end_ns: int, limit: int) -> list[LogLine | None]:
        parameters = {"query": query, "start": start_ns, "end": end_ns, "limit": limit, "direction": "forward"}
        answer = self.http.get_as(_RangeAnswer, _RANGE, parameters, call="GET query_range")
        return _lines_of(answer.data.result)

    def open_tail(self, query: str, start_ns: int) -> ClientConnection:
        """Return a websocket for Loki's tail frames; `start_ns` is a Unix time. Raises AdapterError."""
        request = self.http.client.build_request("GET", _TAIL, params={"query": query, "start": start_ns})
        request = next(self.http.credentials.auth_flow(request))
        headers = {
            name: request.headers[name] for name in ("Authorization", "X-Scope-OrgID") if name in request.headers
        }
        url = request.url.copy_with(scheme="wss" if request.url.scheme == "https" else "ws")
        endpoint = self.http.endpoint
        trust = None
        if url.scheme == "wss":
            trust = ssl.create_default_context(cafile=str(endpoint.ca_file) if endpoint.ca_file else None)
        self.http.counter.add("TAIL", sent=len(str(url)), received=0)
        try:
            return connect_websocket(
                str(url),
                ssl=trust,
                additional_headers=headers,
                user_agent_header="gpu-gameday",
                proxy=True if self.http.client.trust_env else None,
                open_timeout=endpoint.timeout_s,
                close_timeout=1,
                max_size=_LARGEST_FRAME_BYTES,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            raise self.http.error(
                _TAIL, f"{status}: {excerpt(bytes(error.response.body or b''))}", status=status
            ) from None
        except (OSError, WebSocketException) as error:
            cause = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            raise self.http.error(_TAIL, cause.lower(), "is the log store running, and is the URL its own?") from None

    def read_frame(self, message: str | bytes, on_unreadable: Callable[[int], None]) -> tuple[list[LogLine], bool]:
        """Return a tail frame's lines, oldest first, and True if the store dropped some. Raises AdapterError.

        `on_unreadable` is called with the number of unreadable streams and entries, which are skipped.
        """
        self.http.counter.add_bytes(len(message))
        try:
            frame = _Frame.model_validate(json.loads(message))
        except (ValueError, RecursionError):
            raise self.http.error(_TAIL, "a frame is not Loki's", "is the URL a log store's?") from None
        return _sorted(_lines_of(frame.streams or []), on_unreadable), bool(frame.dropped_entries)


def _lines_of(streams: Iterable[object]) -> list[LogLine | None]:
    """Return the lines of all streams; None for each stream or entry that is unreadable."""
    lines: list[LogLine | None] = []
    for stream in streams:
        try:
            lines += _Stream.model_validate(stream).lines()
        except ValidationError:
            lines.append(None)
    return lines


def _sorted(found: list[LogLine | None], on_unreadable: Callable[[int], None]) -> list[LogLine]:
    lines = [line for line in found if line]
    if len(lines) < len(found):
        on_unreadable(len(found) - len(lines))
    return sorted(lines, key=lambda line: line.ns)


class LogFollower:
    """Every line of a query from one moment on, each once, for as long as `lines` is iterated."""

    def __init__(
        self,
        store: LogStore,
        query: str,
        since_ns: int,
        *,
        overlap_s: float = 120.0,
        recheck_s: float = 30.0,
        on_connected: Callable[[Followed | None], None] = lambda _: None,
        on_unreadable: Callable[[int], None] = _uncounted,
    ) -> None:
        """Prepare to follow; nothing is sent until `lines` is iterated.

        Args:
            store: The log store.
            query: LogQL without metrics.
            since_ns: Unix time of the oldest line.
            overlap_s: Seconds by which a line may reach the store late and still be found.
            recheck_s: Seconds after which the range is read again while the tail seems well.
            on_connected: Called with the way of following once all lines so far are read, and with None when it ends.
            on_unreadable: Called with the number of unreadable streams and entries, each time there are some.
        """
        self._store = store
        self._query = query
        self._since_ns = since_ns
        self._overlap_ns = int(overlap_s * 1e9)
        self._recheck_s = recheck_s
        self._on_connected = on_connected
        self._on_unreadable = on_unreadable
        self._read_until = since_ns
        self._delivered: set[int] = set()
        self._by_age: list[tuple[int, int]] = []
        self._stopping = threading.Event()
        self._socket: Connection | None = None
        self._followed: Followed | None = None
        self._is_lost = self._is_range_told = False
        self._without_tail = 0

    def stop(self) -> None:
        """End `lines`, from any thread."""
        self._stopping.set()
        if socket := self._socket:
            with suppress(OSError, WebSocketException):
                socket.close()

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines as they come, until `stop`; it waits through outages.

        Raises:
            AdapterError: Loki cannot parse the query.
        """
        failures = 0
        try:
            while not self._stopping.is_set():
                opened_at = time.monotonic()
                try:
                    with self._store.open_tail(self._query, self._read_until) as socket:
                        self._socket, opened_at = socket, time.monotonic()
                        yield from self._fill()
                        self._follows(Followed.TAIL)
                        yield from self._tail(socket)
                except (AdapterError, OSError, WebSocketException) as error:
                    # If a proxy closes the tail at once, again and again, the tail counts as missing.
                    if self._socket is not None and time.monotonic() - opened_at > RANGE_EVERY_S:
                        failures = self._without_tail = 0
                    failures += 1
                    yield from self._read_range(error)
                finally:
                    self._socket = None
                is_read = self._followed is Followed.RANGE
                self._stopping.wait(RANGE_EVERY_S if is_read else pause_s(failures, *_BACK_OFF_S))
        finally:
            self._follows(None)

    def _read_range(self, error: Exception) -> Iterator[LogLine]:
        """Read the newest lines from a store, because following its tail failed with `error`.

        Raises:
            AdapterError: Loki cannot parse the query.
        """
        if self._stopping.is_set():
            return
        try:
            yield from self._fill()
        except AdapterError as range_error:
            # A 400 for the tail alone may come from Loki's max_concurrent_tail_requests, or from a proxy.
            if range_error.status == 400:
                raise
            self._without_tail = 0
            self._lost(range_error)
            return
        self._without_tail += 1
        if self._without_tail < _WITHOUT_TAIL:
            self._lost(error)
            return
        if not self._is_range_told:
            self._is_range_told = True
            log.warning("the log store's tail fails, so its query_range is read every %g s: %s", RANGE_EVERY_S, error)
        self._follows(Followed.RANGE)

    def _lost(self, error: Exception) -> None:
        if not self._is_lost and not self._stopping.is_set():
            log.warning("log store lost, trying again: %s", error)
        self._is_lost = True
        self._follows(None)

    def _follows(self, how: Followed | None) -> None:
        self._is_lost = self._is_lost and how is None
        self._followed = how
        self._on_connected(how)

    def _tail(self, socket: Connection) -> Iterator[LogLine]:
        recheck_at = time.monotonic() + self._recheck_s
        while not self._stopping.is_set():
            dropped = False
            try:
                message = socket.recv(timeout=max(0.0, recheck_at - time.monotonic()))
                lines, dropped = self._store.read_frame(message, self._on_unreadable)
                yield from self._fresh(lines)
            except TimeoutError:
                pass
            if dropped or time.monotonic() >= recheck_at:
                if self._is_range_told:
                    self._is_range_told = False
                    log.warning("the log store's tail is followed again")
                while (yield from self._fill_beside(socket)):
                    pass
                recheck_at = time.monotonic() + self._recheck_s

    def _fill_beside(self, socket: Connection) -> Generator[LogLine, None, bool]:
        """Read the range, and after each page the new lines of the tail, because a flood has many pages.

        Return True if the store dropped some of the tail meanwhile.
        """
        dropped = False
        for number, line in enumerate(self._fill(), 1):
            yield line
            if number % _PAGE_LINES == 0:
                with suppress(TimeoutError):
                    while True:
                        lines, some_dropped = self._store.read_frame(socket.recv(timeout=0), self._on_unreadable)
                        dropped |= some_dropped
                        yield from self._fresh(lines)
        return dropped

    def _fill(self) -> Iterator[LogLine]:
        asked_at = time.time_ns()
        start = max(self._since_ns, self._read_until - self._overlap_ns)
        end = asked_at + _AHEAD_NS
        yield from self._fresh(self._store.query_range(self._query, start, end, on_unreadable=self._on_unreadable))
        # Only a whole range counts as read; a broken one is requested again.
        self._read_until = max(self._read_until, asked_at)
        self._forget()

    def _fresh(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        for line in lines:
            key = hash(line)
            if key not in self._delivered and line.ns >= self._since_ns:
                # Remembered before it is handed over: a consumer that stops has received the line.
                self._delivered.add(key)
                heapq.heappush(self._by_age, (line.ns, key))
                yield line

    def _forget(self) -> None:
        """Forget the lines that no later range can bring again."""
        oldest = self._read_until - 2 * self._overlap_ns
        while self._by_age and (self._by_age[0][0] < oldest or len(self._by_age) > _MOST_REMEMBERED):
            self._delivered.discard(heapq.heappop(self._by_age)[1])


class LogTail:
    """A follower's lines, handed over in a separate thread until `stop`."""

    def __init__(
        self, follower: LogFollower, on_line: Callable[[LogLine], None], on_refused: Callable[[AdapterError], None]
    ) -> None:
        """Start the thread.

        Args:
            follower: Finds the lines.
            on_line: Called with every line as it comes.
            on_refused: Called once if Loki cannot parse the query; then no line comes.
        """
        self._follower = follower
        self._on_line = on_line
        self._on_refused = on_refused
        self._thread = threading.Thread(target=self._follow, name="log-tail", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the tail."""
        self._follower.stop()
        self._thread.join(_ENDS_WITHIN_S)

    def _follow(self) -> None:
        try:
            for line in self._follower.lines():
                self._on_line(line)
        except AdapterError as error:
            self._on_refused(error)


class Loki(LogStore):
    """The kernel log of a cluster, by the labels in its profile."""

    def __init__(self, profile: ClusterProfile, counter: CallCounter | None = None) -> None:
        super().__init__(profile.loki, counter)
        self._profile = profile

    def node_lines(self, node: str, *, containing: str, start: datetime, end: datetime) -> list[LogLine]:
        """Return the node's lines with start <= time < end that contain a text (empty: all), oldest first."""
        return list(self.iterate_node_lines(node, containing=containing, start=start, end=end))

    def iterate_node_lines(self, node: str, *, containing: str, start: datetime, end: datetime) -> Iterator[LogLine]:
        """Yield the lines of `node_lines` page by page, for a reader that may stop early."""
        query = self._of_node(node) + (f" |= {_quoted(containing)}" if containing else "")
        return self.query_range(query, nanoseconds(start), nanoseconds(end))

    def follow_node(
        self,
        node: str,
        since: datetime,
        on_line: Callable[[LogLine], None],
        on_refused: Callable[[AdapterError], None],
    ) -> LogTail:
        """Start to follow the node's lines from `since` on; arguments as for `LogTail`."""
        return LogTail(LogFollower(self, self._of_node(node), nanoseconds(since)), on_line, on_refused)

    def try_tail(self) -> None:
        """Open the tail of the kernel log like a follower, and close it. Raises AdapterError."""
        with self.open_tail(self._profile.loki_selector, time.time_ns()):
            pass

    def selector_labels(self) -> set[str]:
        """Return the labels that the profile's stream selector names."""
        return set(re.findall(r"([A-Za-z_][A-Za-z0-9_]*)\s*(?:=~|!~|!=|=)\s*[\"`]", self._profile.loki_selector))

    def _of_node(self, node: str) -> str:
        selector = self._profile.loki_selector.strip()
        matcher = f"{self._profile.loki_node_label}={_quoted(node)}"
        if self._profile.loki_node_label_kind == "structured_metadata":
            return f"{selector} | {matcher}"
        inside = selector[1:-1].strip()
        return "{" + (f"{inside}, " if inside else "") + matcher + "}"


def _quoted(text: str) -> str:
    """Return `text` as a LogQL string; JSON's escapes are among Go's."""
    return json.dumps(text, ensure_ascii=False)

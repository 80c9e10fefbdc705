"""PromQL expressions as signals: a series that an expression returns is a bad node, from its first point on.

Each poll reads a range, not a moment. So what came and went while Prometheus or this process was away is found later,
and the beginning of a series is known. A hole in a series does not end it if Prometheus itself has a hole there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta

from gameday.cluster.loki import nanoseconds
from gameday.cluster.prometheus import Prometheus, Series
from gameday_health.model import digest
from gameday_health.policy import MetricMatch, Policy, Rule
from gameday_health.signal import Signal, SignalKind
from gameday_health.sources.base import OnSignal, PollingSource, pci_address

_STEP = timedelta(seconds=15)
"""Our choice: no finer than clusters usually scrape."""
_FIRST_LOOK_BACK = timedelta(hours=24)
"""Range in which a start looks for the beginning of a series: 5,760 of the 11,000 points that are allowed."""
_OVERLAP = timedelta(minutes=5)
"""Range read again at each poll, because samples of remote exporters come late. Also the longest hole that does not end
a series, as long as Prometheus keeps showing a series without samples (its lookback-delta).
"""
_UP = "count(up)"
_LONGEST_TEXT = 400

_Run = tuple[datetime, datetime]
"""The first and the last moment at which a series had points."""


class MetricPoll(PollingSource):
    """A poll of Prometheus with every metric rule of a policy."""

    kind = SignalKind.METRIC
    poll_s = _STEP.total_seconds()

    def __init__(
        self,
        prometheus: Prometheus,
        policy: Policy,
        since_ns: int,
        on_signal: OnSignal,
        on_read: Callable[[int], None],
    ) -> None:
        """Prepare to poll.

        Args:
            prometheus: The server.
            policy: The policy with the metric rules.
            since_ns: Unix time; a series that ended before it is already handled.
            on_signal: Takes the signals.
            on_read: Called after the signals of a poll, with the Unix ns up to which they are complete.
        """
        super().__init__()
        self._prometheus = prometheus
        self._rules = policy.rules_of(SignalKind.METRIC)
        self._since = datetime.fromtimestamp(since_ns / 1e9, UTC)
        self._read_until: datetime | None = None
        self._on_signal = on_signal
        self._on_read = on_read
        self._begun: dict[str, datetime | None] = {}
        """The beginning of each series of the last poll, by its identity; None: before everything that was read."""
        self._brought: set[str] = set()

    def poll(self) -> None:
        end = _aligned(datetime.now(UTC))
        start = end - _FIRST_LOOK_BACK
        if self._read_until:
            start = max(start, _aligned(self._read_until) - _OVERLAP)
        up = _moments(self._prometheus.query_range(_UP, start, end, _STEP))
        begun: dict[str, datetime | None] = {}
        signals: list[Signal] = []
        for rule in self._rules:
            assert rule.metric
            for series in self._prometheus.query_range(rule.metric.query, start, end, _STEP):
                signals += self._signals(rule, rule.metric, series, up, start, begun)
        self._brought &= {signal.key for signal in signals}
        for signal in signals:
            if signal.key not in self._brought:
                if not self._on_signal(signal):
                    return
                self._brought.add(signal.key)
        self._begun, self._read_until = begun, end
        self._on_read(nanoseconds(end))

    def _signals(
        self,
        rule: Rule,
        match: MetricMatch,
        series: Series,
        up: frozenset[datetime],
        start: datetime,
        begun: dict[str, datetime | None],
    ) -> Iterator[Signal]:
        node = series.labels.get(match.node_label)
        if not node:
            return
        identity = f"{rule.name} {series.name} {sorted(series.labels.items())}"
        for first, last in _runs(series, up):
            began: datetime | None = first
            if first == start:
                began = self._begun.get(identity)
            begun[identity] = began
            if last < self._since:
                continue
            yield Signal(
                node,
                SignalKind.METRIC,
                rule.name,
                began or first,
                datetime.now(UTC),
                _text(match, series),
                pci_address(series.labels.get(match.gpu_label)),
                key=digest(f"{identity} {began.isoformat() if began else ''}"),
                is_begin_known=began is not None,
            )


def _runs(series: Series, up: frozenset[datetime]) -> Iterator[_Run]:
    """Yield the stretches of a series, joined over holes that are short or that are Prometheus' own."""
    first = last = None
    for at, _ in series.points:
        if last is not None and first is not None and _is_hole(last, at, up):
            yield first, last
            first = None
        first, last = first or at, at
    if first and last:
        yield first, last


def _is_hole(last: datetime, at: datetime, up: frozenset[datetime]) -> bool:
    """Return True if a series ended between two of its points."""
    if at - last <= _OVERLAP:
        return False
    seen = sum(last + step * _STEP in up for step in range(1, (at - last) // _STEP))
    return seen * _STEP > _OVERLAP


def _moments(found: Iterable[Series]) -> frozenset[datetime]:
    return frozenset(at for series in found for at, _ in series.points)


def _aligned(at: datetime) -> datetime:
    """Return the step before a moment. All polls have the same steps, so that a beginning never moves."""
    step_s = int(_STEP.total_seconds())
    return datetime.fromtimestamp(int(at.timestamp()) // step_s * step_s, UTC)


def _text(match: MetricMatch, series: Series) -> str:
    value = series.points[-1][1] if series.points else float("nan")
    return f"{match.query} = {value:g}"[:_LONGEST_TEXT]

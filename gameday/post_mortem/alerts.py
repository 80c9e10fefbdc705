"""Alerts of a past window, from the samples that Prometheus keeps of ALERTS, and the silences of that time."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from gameday.cluster.alertmanager import NotifiedAlert, Silence
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.prometheus import Prometheus, Series
from gameday.history.events import AlertSeen
from gameday.post_mortem.incident import Elsewhere, SilenceSeen

_GAP_FACTOR = 3.0
"""Samples further apart than this many usual intervals are two episodes; one missed scrape is not."""
_UNKNOWN_INTERVAL = timedelta(minutes=1)
"""Interval of a series with one sample: Prometheus' default evaluation interval."""
_MOST_EXAMPLES = 5


@dataclass(frozen=True)
class Episode:
    """A stretch in which a series had samples.

    `open_end`: it still had them at the window's end, or its exporter was silent and could not report the end.
    """

    labels: dict[str, str]
    start: datetime
    end: datetime
    every: timedelta
    """The usual interval between the series' samples."""
    open_end: bool

    @property
    def state(self) -> str:
        return self.labels.get("alertstate", "")

    @property
    def until(self) -> datetime:
        """The end, with the pause after which a sample belongs to another episode."""
        return self.end + _GAP_FACTOR * self.every

    def stood_at(self, start: datetime) -> bool:
        """Return True if it was there when the window began: no earlier sample was read."""
        return self.start - start < self.every


def node_alerts(
    prometheus: Prometheus, profile: ClusterProfile, node: str, start: datetime, end: datetime
) -> list[AlertSeen]:
    """Return the node's states in ALERTS, in order of time. Raises AdapterError.

    An alert that was there when the window began is marked `at_baseline`. `resolved` has the time of the first
    evaluation without the alert, as in a game-day.
    """
    found: dict[str, Series] = {}
    for label in dict.fromkeys((profile.alert_node_label, profile.prometheus_node_label)):
        selector = f"ALERTS{{{label}={json.dumps(node)}}}"
        for series in prometheus.stored_samples(selector, end - start, end):
            found[json.dumps(dict(series.labels), sort_keys=True)] = series
    return _alert_events(episodes(([series] for series in found.values()), end), node, start)


def episodes(
    groups: Iterable[Sequence[Series]], end: datetime, spoke: Sequence[datetime] | None = None
) -> list[Episode]:
    """Return the stretches of a thing that has one or several series, oldest first.

    A stretch ends when all of the series pause, and has the first one's labels. The usual interval is the longest of
    the series': two series that are scraped in turn have none in common. `spoke` are the times at which their exporter
    reported anything, in order; a series does not end while its exporter is silent.
    """
    found = []
    for of_one in groups:
        times = sorted({at for one in of_one for at, _ in one.points})
        every = max((_interval(one) for one in of_one if len(one.points) > 1), default=_UNKNOWN_INTERVAL)
        begun = 0
        for i, at in enumerate(times):
            until = times[i + 1] if i + 1 < len(times) else end
            goes_on = until - at <= _GAP_FACTOR * every or (spoke is not None and not between(spoke, at, until))
            if goes_on and i + 1 < len(times):
                continue
            found.append(Episode(dict(of_one[0].labels), times[begun], at, every, open_end=goes_on))
            begun = i + 1
    return sorted(found, key=lambda episode: episode.start)


def between(times: Sequence[datetime], after: datetime, before: datetime) -> bool:
    """Return True if any of the ordered times is between the two."""
    return bisect_right(times, after) < bisect_left(times, before)


def _interval(series: Series) -> timedelta:
    return timedelta(seconds=median((b - a).total_seconds() for (a, _), (b, _) in pairwise(series.points)))


def _alert_events(found: Sequence[Episode], node: str, start: datetime) -> list[AlertSeen]:
    """Turn episodes into states that began, and a resolution if no other state follows."""
    lives: dict[str, list[Episode]] = defaultdict(list)
    for episode in found:
        if episode.state in ("pending", "firing"):
            lives[json.dumps(_without_state(episode), sort_keys=True)].append(episode)
    events = [event for life in lives.values() for event in _life(life, node, start)]
    return sorted(events, key=lambda event: event.at)


def _life(life: Sequence[Episode], node: str, start: datetime) -> Iterator[AlertSeen]:
    for episode in life:
        seen = AlertSeen(
            alert=episode.labels.get("alertname", ""),
            state="pending" if episode.state == "pending" else "firing",
            labels=_without_state(episode),
            node=node,
            expected=True,
            at=episode.start,
            at_baseline=episode.stood_at(start),
        )
        yield seen
        followed = any(episode.start < other.start <= episode.until for other in life)
        if not episode.open_end and not followed:
            after = episode.every if episode.end > episode.start else timedelta()  # one sample shows no interval
            yield seen.model_copy(update={"state": "resolved", "at": episode.end + after})


def _without_state(episode: Episode) -> dict[str, str]:
    return {key: value for key, value in episode.labels.items() if key != "alertstate"}


def with_notifications(
    events: Sequence[AlertSeen], held: Sequence[NotifiedAlert], silences: Sequence[Silence]
) -> list[AlertSeen]:
    """Return the alerts with the silence in force as each fired, its receivers, and any other alert that mutes it.

    Receivers and inhibition are known only for alerts that Alertmanager still holds; it forgets resolved ones. It has
    more labels for them than ALERTS has: Prometheus adds its external_labels when it sends an alert.
    """
    notified = []
    for event in events:
        its = [alert for alert in held if event.labels.items() <= alert.labels.items()]
        alert, fires = min(its, key=lambda one: len(one.labels), default=None), event.state == "firing"
        update: dict[str, object] = {"silenced": fires and any(_mutes(silence, event) for silence in silences)}
        if alert:
            update |= {"receivers": alert.receivers, "annotations": alert.annotations}
            update["inhibited"] = fires and alert.inhibited
        notified.append(event.model_copy(update=update))
    return notified


def _mutes(silence: Silence, event: AlertSeen) -> bool:
    in_force = silence.starts_at <= event.at < silence.ends_at
    return in_force and all(matcher.matches(event.labels) for matcher in silence.matchers)


def silences_of(
    events: Sequence[AlertSeen], silences: Sequence[Silence], start: datetime, end: datetime
) -> tuple[SilenceSeen, ...]:
    """Return the window's silences that match an alert that fired at any time.

    Expired ones are included, as long as Alertmanager keeps them.
    """
    fired: dict[str, list[dict[str, str]]] = defaultdict(list)
    for event in events:
        if event.state == "firing":
            fired[event.alert].append(event.labels)
    return tuple(
        SilenceSeen(
            alert=alert, created_by=silence.created_by, comment=silence.comment, start=silence.starts_at,
            end=silence.ends_at,
        )
        for silence in silences
        if silence.starts_at < end and silence.ends_at > start
        for alert, label_sets in fired.items()
        if any(all(matcher.matches(labels) for matcher in silence.matchers) for labels in label_sets)
    )  # fmt: skip


def alerts_elsewhere(
    prometheus: Prometheus, profile: ClusterProfile, node: str, start: datetime, end: datetime
) -> Elsewhere | None:
    """Count the alert series that fired for other nodes (or none) in the window, with one query for any fleet."""
    label = profile.alert_node_label
    selector = f'ALERTS{{alertstate="firing",{label}!={json.dumps(node)}}}'
    window = f"{max(1, round((end - start).total_seconds()))}s"
    counted = prometheus.query(f"sort_desc(count by (alertname) (last_over_time({selector}[{window}])))", end)
    if not counted:
        return None
    names = [f"{sample.labels.get('alertname', '?')} ({sample.value:g})" for sample in counted]
    total = round(sum(sample.value for sample in counted))
    return Elsewhere(what="alerts of other nodes", count=total, unit="series", examples=tuple(names[:_MOST_EXAMPLES]))

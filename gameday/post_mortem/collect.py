"""Fill an incident's folder from every server. Each may fail alone: half an account with marked gaps beats none.

The folder is a run's folder without a plan: history.jsonl, frames/, and incident.json in place of the plan. The
records have the times of their own sources, because all of it was over before we looked.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pandas as pd

from gameday import __version__
from gameday.cluster.kubernetes import ClusterIdentity
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.prometheus import Series
from gameday.errors import AdapterError, CollectedAlreadyError, NothingReadError, UnknownNodeError
from gameday.history.events import (
    RECORD,
    AlertSeen,
    ApiCost,
    Event,
    FrameRead,
    HopSeen,
    KernelLineSeen,
    NodeSeen,
    Problem,
    Record,
    TaintSeen,
    TargetsChosen,
)
from gameday.history.frames import Frames, conform, frame_of
from gameday.observe.dcgm import METRICS
from gameday.observe.samples import StoredSamples, metrics_columns, read_samples
from gameday.plain_file import write_whole
from gameday.post_mortem.alerts import alerts_elsewhere, node_alerts, silences_of, with_notifications
from gameday.post_mortem.incident import INCIDENT_FILE, Elsewhere, Incident, SilenceSeen, SourceReading, SourceState
from gameday.post_mortem.kernel_log import NodeLog, lines_elsewhere, node_log
from gameday.post_mortem.node import merged_taints, node_events, node_now, taint_history
from gameday.run.servers import Servers
from gameday.values.nodes import Target
from gameday.values.results import Hop

_STAMP = timedelta(seconds=1)
"""Kubernetes' time stamps have whole seconds."""

KERNEL_LOG = "kernel log (Loki)"
METRICS_SOURCE = "GPU metrics (Prometheus)"
ALERTS = "alerts (Prometheus)"
TAINTS = "taint history (kube-state-metrics)"
NODE = "the node (Kubernetes)"
EVENTS = "events (Kubernetes)"

T = TypeVar("T")


@dataclass
class _Reading:
    """The events and sources read so far."""

    profile: ClusterProfile
    servers: Servers
    node: str
    start: datetime
    end: datetime
    sources: list[SourceReading] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    elsewhere: list[Elsewhere] = field(default_factory=list)
    silences: tuple[SilenceSeen, ...] = ()
    frames: Frames = field(default_factory=Frames)

    def read(self, name: str, ask: Callable[[], T], found: Callable[[T], str]) -> T | None:
        """Ask one source; `found` describes the answer, and is empty if the source has nothing of the window."""
        try:
            answer = ask()
        except AdapterError as error:
            self.failed(name, error)
            return None
        said = found(answer)
        self.sources.append(
            SourceReading(name=name, state=SourceState.READ if said else SourceState.EMPTY, detail=said)
        )
        return answer

    def failed(self, name: str, error: AdapterError) -> None:
        """Note a source that could not be read."""
        self.sources.append(SourceReading(name=name, state=SourceState.FAILED, detail=str(error)))
        self.events.append(Problem(step=None, what=f"{name} could not be read: {error}", hint=error.hint))


def collect_incident(
    profile: ClusterProfile, node: str, start: datetime, end: datetime, reports: Path, command: str
) -> Path:
    """Read everything, write the incident's folder and return it. Only reads are sent.

    Raises:
        CollectedAlreadyError: The folder has the same window of the node already; no server is asked.
        UnknownNodeError: No server knows the node; nothing is written.
        NothingReadError: No server could be read; nothing is written.
        AdapterError: No client can be made; nothing is written.
        OSError: The folder cannot be written.
    """
    name = f"incident-{start:%Y%m%d-%H%M%S}-{end:%H%M%S}-{re.sub('[^A-Za-z0-9.-]', '_', node)[:60]}"
    folder = reports / name
    if (folder / INCIDENT_FILE).exists():
        raise CollectedAlreadyError(folder)
    collected_at = datetime.now(UTC)
    servers = Servers(profile)
    try:
        reading = _Reading(profile, servers, node, start, end)
        for part in (_kernel_log, _metrics, _alerts, _node, _events):
            part(reading)
        identity = _identity(reading)
        reading.events += servers.costs()
    finally:
        servers.close()
    if all(source.state is SourceState.FAILED for source in reading.sources):
        first = reading.sources[0]
        raise NothingReadError(f"no server of profile {profile.name} could be read; {first.name}: {first.detail}")
    if not _knows_node(reading):
        raise UnknownNodeError(f"no server knows a node {node!r} in this window: is it spelled as Kubernetes has it?")
    incident = Incident(
        id=name,
        node=node,
        start=start,
        end=end,
        collected_at=collected_at,
        operator=getpass.getuser(),
        cluster=f"{profile.name} ({servers.kubernetes.server})",
        cluster_uid=identity.uid if identity else None,
        cluster_id=profile.identity or (identity.uid if identity else ""),
        virtual=profile.is_virtual
        or any(event.snapshot.virtual for event in reading.events if isinstance(event, NodeSeen)),
        server_version=identity.version if identity else None,
        gameday_version=__version__,
        command=command,
        quarantine_keys=profile.quarantine_taint_keys,
        sources=tuple(reading.sources),
        elsewhere=tuple(reading.elsewhere),
        silences=reading.silences,
    )
    _write(folder, incident, reading)
    return folder


def _knows_node(reading: _Reading) -> bool:
    """Return True if a source knows the node, or if one that may know it could not be read."""
    about_it = [source for source in reading.sources if source.name in (KERNEL_LOG, METRICS_SOURCE, NODE)]
    alerted = any(isinstance(event, AlertSeen) for event in reading.events)
    return alerted or any(source.state is not SourceState.EMPTY for source in about_it)


def _kernel_log(reading: _Reading) -> None:
    loki, node = reading.servers.loki, reading.node

    def found(log: NodeLog) -> str:
        more = " (cut there)" if log.cut else ""
        return f"{log.read:,} lines{more}, {len(log.gpu_lines)} of them about a GPU" if log.read else ""

    log = reading.read(KERNEL_LOG, lambda: node_log(loki, node, reading.start, reading.end), found)
    if log:
        reading.events += log.gpu_lines
        reading.frames.logs = log.frame
    _elsewhere(reading, lambda: lines_elsewhere(loki, reading.profile, node, reading.start, reading.end))


def _metrics(reading: _Reading) -> None:
    label = reading.profile.prometheus_node_label
    node = reading.node.replace("\\", r"\\").replace('"', r"\"")

    def ask() -> StoredSamples:
        return read_samples(reading.servers.prometheus, METRICS, f'{label}="{node}"', reading.start, reading.end)

    found = reading.read(METRICS_SOURCE, ask, lambda found: f"{len(found.series)} series" if found.series else "")
    if found and found.series:
        reading.frames.metrics = frame_of("metrics", metrics_columns(found.series, node_label=label))
        reading.frames.pods = _pods(found.series, reading.node)
        reading.events.append(
            FrameRead(
                frame="metrics",
                server="Prometheus",
                query=found.query,
                start=reading.start,
                end=reading.end,
                step_s=found.step_s,
                rows=len(reading.frames.metrics),
            )
        )


def _pods(series: list[Series], node: str) -> pd.DataFrame:
    """Return when each pod was first seen on the node's GPUs, by the pod labels of dcgm-exporter's series."""
    first: dict[tuple[str, str], datetime] = {}
    gpus: dict[tuple[str, str], set[str]] = {}
    for one in series:
        pod = (one.labels.get("namespace", ""), one.labels.get("pod", ""))
        if not pod[1] or not one.points:
            continue
        first[pod] = min(first.get(pod, one.points[0][0]), one.points[0][0])
        gpus.setdefault(pod, set()).add(one.labels.get("gpu", ""))
    rows: list[dict[str, object]] = [
        {
            "time": pd.Timestamp(at),
            "namespace": pod[0],
            "pod": pod[1],
            "node": node,
            "phase": "Running",
            "gpus": len(gpus[pod]),
        }
        for pod, at in first.items()
    ]
    return conform("pods", rows)


def _alerts(reading: _Reading) -> None:
    prometheus, node, profile = reading.servers.prometheus, reading.node, reading.profile
    window = f"{max(1, round((reading.end - reading.start).total_seconds()))}s"
    # The absence of an alert for the node proves something only if Prometheus has kept anything of the window.
    kept = reading.read(
        ALERTS,
        lambda: prometheus.query(f"count(last_over_time(up[{window}]))", reading.end),
        lambda found: f"{found[0].value:g} scrape targets in the window" if found else "",
    )
    if not kept:
        return
    try:
        seen = node_alerts(prometheus, profile, node, reading.start, reading.end)
        taints = taint_history(prometheus, node, reading.start, reading.end)
        scraped = prometheus.query(f"count(last_over_time(kube_node_info[{window}]))", reading.end)
    except AdapterError as error:
        reading.sources.pop()
        reading.failed(ALERTS, error)
        return
    state = SourceState.READ if scraped else SourceState.EMPTY
    detail = f"{scraped[0].value:g} nodes" if scraped else "kube-state-metrics is not scraped"
    reading.sources.append(SourceReading(name=TAINTS, state=state, detail=detail))
    reading.events += taints
    reading.events += _as_alertmanager_has_them(reading, seen)
    reading.frames.alerts = _alerts_frame(seen)
    _elsewhere(reading, lambda: alerts_elsewhere(prometheus, profile, node, reading.start, reading.end))


def _as_alertmanager_has_them(reading: _Reading, seen: list[AlertSeen]) -> list[AlertSeen]:
    alertmanager = reading.servers.alertmanager
    held = reading.read(
        "receivers (Alertmanager)",
        alertmanager.alerts,
        lambda found: f"{len(found)} alerts held now" if found else "",
    )
    silences = reading.read(
        "silences (Alertmanager)", alertmanager.silences, lambda found: f"{len(found)} silences, expired ones included"
    )
    if silences:
        reading.silences = silences_of(seen, silences, reading.start, reading.end)
    return with_notifications(seen, held or (), silences or ())


def _alerts_frame(seen: list[AlertSeen]) -> pd.DataFrame:
    rows: list[dict[str, object]] = [
        {
            "time": pd.Timestamp(event.at),
            "alert": event.alert,
            "state": event.state,
            "node": event.node or "",
            "severity": event.labels.get("severity", ""),
        }
        for event in seen
        if event.state != "resolved"
    ]
    return conform("alerts", rows)


def _node(reading: _Reading) -> None:
    kubernetes = reading.servers.kubernetes
    node = reading.read(NODE, lambda: kubernetes.node_or_none(reading.node), lambda found: "read" if found else "")
    if node is not None:
        kept = [event for event in reading.events if isinstance(event, TaintSeen)]
        for event in kept:
            reading.events.remove(event)
        reading.events += merged_taints(kept, node_now(node, reading.start, reading.end))


def _events(reading: _Reading) -> None:
    kubernetes = reading.servers.kubernetes
    seen = reading.read(
        EVENTS,
        lambda: node_events(kubernetes, reading.node, reading.start, reading.end),
        lambda found: f"{len(found)} events (kept for an hour by default)" if found else "",
    )
    reading.events += seen or ()


def _elsewhere(reading: _Reading, ask: Callable[[], Elsewhere | None]) -> None:
    try:
        found = ask()
    except AdapterError as error:
        reading.events.append(Problem(step=None, what=f"other nodes could not be looked at: {error}", hint=error.hint))
        return
    if found:
        reading.elsewhere.append(found)


def _identity(reading: _Reading) -> ClusterIdentity | None:
    try:
        return reading.servers.kubernetes.identity()
    except AdapterError:
        return None  # said already, by the node's own source


def _write(folder: Path, incident: Incident, reading: _Reading) -> None:
    """Write the folder; incident.json comes last, so a folder without it was not collected completely."""
    folder.mkdir(parents=True, exist_ok=True)
    reading.frames.save(folder / "frames")
    lines = [RECORD.dump_json(record) for record in _records(incident, reading.events)]
    write_whole(folder / "history.jsonl", b"".join(line + b"\n" for line in lines))
    write_whole(folder / INCIDENT_FILE, incident.model_dump_json(indent=1) + "\n")


def _records(incident: Incident, events: list[Event]) -> list[Record]:
    """Return the events as records in the order of their own times.

    `monotonic` counts seconds since the window began, because no clock of ours ran then.
    """
    chosen = TargetsChosen(targets=(Target(node=incident.node),), candidates=1, rule="named by hand", seed=0)
    written = [
        HopSeen(hop=Hop.WRITTEN, node=event.node, at=event.at, source="the kernel log's line")
        for event in events
        if isinstance(event, KernelLineSeen) and event.decision == "quarantine"
    ]
    hops = [
        HopSeen(
            hop=Hop.RULE_PENDING if event.state == "pending" else Hop.RULE_FIRING,
            node=incident.node,
            at=event.at,
            source=f"ALERTS of {event.alert}",
        )
        for event in _first_alert(events, min((hop.at for hop in written), default=None))
    ]
    hops += [
        HopSeen(hop=Hop.TAINTED, node=event.node, at=event.at, source=event.manager or "Kubernetes")
        for event in events
        if isinstance(event, TaintSeen)
        and event.present
        and not event.at_baseline
        and event.taint.key in incident.quarantine_keys
    ]
    dated = [(_at(event, incident), event) for event in (chosen, *events, *_since(written, hops))]
    dated.sort(key=lambda pair: pair[0])
    return [
        Record(seq=seq, at=at, monotonic=(at - incident.start).total_seconds(), boot="post-mortem", event=event)
        for seq, (at, event) in enumerate(dated)
    ]


def _first_alert(events: list[Event], line: datetime | None) -> list[AlertSeen]:
    """Return the states of the alert that fired first after the line, or was pending if none fired.

    Other alerts may be about other lines, so their times are not hops of this chain.
    """
    came = [one for one in events if isinstance(one, AlertSeen) and not one.at_baseline and one.state != "resolved"]
    since = sorted((one for one in came if line and one.at > line - _STAMP), key=lambda one: one.at)
    first = next((one for one in since if one.state == "firing"), next(iter(since), None))
    return [one for one in since if first and one.labels == first.labels]


def _since(written: list[HopSeen], hops: list[HopSeen]) -> list[HopSeen]:
    """Return the chain of the first fatal line; what came before it was not caused by it.

    Kubernetes stamps to the second; a hop in the line's own second counts as no earlier than the line.
    """
    if not written:
        return []
    first = min(written, key=lambda hop: hop.at)
    later = [hop for hop in hops if hop.at > first.at - _STAMP]
    return [first, *(hop.model_copy(update={"at": max(hop.at, first.at)}) for hop in later)]


def _at(event: Event, incident: Incident) -> datetime:
    if isinstance(event, TargetsChosen):
        return incident.start
    if isinstance(event, ApiCost | FrameRead | Problem):
        return incident.collected_at
    at = getattr(event, "at", None)
    return at if isinstance(at, datetime) else incident.collected_at

"""All nodes with an episode, as a table for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gameday_health.episodes import transitions
from gameday_health.episodes.api import RepairApi
from gameday_health.episodes.model import Episode, State
from gameday_health.episodes.node import NodeSeen
from gameday_health.episodes.policy import RepairPolicy
from gameday_health.episodes.store import RECORD_LABEL, stored
from gameday_health.episodes.transitions import Cancel, Drain, HandOver, NodeGone, Repair, Return, Step, Validate
from gameday_health.episodes.work import Settings


@dataclass(frozen=True)
class StatusRow:
    """A row of `gameday health status`."""

    node: str
    state: str
    since: datetime
    evidence: str
    rung: str
    next: str


def status(api: RepairApi, settings: Settings, now: datetime) -> list[StatusRow]:
    """Return a row for every node with an episode, the open ones first. Raises KubernetesError."""
    path = f"/api/v1/namespaces/{api.namespace}/configmaps"
    items = api.request("GET", path, query={"labelSelector": f"{RECORD_LABEL}=true"}).get("items") or []
    episodes = [found.episode for found in map(stored, items) if found]
    rows = []
    for episode in sorted(episodes, key=lambda one: (one.ended is not None, one.opened)):
        node = api.node(episode.node) if episode.ended is None else None
        rows.append(row(episode, settings.seen(node) if node else None, settings.policy, now))
    return rows


def row(episode: Episode, seen: NodeSeen | None, policy: RepairPolicy, now: datetime) -> StatusRow:
    """Return an episode as a row; `seen` is the node, if the episode is open."""
    tries = f"{episode.rung} ({len(episode.attempts)})" if episode.rung else "–"
    return StatusRow(
        node=episode.node,
        state=str(episode.state),
        since=episode.since,
        evidence=_evidence(episode),
        rung=tries,
        next=_next(episode, seen, policy, now),
    )


def _evidence(episode: Episode) -> str:
    failed = [run.why for run in episode.qa[-1:] if run.outcome == "failed"]
    return "; ".join([*_distinct(map(str, episode.faults)), *failed])


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _next(episode: Episode, seen: NodeSeen | None, policy: RepairPolicy, now: datetime) -> str:
    match episode.state:
        case State.HANDED_OVER:
            return f"a person: {episode.why}"
        case State.WITHHELD:
            return f"waits: {episode.why}"
        case State.RETURNED | State.CANCELLED | State.NODE_GONE:
            return f"nothing: {episode.why}"
    known = transitions.absorb(episode, seen, now) if seen else episode
    step = transitions.next_step(known, seen, policy, now)
    return describe(step) if step else "nothing"


def describe(step: Step) -> str:
    """Return a step in a few words."""
    match step:
        case Drain(scope=scope, before=before):
            words = f"drain ({scope}) before {before}"
        case Repair(rung=rung, number=number):
            words = f"{rung.repair}, attempt {number}"
        case Validate():
            words = "QA"
        case Return():
            words = "return"
        case HandOver(why=why):
            words = f"hand over to a person: {why}"
        case Cancel(why=why) | NodeGone(why=why):
            words = f"end: {why}"
    return words

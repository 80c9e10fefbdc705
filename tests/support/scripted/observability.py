"""Prometheus, Alertmanager and Loki in memory: the answers to what a game-day asks, and to nothing else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import orjson

from gameday.cluster.alertmanager import Alertmanager
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.http import HttpServer
from gameday.cluster.http_errors import explain
from gameday.cluster.loki import LogLine, LogTail, Loki, nanoseconds
from gameday.cluster.profile import ClusterProfile, Endpoint
from gameday.cluster.prometheus import Prometheus
from gameday.errors import AdapterError
from tests.support.scripted.detector import Detector
from tests.support.scripted.script import Script
from tests.support.scripted.world import EVALUATED_EVERY, Alert, Line, World

Json = dict[str, Any]
Answering = Callable[[str, Mapping[str, Any]], Any]
_SCRAPED_EVERY = timedelta(seconds=15)
_WINDOW = re.compile(r"\[(\d+)ms\]")
_ALERT_NAME = re.compile(r'alertname="([^"]*)"')
_CONTAINING = re.compile(r'\|= "((?:[^"\\]|\\.)*)"')


class ScriptedHttp(HttpServer):
    """A server that answers in memory, or is away."""

    def __init__(self, endpoint: Endpoint, answer: Answering, is_away: Callable[[], bool]) -> None:
        self.endpoint = endpoint
        self.counter = CallCounter()
        self._answer = answer
        self._is_away = is_away

    def close(self) -> None:
        """Close nothing."""

    def get(self, path: str, params: Mapping[str, Any] | None = None, *, call: str | None = None) -> bytes:
        body = b"" if self._is_away() else orjson.dumps(self._answer(path, params or {}))
        self.counter.add(call or f"GET {path}", sent=len(path), received=len(body))
        if not body:
            error = httpx.ConnectError("refused")
            error.__cause__ = ConnectionRefusedError(111, "Connection refused")
            raise explain(error, self.endpoint, path)
        return body


class ScriptedPrometheus(Prometheus):
    """The alerts of a world, as the rules and the storage of a Prometheus show them."""

    def __init__(
        self,
        profile: ClusterProfile,
        script: Script,
        world: World,
        now: Callable[[], datetime],
        is_away: Callable[[datetime], bool],
    ) -> None:
        self.http = ScriptedHttp(profile.prometheus, self._answer, lambda: is_away(now()))
        self._is_away = is_away
        self._script = script
        self._world = world
        self._now = now
        self.unscripted: list[str] = []
        """Queries that no script answers, and whose answer was empty."""

    def _answer(self, path: str, params: Mapping[str, Any]) -> Json:
        match path.removeprefix("api/v1/"):
            case "alerts":
                return _success({"alerts": [_active(one) for one in self._active()]})
            case "rules":
                return _success({"groups": self._groups() if params.get("type") == "alert" else []})
            case "query":
                at = _moment(params["time"]) if "time" in params else self._now()
                return _success(self._query(params["query"], at))
            case "query_range":
                start, end = _moment(params["start"]), _moment(params["end"])
                return _success(_matrix(self._held(params["query"], start, end)))
            case "status/buildinfo":
                return _success({"version": "3.5.0"})
        return _success({})

    def _by_its_clock(self, alert: Alert) -> Alert:
        ahead = timedelta(seconds=self._script.prometheus_ahead_s)
        return replace(alert, fired=alert.fired + ahead, ended=alert.ended + ahead if alert.ended else None)

    def _active(self) -> list[Alert]:
        return [self._by_its_clock(one) for one in self._world.active()]

    def _groups(self) -> list[Json]:
        rules = [
            {
                "type": "alerting",
                "name": name,
                "query": f'scripted{{alertname="{name}"}}',
                "duration": 0,
                "labels": {"severity": "critical", **labels},
                "annotations": {},
                "health": "ok",
                "alerts": [_active(one) for one in self._active() if one.name == name],
            }
            for name, labels in self._script.alerts
        ]
        group = {"name": "scripted", "file": "scripted.yaml", "interval": EVALUATED_EVERY.total_seconds()}
        return [{**group, "rules": rules, "lastEvaluation": self._now().isoformat()}]

    def _query(self, query: str, at: datetime) -> Json:
        window = _WINDOW.search(query)
        start = at - timedelta(milliseconds=int(window[1])) if window else at
        if values := self._script.queries.get(query):
            return _vector(at, self._value(values, at))
        if query.startswith("max(count_over_time("):
            return _vector(at, {"": 10.0})
        if "kube_node_info" in query:
            return _vector(at, {"": 1.0})
        if query.startswith("topk(1, count_over_time(up["):
            return _vector(at, {"up": 10.0})
        if query.startswith("up{"):
            scraped = [one for one in _every(_SCRAPED_EVERY, start, at) if not self._is_away(one)]
            return _matrix([({"__name__": "up", "job": "scripted"}, scraped)])
        if query.startswith("ALERTS{") and window:
            return _matrix(self._stored(query, start, at))
        if "count_over_time(" in query and "vector(0)" in query:
            count = sum(len(points) for _, points in self._stored(query, start, at)) if "ALERTS" in query else 0
            return _vector(at, {"": float(count)})
        if query.startswith("{__name__=~") and window:
            return _matrix([])
        if query not in self.unscripted:
            self.unscripted.append(query)
        return _vector(at, {})

    def _value(self, values: tuple[tuple[float, float | None], ...], at: datetime) -> dict[str, float]:
        struck = self._world.struck_at
        since_s = (at - struck).total_seconds() if struck else -math.inf
        value = next((value for after_s, value in reversed(values) if after_s <= since_s), values[0][1])
        return {} if value is None else {"": value}

    def _stored(self, query: str, start: datetime, end: datetime) -> list[tuple[Json, list[datetime]]]:
        """Return the stored samples of ALERTS: at the first evaluation, and at the last one before the end."""
        name = _ALERT_NAME.search(query)
        found = []
        for one in map(self._by_its_clock, self._world.alerts):
            last = (one.ended - EVALUATED_EVERY) if one.ended else end
            points = [at for at in dict.fromkeys((one.fired, last)) if start <= at <= end and at >= one.fired]
            if points and (name is None or name[1] == one.name):
                found.append(({"__name__": "ALERTS", "alertstate": "firing", **dict(one.labels)}, points))
        return found

    def _held(self, query: str, start: datetime, end: datetime) -> list[tuple[Json, list[datetime]]]:
        """Return when a rule's expression held."""
        name = _ALERT_NAME.search(query)
        return [
            ({"node": one.node}, [one.fired])
            for one in self._world.alerts
            if name and name[1] == one.name and start <= one.fired <= end
        ]


class ScriptedAlertmanager(Alertmanager):
    """The alerts of a world that somebody was told of."""

    def __init__(self, profile: ClusterProfile, world: World, is_away: Callable[[], bool]) -> None:
        self.http = ScriptedHttp(profile.alertmanager, self._answer, is_away)
        self._world = world

    def _answer(self, path: str, params: Mapping[str, Any]) -> Any:
        if path != "api/v2/alerts":
            return []
        wanted = "".join(params.get("filter", ()))
        name = _ALERT_NAME.search(wanted)
        return [_held_alert(one) for one in self._world.active() if one.notified and name and one.name == name[1]]


class ScriptedLoki(Loki):
    """The log lines of a world."""

    def __init__(self, profile: ClusterProfile, world: World, detector: Detector, is_away: Callable[[], bool]) -> None:
        self.http = ScriptedHttp(profile.loki, self._answer, is_away)
        self._profile = profile
        self._world = world
        self._detector = detector

    def _answer(self, path: str, params: Mapping[str, Any]) -> Json:
        if not path.endswith("query_range"):
            return {"data": [self._profile.loki_node_label]}
        query = str(params["query"])
        node = re.search(rf'{self._profile.loki_node_label}="([^"]*)"', query)
        containing = _CONTAINING.search(query)
        text = json.loads(f'"{containing[1]}"') if containing else ""
        lines = self._world.lines_of(node[1] if node else "", _from_ns(params["start"]), _from_ns(params["end"]))
        found = [one for one in lines if text in one.text][: int(params["limit"])]
        values = [[str(nanoseconds(one.at)), one.text] for one in found]
        return {"data": {"result": [{"stream": {"node": node[1] if node else ""}, "values": values}] if values else []}}

    def follow_node(
        self,
        node: str,
        since: datetime,
        on_line: Callable[[LogLine], None],
        on_refused: Callable[[AdapterError], None],
    ) -> LogTail:
        for line in self._world.lines_of(node, since, datetime.max.replace(tzinfo=UTC)):
            on_line(_log_line(line))
        return _Tail(self._detector.tail(node, lambda line: on_line(_log_line(line))))

    def try_tail(self) -> None:
        self.labels()  # no websocket here: the tail is there for as long as the store answers


class _Tail(LogTail):
    """A tail without a thread."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def stop(self) -> None:
        self._end()


def _log_line(line: Line) -> LogLine:
    return LogLine(nanoseconds(line.at), (), line.text)


def _success(data: object) -> Json:
    return {"status": "success", "data": data}


def _active(alert: Alert) -> Json:
    return {
        "labels": dict(alert.labels),
        "annotations": {},
        "state": "firing",
        "activeAt": alert.fired.isoformat(),
        "value": "1",
    }


def _held_alert(alert: Alert) -> Json:
    assert alert.notified
    return {
        "labels": dict(alert.labels),
        "annotations": {},
        "startsAt": alert.fired.isoformat(),
        "endsAt": (alert.notified + timedelta(minutes=4)).isoformat(),
        "updatedAt": alert.notified.isoformat(),
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": []},
        "receivers": [{"name": "on-call"}],
    }


def _vector(at: datetime, values: Mapping[str, float]) -> Json:
    result = [{"metric": {"__name__": name} if name else {}, "value": [at.timestamp(), value]}
              for name, value in values.items()]  # fmt: skip
    return {"resultType": "vector", "result": result}


def _matrix(series: list[tuple[Json, list[datetime]]]) -> Json:
    cut = [(metric, [math.floor(at.timestamp() * 1000) / 1000 for at in times]) for metric, times in series]
    result = [{"metric": metric, "values": [[at, 1.0] for at in times]} for metric, times in cut]
    return {"resultType": "matrix", "result": result}


def _every(pause: timedelta, start: datetime, end: datetime) -> Iterator[datetime]:
    at = start
    while at <= end:
        yield at
        at += pause


def _moment(unix: str) -> datetime:
    return datetime.fromtimestamp(float(unix), UTC)


def _from_ns(ns: int | str) -> datetime:
    seconds, rest = divmod(int(ns), 10**9)
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=rest // 1000)

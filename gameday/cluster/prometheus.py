"""Prometheus' HTTP API v1, as far as a game-day needs it: queries, rules, alerts, its version.

Its methods return plain frozen models; `gameday.observe.samples` makes the frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from gameday.cluster.http import Answer, HttpAdapter
from gameday.cluster.http_errors import excerpt
from gameday.errors import AdapterError

T = TypeVar("T")

# OpenMetrics' suffixes of a family's samples; a target's metadata has the family's name, without them.
_OF_FAMILY = ("_total", "_created", "_bucket", "_count", "_sum", "_info")


def _none_if_never(moment: object) -> object:
    """Return None for Go's zero time, which stands for an evaluation that never happened."""
    return None if str(moment).startswith("0001-01-01") else moment


def _in_milliseconds(moment: datetime) -> datetime:
    """Cut a moment to milliseconds, like samples' times; otherwise `activeAt` would be later than its evaluation."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@dataclass(frozen=True)
class Sample:
    """An element of an instant vector; `labels` are without `__name__`, which is `name`."""

    name: str
    labels: Mapping[str, str]
    at: datetime
    value: float


@dataclass(frozen=True)
class Series:
    """A series of a range query, oldest point first. A step without a sample has no point."""

    name: str
    labels: Mapping[str, str]
    points: tuple[tuple[datetime, float], ...]


class ActiveAlert(Answer):
    """A label set of an alerting rule that is pending or firing."""

    labels: dict[str, str]
    annotations: dict[str, str] = Field(default={})
    state: Literal["pending", "firing"]
    active_at: Annotated[AwareDatetime, AfterValidator(_in_milliseconds)] = Field(alias="activeAt")
    """The moment when the expression first held, as in the samples of that evaluation; pending comes after it."""
    value: str

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")


class AlertingRule(Answer):
    """An alerting rule, with its pending and firing alerts."""

    type: Literal["alerting"]
    name: str
    query: str
    hold_s: float = Field(alias="duration")
    """The rule's `for`, in seconds."""
    labels: dict[str, str] = Field(default={})
    annotations: dict[str, str] = Field(default={})
    state: Literal["inactive", "pending", "firing"] = "inactive"
    health: str
    last_error: str = Field(default="", alias="lastError")
    """The error of the rule's last evaluation; empty if it had none."""
    alerts: tuple[ActiveAlert, ...] = ()


class RuleGroup(Answer):
    """A group of a rule file, with its alerting rules only."""

    name: str
    file: str
    interval_s: float = Field(alias="interval")
    rules: tuple[AlertingRule, ...]
    last_evaluation: Annotated[AwareDatetime | None, BeforeValidator(_none_if_never)] = Field(
        default=None, alias="lastEvaluation"
    )
    """Start of the last evaluation; None before the first, and if the server does not report it."""


class RecordingRule(Answer):
    """A recording rule."""

    type: Literal["recording"]
    name: str
    query: str
    """The expression as Prometheus prints it after parsing."""


class _RecordingGroup(Answer):
    rules: tuple[RecordingRule, ...]


class BuildInfo(Answer):
    version: str


class _Envelope(Answer, Generic[T]):
    status: Literal["success"]
    data: T
    warnings: tuple[str, ...] = ()
    is_partial: bool = Field(default=False, alias="isPartial")
    """True if VictoriaMetrics misses some of its storage."""

    @property
    def missing(self) -> str:
        """The reason why the answer lacks a part of the data; empty for a whole one.

        Prometheus' remote reads, Thanos, Mimir and Cortex report it as a warning. A remark on the expression is a
        warning, too, and begins with Prometheus' name.
        """
        lost = [text for text in self.warnings if not text.startswith("PromQL ")]
        return "; ".join(lost) or ("isPartial is true" if self.is_partial else "")


class _Element(Answer):
    """An element of a vector or matrix; native histograms, which none of our rules creates, have neither value."""

    metric: dict[str, str] = Field(default={})
    value: tuple[float, float] | None = None
    values: tuple[tuple[float, float], ...] = ()

    @property
    def name(self) -> str:
        return self.metric.get("__name__", "")

    @property
    def labels(self) -> dict[str, str]:
        return {name: value for name, value in self.metric.items() if name != "__name__"}


class _Vector(Answer):
    kind: Literal["vector"] = Field(alias="resultType")
    result: tuple[_Element, ...]


class _Scalar(Answer):
    kind: Literal["scalar"] = Field(alias="resultType")
    result: tuple[float, float]


class _Matrix(Answer):
    kind: Literal["matrix"] = Field(alias="resultType")
    result: tuple[_Element, ...]


class _Rules(Answer):
    groups: tuple[RuleGroup, ...]


class _RecordingRules(Answer):
    groups: tuple[_RecordingGroup, ...]


class _Alerts(Answer):
    alerts: tuple[ActiveAlert, ...]


# Parametrized once: pydantic builds the model of a union each time it is named, which takes longer than an answer.
_Instant = _Envelope[_Vector | _Scalar]
_Range = _Envelope[_Matrix]


class Prometheus(HttpAdapter):
    """The Prometheus of a cluster; methods raise AdapterError if it cannot be asked, refuses, or answers in part.

    A partial answer is an error because the missing part may hold the data in question.
    """

    def query(self, promql: str, at: datetime | None = None) -> list[Sample]:
        """Evaluate an expression at one moment; a scalar becomes one sample without labels.

        Args:
            promql: The expression.
            at: The moment; None for now by the server's clock.
        """
        params = {"query": promql} | ({"time": _unix(at)} if at else {})
        answer = self._ask(_Instant, "api/v1/query", params).data
        if isinstance(answer, _Scalar):
            return [Sample("", {}, _moment(answer.result[0]), answer.result[1])]
        return [
            Sample(item.name, item.labels, _moment(item.value[0]), item.value[1])
            for item in answer.result
            if item.value is not None
        ]

    def query_range(self, promql: str, start: datetime, end: datetime, step: timedelta) -> list[Series]:
        """Evaluate an expression every `step`; Prometheus refuses more than 11,000 points a series."""
        params = {"query": promql, "start": _unix(start), "end": _unix(end), "step": f"{step.total_seconds():g}"}
        return _series(self._ask(_Range, "api/v1/query_range", params).data)

    def stored_samples(self, selector: str, window: timedelta, end: datetime) -> list[Series]:
        """Return the stored samples of a plain selector, with their own times.

        Args:
            selector: A metric's name and label matchers.
            window: The time before `end`, exact to the millisecond.
            end: The last moment.
        """
        params = {"query": f"{selector}[{max(1, round(window.total_seconds() * 1000))}ms]", "time": _unix(end)}
        return _series(self._ask(_Range, "api/v1/query", params).data)

    def rule_groups(self) -> tuple[RuleGroup, ...]:
        """Return all groups with their alerting rules, and the pending and firing alerts of each."""
        return self._ask(_Envelope[_Rules], "api/v1/rules", {"type": "alert"}).data.groups

    def rule(self, name: str) -> AlertingRule | None:
        """Return the alerting rule of that name; None if there is none.

        Rules may share a name: then their alerts come together, with the state of the most advanced rule.
        """
        rules = [rule for group in self.rule_groups() for rule in group.rules if rule.name == name]
        if not rules:
            return None
        furthest = max(rules, key=lambda rule: ("inactive", "pending", "firing").index(rule.state))
        return furthest.model_copy(update={"alerts": tuple(alert for rule in rules for alert in rule.alerts)})

    def queries(self, name: str) -> tuple[str, ...]:
        """Return the expression of every alerting rule of that name, as Prometheus prints it after parsing."""
        return tuple(rule.query for group in self.rule_groups() for rule in group.rules if rule.name == name)

    def recording_rules(self) -> tuple[RecordingRule, ...]:
        """Return all recording rules of all groups."""
        groups = self._ask(_Envelope[_RecordingRules], "api/v1/rules", {"type": "record"}).data.groups
        return tuple(rule for group in groups for rule in group.rules)

    def exposes(self, metric: str) -> bool | None:
        """Return True if a scraped target exposes the metric, with series or without.

        None if the server does not keep its targets' metadata.
        """
        family = next((metric.removesuffix(end) for end in _OF_FAMILY if metric.endswith(end)), metric)
        if any(self._metadata({"metric": name, "limit": "1"}) for name in {metric, family}):
            return True
        return False if self._metadata({"limit": "1"}) else None

    def _metadata(self, params: dict[str, str]) -> dict[str, Any]:
        try:
            return self._ask(_Envelope[dict[str, Any]], "api/v1/metadata", params).data
        except AdapterError as error:
            if error.status is None:
                raise
            return {}

    def alerts(self) -> tuple[ActiveAlert, ...]:
        """Return every pending or firing alert."""
        return self._ask(_Envelope[_Alerts], "api/v1/alerts").data.alerts

    def build_info(self) -> BuildInfo:
        """Return the server's version."""
        return self._ask(_Envelope[BuildInfo], "api/v1/status/buildinfo").data

    def _ask(self, shape: type[_Envelope[T]], path: str, params: Mapping[str, Any] | None = None) -> _Envelope[T]:
        """Return a whole answer; raises AdapterError for a partial one, too."""
        answer = self.http.get_as(shape, path, params)
        if answer.missing:
            raise self.http.error(
                path,
                f"the answer is only a part of the data: {excerpt(answer.missing.encode())}",
                "bring back the store or replica that the warning names, or give the profile the Prometheus itself",
            )
        return answer


def _series(matrix: _Matrix) -> list[Series]:
    return [
        Series(item.name, item.labels, tuple((_moment(at), value) for at, value in item.values))
        for item in matrix.result
    ]


def _unix(moment: datetime) -> str:
    return f"{moment.timestamp():.3f}"


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)

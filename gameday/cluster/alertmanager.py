"""Alertmanager's HTTP API v2: the alerts that reached it, their receivers, and silences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import AwareDatetime, Field

from gameday.cluster.http import Answer, HttpAdapter


class _Receiver(Answer):
    name: str


class _AlertStatus(Answer):
    state: Literal["unprocessed", "active", "suppressed"]
    silenced_by: tuple[str, ...] = Field(default=(), alias="silencedBy")
    inhibited_by: tuple[str, ...] = Field(default=(), alias="inhibitedBy")


class NotifiedAlert(Answer):
    """An alert as Alertmanager holds it. `ends_at` is in the future while it is active."""

    labels: dict[str, str]
    annotations: dict[str, str] = Field(default={})
    starts_at: AwareDatetime = Field(alias="startsAt")
    ends_at: AwareDatetime = Field(alias="endsAt")
    updated_at: AwareDatetime = Field(alias="updatedAt")
    status: _AlertStatus
    receiving: tuple[_Receiver, ...] = Field(default=(), alias="receivers")

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    @property
    def receivers(self) -> tuple[str, ...]:
        """The names of the receivers it is routed to."""
        return tuple(receiver.name for receiver in self.receiving)

    @property
    def silenced(self) -> bool:
        """True if a silence mutes it."""
        return bool(self.status.silenced_by)

    @property
    def inhibited(self) -> bool:
        """True if another alert mutes it by an inhibition rule: Alertmanager holds it but notifies nobody."""
        return bool(self.status.inhibited_by)


class Matcher(Answer):
    """A matcher `name=value`; `is_equal` false negates it, with `is_regex` the value is a regular expression."""

    name: str
    value: str
    is_regex: bool = Field(default=False, alias="isRegex")
    is_equal: bool = Field(default=True, alias="isEqual")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if it matches, by Alertmanager's rules.

        A missing label counts as empty; an expression has to match the whole value. An expression that Python cannot
        compile (RE2 knows a few more) counts as a match.
        """
        value = labels.get(self.name, "")
        try:
            same = re.fullmatch(self.value, value) is not None if self.is_regex else self.value == value
        except re.error:
            return True
        return same == self.is_equal


class _SilenceStatus(Answer):
    state: Literal["expired", "active", "pending"]


class Silence(Answer):
    """A silence, expired or not."""

    id: str
    status: _SilenceStatus
    matchers: tuple[Matcher, ...]
    starts_at: AwareDatetime = Field(alias="startsAt")
    ends_at: AwareDatetime = Field(alias="endsAt")
    created_by: str = Field(alias="createdBy")
    comment: str = ""

    def mutes(self, labels: Mapping[str, str]) -> bool:
        """Return True if it is active and silences an alert with these labels."""
        return self.status.state == "active" and all(matcher.matches(labels) for matcher in self.matchers)


class _Version(Answer):
    version: str


class AlertmanagerStatus(Answer):
    """The server's version and start time."""

    version_info: _Version = Field(alias="versionInfo")
    started: AwareDatetime = Field(alias="uptime")


class Alertmanager(HttpAdapter):
    """The Alertmanager of a cluster; methods raise AdapterError if it cannot be asked or refuses."""

    def alerts(self, matchers: Sequence[Matcher] = ()) -> list[NotifiedAlert]:
        """Return the alerts that match all of `matchers`, even muted ones; the server keeps no resolved ones."""
        return self.http.get_as(list[NotifiedAlert], "api/v2/alerts", _filter(matchers))

    def silences(self) -> list[Silence]:
        """Return all silences, even expired ones as long as the server keeps them."""
        return self.http.get_as(list[Silence], "api/v2/silences")

    def status(self) -> AlertmanagerStatus:
        """Return the server's version and start time."""
        return self.http.get_as(AlertmanagerStatus, "api/v2/status")


def _filter(matchers: Sequence[Matcher]) -> dict[str, list[str]]:
    return {"filter": [_as_text(matcher) for matcher in matchers]} if matchers else {}


def _as_text(matcher: Matcher) -> str:
    operator = {(True, False): "=", (False, False): "!=", (True, True): "=~", (False, True): "!~"}[
        matcher.is_equal, matcher.is_regex
    ]
    value = matcher.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{matcher.name}{operator}"{value}"'

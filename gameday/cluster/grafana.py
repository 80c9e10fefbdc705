"""Grafana's annotations: the fault window drawn into everybody's dashboards, so that nobody hunts a fault we made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict

from gameday.cluster.http import CallCounter, open_http
from gameday.cluster.profile import Endpoint

_PATH = "api/annotations"


class _Annotation(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: int


class Grafana:
    """Every method raises AdapterError, and nothing else, when the server cannot be asked or refuses."""

    def __init__(self, endpoint: Endpoint, counter: CallCounter | None = None) -> None:
        self.http = open_http(endpoint, counter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def annotate(self, start: datetime, end: datetime, text: str, tags: Sequence[str]) -> bool:
        """A region over every dashboard that shows annotations by these tags; False where the very tags have one.

        So it may be asked again: a run is drawn once.
        """
        if self.http.get_as(list[_Annotation], _PATH, {"tags": list(tags), "limit": 1}):
            return False
        body = {"time": _milliseconds(start), "timeEnd": _milliseconds(end), "tags": list(tags), "text": text}
        self.http.post(_PATH, body)
        return True


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)

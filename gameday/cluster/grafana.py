"""Grafana's annotations: the fault window in everybody's dashboards, so that nobody hunts a fault we made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gameday.cluster.http import Answer, HttpAdapter

_PATH = "api/annotations"


class _Annotation(Answer):
    id: int


class Grafana(HttpAdapter):
    """The Grafana of a cluster; methods raise AdapterError when it cannot be asked or refuses."""

    def annotate(self, start: datetime, end: datetime, text: str, tags: Sequence[str]) -> bool:
        """Draw a region over every dashboard that shows annotations by these tags, unless the very tags have one.

        Returns:
            False where there is such an annotation already, so that asking again draws nothing twice.
        """
        if self.http.get_as(list[_Annotation], _PATH, {"tags": list(tags), "limit": 1}):
            return False
        body = {"time": _milliseconds(start), "timeEnd": _milliseconds(end), "tags": list(tags), "text": text}
        self.http.post(_PATH, body)
        return True


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)

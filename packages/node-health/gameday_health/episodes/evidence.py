"""The evidence about a node that is handed over to a person, and the webhook that receives it."""

from __future__ import annotations

import json
import time

import httpx

from gameday.cluster.http import HttpServer
from gameday.cluster.profile import Endpoint
from gameday_health.episodes.model import Episode
from gameday_health.episodes.store import MOST_EVIDENCE_BYTES

_LOG_CHARACTERS = 16_000
_TRIES = 3
_PAUSE_S = 1.0


def with_log(evidence: str, pod: str, log: str) -> str:
    """Return the evidence with the end of one more agent's log; drop the oldest logs if it grows too large."""
    bundle = _read(evidence)
    logs = {**bundle.get("logs", {}), pod: log[-_LOG_CHARACTERS:]}
    text = json.dumps({**bundle, "logs": logs})
    while len(text.encode()) > MOST_EVIDENCE_BYTES and len(logs) > 1:
        logs.pop(next(iter(logs)))
        text = json.dumps({**bundle, "logs": logs})
    return text


def bundle_of(episode: Episode, reason: str | None, evidence: str) -> str:
    """Return everything as JSON: the record, the node's reason as it is, and the agents' logs."""
    record = episode.model_dump(mode="json", exclude={"past", "holder", "act"}, exclude_defaults=True)
    return json.dumps({**_read(evidence), "episode": record, "reason": reason})


def post(endpoint: Endpoint, bundle: str) -> str:
    """Send the bundle to a webhook; return why the webhook did not take it, or an empty string."""
    server = HttpServer(endpoint)
    why = ""
    try:
        for attempt in range(_TRIES):
            time.sleep(_PAUSE_S * attempt)
            try:
                # The URL exactly as it was written: to some servers a base URL's trailing slash makes another address.
                answer = server.client.post(endpoint.url, content=bundle, headers={"Content-Type": "application/json"})
            except httpx.HTTPError as error:
                why = type(error).__name__
                continue
            if answer.is_success:
                return ""
            why = f"HTTP {answer.status_code}"
        return why
    finally:
        server.close()


def _read(evidence: str) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(evidence)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

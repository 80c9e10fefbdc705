"""The records of all episodes: one ConfigMap for each node. Every write names the version that it was made from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gameday.cluster.json_api import CONFLICT, NOT_FOUND
from gameday.errors import KubernetesError
from gameday_health.episodes.api import RepairApi
from gameday_health.episodes.model import Episode

RECORD_LABEL = "gameday.dev/episode"
_RECORD, _EVIDENCE = "episode.json", "evidence.json"
_PREFIX = "gameday-episode-"
_LONGEST_NAME = 253
MOST_EVIDENCE_BYTES = 512 * 1024
"""Half of what a ConfigMap may hold (1 MiB), as the record itself needs room."""


@dataclass(frozen=True)
class Stored:
    """A record as the API server has it."""

    episode: Episode
    version: str


class EpisodeStore:
    """Reads and writes records. Methods raise KubernetesError; its status is 409 for a lost race."""

    def __init__(self, api: RepairApi) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{api.namespace}/configmaps"

    def read(self, node: str) -> Stored | None:
        """Return a node's record; None if there is none, or none that can be read."""
        found = self._api.get(f"{self._path}/{record_name(node)}")
        return stored(found) if found else None

    def write(self, episode: Episode, version: str | None, evidence: str | None = None) -> Stored:
        """Write a record in place of the one of `version`.

        Args:
            episode: The record.
            version: The resourceVersion that it was made from; None makes the ConfigMap or replaces an unreadable one.
            evidence: Written beside it; None leaves the evidence as it is.
        """
        data = record_data(episode)
        if evidence is not None:
            data[_EVIDENCE] = evidence
        name = record_name(episode.node)
        if version is None:
            return self._create(name, data)
        patch = {"metadata": {"resourceVersion": version}, "data": data}
        return _readable(self._api.request("PATCH", f"{self._path}/{name}", patch))

    def _create(self, name: str, data: dict[str, str]) -> Stored:
        metadata = record_metadata(name)
        try:
            return _readable(self._api.request("POST", self._path, {"metadata": metadata, "data": data}))
        except KubernetesError as error:
            if error.status != CONFLICT:
                raise
            found = self._api.get(f"{self._path}/{name}")
            if found is None or stored(found) is not None:
                raise
            patch = {"metadata": {**metadata, "resourceVersion": found["metadata"]["resourceVersion"]}, "data": data}
            return _readable(self._api.request("PATCH", f"{self._path}/{name}", patch))

    def evidence(self, node: str) -> str:
        """Return the evidence beside a record; empty if there is none."""
        found = self._api.get(f"{self._path}/{record_name(node)}")
        return str((found or {}).get("data", {}).get(_EVIDENCE, ""))

    def delete(self, found: Stored) -> None:
        """Delete a record, unless somebody has written it since."""
        body = {"preconditions": {"resourceVersion": found.version}}
        try:
            self._api.request("DELETE", f"{self._path}/{record_name(found.episode.node)}", body)
        except KubernetesError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise


def record_name(node: str) -> str:
    """Return the name of a node's record. A name that is too long for the prefix becomes a digest."""
    name = _PREFIX + node
    return name if len(name) <= _LONGEST_NAME else _PREFIX + hashlib.sha256(node.encode()).hexdigest()


def record_data(episode: Episode) -> dict[str, str]:
    """Return the data of a record's ConfigMap."""
    return {_RECORD: episode.model_dump_json(exclude_defaults=True)}


def record_metadata(name: str) -> dict[str, Any]:
    """Return the metadata of a record's ConfigMap."""
    return {"name": name, "labels": {RECORD_LABEL: "true", "app.kubernetes.io/part-of": "gameday"}}


def stored(configmap: dict[str, Any]) -> Stored | None:
    """Return the record in a ConfigMap's JSON, or None if there is none that can be read."""
    try:
        episode = Episode.model_validate_json((configmap.get("data") or {}).get(_RECORD, ""))
    except ValidationError:
        return None
    return Stored(episode, str(configmap["metadata"]["resourceVersion"]))


def _readable(configmap: dict[str, Any]) -> Stored:
    found = stored(configmap)
    assert found is not None, "the record was just written"
    return found

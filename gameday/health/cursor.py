"""How far the log was handled, kept in a ConfigMap so that a controller that starts again neither skips nor repeats."""

from __future__ import annotations

import logging
import time

import urllib3
from kubernetes.client.exceptions import ApiException

from gameday.health.api import MANAGER, MERGE_PATCH, Api, reason_of

log = logging.getLogger(__name__)

_NAME = "gameday-health"
_KEY = "handled-until-ns"
# How far back a first start reads, and the farthest a later one does: older faults need a person's judgement.
_FIRST_LOOK_BACK_NS = 60 * 10**9
_LONGEST_LOOK_BACK_NS = 3600 * 10**9
_SAVE_EVERY_S = 10.0


class Cursor:
    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._saved_ns = 0
        self._save_at = 0.0
        self._complained = False

    def load(self) -> int:
        """Where to begin reading, Unix ns. Raises urllib3's HTTPError while the API server is away."""
        now = time.time_ns()
        try:
            found = self._api.request("GET", f"{self._path}/{_NAME}").get("data") or {}
            self._saved_ns = int(found.get(_KEY, "0"))
        except ValueError:
            log.warning("configmap %s holds no readable %s; reading the last minute", _NAME, _KEY)
        except ApiException as error:
            if error.status != 404:
                self._complain(error)
        if not self._saved_ns:
            return now - _FIRST_LOOK_BACK_NS
        return min(max(self._saved_ns, now - _LONGEST_LOOK_BACK_NS), now)

    def save(self, handled_ns: int, *, at_once: bool) -> None:
        """Remember that every line up to `handled_ns` is handled; a failure costs repeated Events, no taint."""
        if handled_ns <= self._saved_ns or (not at_once and time.monotonic() < self._save_at):
            return
        self._save_at = time.monotonic() + _SAVE_EVERY_S
        data = {"data": {_KEY: str(handled_ns)}}
        try:
            try:
                query = {"fieldManager": MANAGER}
                self._api.request("PATCH", f"{self._path}/{_NAME}", data, query, MERGE_PATCH)
            except ApiException as error:
                if error.status != 404:
                    raise
                self._api.request("POST", self._path, {"metadata": {"name": _NAME}, **data}, query)
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            self._complain(error)
            return
        self._saved_ns = handled_ns

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            log.warning("%s/%s cannot be used as a cursor: %s", self._path, _NAME, reason_of(error))

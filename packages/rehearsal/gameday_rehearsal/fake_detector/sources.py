"""The sources of a stand-in: the kernel logs in the log store, and the host engines' DCGM fields."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from gameday.cluster.loki import Followed, LogStore
from gameday.cluster.profile import ClusterProfile, Endpoint
from gameday.detectors.facts import facts_of, facts_of_field
from gameday.detectors.models import Fact
from gameday.faults.base import Layer
from gameday.xid.lines import Kind
from gameday_health.detect import Detection, Detector

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
"""Interval of the rehearsal's own scrapes; the real detector's latency is in its profile."""
_ANSWER_WITHIN_S = 10.0
_FAULT_TYPES = {Kind.XID: "xid", Kind.GPU_LOST: "xid", Kind.SXID: "sxid"}


@dataclass(frozen=True)
class Cause:
    """A fault as a source shows it. `key` tells it from the node's other faults."""

    node: str
    key: str
    fault: str
    layer: Layer
    facts: tuple[tuple[str, Fact], ...]
    said: str
    """The source's text, for the message that people read."""


def cause_in(detection: Detection) -> Cause | None:
    """Return the fault that a kernel-log line reports, or None for any other line."""
    event = detection.event
    fault = _FAULT_TYPES.get(event.kind) if event and event.code is not None and not event.detail_only else None
    if event is None or fault is None:
        return None
    key = f"{fault} {event.code} {event.pci or ''}"
    facts = tuple(facts_of(event).items())
    return Cause(detection.node, key, fault, Layer.KERNEL_LOG, facts, event.line)


class KernelLogs:
    """Every line about a GPU from now on, delivered in the event loop."""

    def __init__(self, loki_url: str, on_line: Callable[[Detection], None], connected: Callable[[], None]) -> None:
        names = ClusterProfile.model_fields
        selector, label = names["loki_selector"].default, names["loki_node_label"].default
        loop = asyncio.get_running_loop()

        def on_connected(up: Followed | None) -> None:
            if up:
                loop.call_soon_threadsafe(connected)

        self._store = LogStore(Endpoint(url=loki_url))
        self._detector = Detector(self._store, selector, label, time.time_ns(), on_connected, lambda _: None)

        def follow() -> None:
            for detection in self._detector.detections():
                loop.call_soon_threadsafe(on_line, detection)

        threading.Thread(target=follow, name="follow", daemon=True).start()

    def stop(self) -> None:
        self._detector.stop()
        self._store.close()


class DcgmFields:
    """Fields of every GPU. A value that differs from the first look's is a cause until it is the same again."""

    def __init__(self, dcgm_url: str, fields: frozenset[str]) -> None:
        self._url = dcgm_url
        self._fields = sorted(fields)
        self._first: dict[tuple[str, str, str], float] = {}

    async def follow(self, seen: Callable[[Cause], None], over: Callable[[str, str], None]) -> None:
        """Look once a second until cancelled; `over` gets node and key of each cause that has ended."""
        async with httpx.AsyncClient(timeout=_ANSWER_WITHIN_S, trust_env=False) as http:
            while self._fields:
                try:
                    answer = await http.get(self._url, params={"name": self._fields})
                    answer.raise_for_status()
                    for cause, is_over in self._changes(answer.text):
                        over(cause.node, cause.key) if is_over else seen(cause)
                except httpx.HTTPError as error:
                    log.warning("%s: %s", self._url, error)
                await asyncio.sleep(_LOOK_EVERY_S)

    def _changes(self, text: str) -> Iterator[tuple[Cause, bool]]:
        """Yield each value that differs from the first look's; and each that no longer does, as an ended cause."""
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                node, gpu = sample.labels["node"], sample.labels["gpu"]
                first = self._first.setdefault((node, gpu, sample.name), sample.value)
                facts = tuple(facts_of_field(sample.name, sample.value).items())
                said = f"{sample.name} of GPU {gpu} is {sample.value:g}, and was {first:g}"
                key = f"{sample.name} GPU {gpu}"
                yield Cause(node, key, "dcgm_field", Layer.DCGM_CACHE, facts, said), sample.value == first

"""The readings of this machine's GPUs as dcgm-exporter writes them: names, types, help texts and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gameday_rehearsal.nodes.counters import Counter, counters_of
from gameday_rehearsal.nodes.devices import GpuHolder
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.exposition import own_labels, pod_labels, xid_labels
from gameday_rehearsal.this_machine import NODE
from gameday_rehearsal.this_machine.gpus import Gpus, Reading

_XID = "DCGM_FI_DEV_XID_ERRORS"
HolderOf = Callable[[int], GpuHolder | None]
"""A function from a GPU's index to the pod that holds it."""


def render(gpus: Gpus, reading: Reading | None, release: ExporterRelease, holder: HolderOf) -> str:
    """Return the page; empty without a reading. A metric that no GPU has is left out."""
    if reading is None:
        return ""
    labels = {
        gpu.index: own_labels(release, NODE, gpu, gpus.model, gpus.driver) + pod_labels(holder(gpu.index))
        for gpu in gpus.identities
        if reading.figures.get(gpu.index)
    }
    return "".join(_family(counter, labels, reading, release) for counter in counters_of(release))


def _family(counter: Counter, labels: dict[int, str], reading: Reading, release: ExporterRelease) -> str:
    lines = list(_xids(labels, reading, release) if counter.name == _XID else _series(counter.name, labels, reading))
    if not lines:
        return ""
    return "\n".join([f"# HELP {counter.name} {counter.help}", f"# TYPE {counter.name} {counter.kind}", *lines, ""])


def _series(name: str, labels: dict[int, str], reading: Reading) -> Iterator[str]:
    for index, own in labels.items():
        if (value := reading.figures[index].get(name)) is not None:
            yield f"{name}{{{own}}} {value}"


def _xids(labels: dict[int, str], reading: Reading, release: ExporterRelease) -> Iterator[str]:
    if reading.xids is None:
        return
    for index, own in labels.items():
        code = reading.xids.get(index, 0)
        if code or release.shows_no_xid:
            yield f"{_XID}{{{own}{xid_labels(code) if release.codes_xids else ''}}} {code}"

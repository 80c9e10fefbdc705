"""dcgm-exporter's /metrics for all nodes at once, in Prometheus' text format, with the metrics of the counters file.

Names, types and help texts are the file's. A line of it has no series if no GPU has the field, as with the real
exporter. Fields of NVSwitches and of single links have none, because there are no such devices here.

Label strings change only when a GPU goes to another pod, so they are kept; one scrape of 8,000 GPUs is then little
more than joining strings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gameday.xid.catalogue import xids
from gameday_rehearsal.nodes.counters import Counter, counters_of
from gameday_rehearsal.nodes.dcgm import BY_NAME, XID_FIELD, XID_WINDOW_S, DcgmCache, Field
from gameday_rehearsal.nodes.dcgm_health import READ, WATCHES, WHOLE_GPU, HealthWatch, Incident
from gameday_rehearsal.nodes.devices import GpuHolder
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.gpus import Cell
from gameday_rehearsal.nodes.identity import DRIVER_VERSION, MODEL, GpuIdentity

XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
"""The exporter's own metric: how often each Xid came within its window; 0 without the label `xid` if none did."""
GPU_HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"
"""The exporter's own metric: DCGM's health watches, each as a series of every GPU; 0 for a pass."""
_DRIVER = f',DCGM_FI_DRIVER_VERSION="{DRIVER_VERSION}"'
_PASSED = Incident(0, "DCGM_FR_OK")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def watched_by(release: ExporterRelease) -> frozenset[int]:
    """Return the ids of the fields that an exporter of this release makes DCGM sample."""
    names = {counter.name for counter in counters_of(release)}
    exported = {BY_NAME[name].id for name in names & BY_NAME.keys()}
    return frozenset(exported | READ if GPU_HEALTH in names else exported)


class Exposition:
    def __init__(
        self,
        cache: DcgmCache,
        names: list[str],
        gpus: list[tuple[GpuIdentity, ...]],
        release: ExporterRelease = ExporterRelease.CODED,
    ) -> None:
        self._cache = cache
        self._release = release
        self._counters = tuple(counter for counter in counters_of(release) if counter.kind != "label")
        self._health = HealthWatch(cache)
        self._gpus_per_node = cache.fleet.shape[1]
        self._index = {name: index for index, name in enumerate(names)}
        self._own = [
            own_labels(release, name, gpu, MODEL, DRIVER_VERSION)
            for name, of_node in zip(names, gpus, strict=True)
            for gpu in of_node
        ]
        self._labels = [f"{{{own}}} " for own in self._own]
        self._shown = self._labels

    def hold(self, cell: Cell, holder: GpuHolder | None) -> None:
        """Put the pod that holds a GPU into the GPU's labels from now on."""
        flat = cell[0] * self._gpus_per_node + cell[1]
        self._labels[flat] = f"{{{self._own[flat]}{pod_labels(holder)}}} "

    def _shown_labels(self) -> list[str]:
        """Return all labels; those of a blind node are without its driver's version, which is blank, too."""
        blind = np.flatnonzero(self._cache.blind).tolist()
        if not blind:
            return self._labels
        shown = self._labels.copy()
        for node in blind:
            for cell in range(node * self._gpus_per_node, (node + 1) * self._gpus_per_node):
                shown[cell] = shown[cell].replace(_DRIVER, "")
        return shown

    def render(self, nodes: list[str] | None = None, names: list[str] | None = None) -> Iterator[bytes]:
        """Yield a piece per metric; only these nodes and metrics if given. Unknown ones are left out."""
        self._cache.fleet.advance()
        wanted = self._cache.scrape()
        self._shown = self._shown_labels()
        if nodes is not None:
            wanted &= np.isin(np.arange(len(wanted)), [self._index[name] for name in nodes if name in self._index])
        for counter in self._counters:
            if names is None or counter.name in names:
                yield from self._family(counter, wanted)

    def _family(self, counter: Counter, wanted: npt.NDArray[np.bool_]) -> Iterator[bytes]:
        answering = np.flatnonzero(wanted & self._cache.running & self._cache.fleet.powered).tolist()
        if counter.name == XID_COUNT:
            each = range(self._gpus_per_node)
            pieces = iter([[line for node in answering for gpu in each for line in self._xid_counts(node, gpu)]])
        elif counter.name == GPU_HEALTH:
            pieces = self._health_lines(answering)
        elif field := BY_NAME.get(counter.name):
            pieces = iter([self._field_lines(field, wanted)])
        else:
            return
        head = [f"# HELP {counter.name} {counter.help}", f"# TYPE {counter.name} {counter.kind}"]
        for lines in pieces:
            if lines:
                yield "\n".join([*head, *lines, ""]).encode()
                head = []

    def _field_lines(self, field: Field, wanted: npt.NDArray[np.bool_]) -> list[str]:
        cells = np.flatnonzero((self._cache.shown(field) & wanted[:, None]).ravel()).tolist()
        values = self._cache.read(field).ravel()[cells].tolist() if cells else []
        labels, name = self._shown, field.name
        if field.id == XID_FIELD and self._release.codes_xids:
            xids_of_cells = zip(cells, values, strict=True)
            shown = [one for one in xids_of_cells if one[1] or self._release.shows_no_xid]
            return [f"{name}{self._with(cell, xid_labels(int(value)))}{value}" for cell, value in shown]
        return [f"{name}{labels[cell]}{value}" for cell, value in zip(cells, values, strict=True)]

    def _health_lines(self, answering: list[int]) -> Iterator[list[str]]:
        """Yield the series of one watch after the other; a lost GPU has them, too, and passes."""
        found = self._health.check()
        for watch in (*WATCHES, WHOLE_GPU) if self._release.shows_whole_gpus_health else WATCHES:
            lines = []
            for node in answering:
                for gpu in range(self._gpus_per_node):
                    incident = found[watch].get((node, gpu), _PASSED)
                    error = self._release.error_name(incident.code)
                    more = f',health_error_code="{error}",health_watch="{watch}"'
                    cell = node * self._gpus_per_node + gpu
                    lines.append(f"{GPU_HEALTH}{self._with(cell, more)}{incident.result}")
            yield lines

    def _xid_counts(self, node: int, gpu: int) -> Iterator[str]:
        cell = node * self._gpus_per_node + gpu
        window = f',window_size_in_ms="{XID_WINDOW_S * 1000}"'
        counts = self._cache.xid_counts((node, gpu))
        if not counts:
            yield f"{XID_COUNT}{self._with(cell, window)}0"
        for code, count in counts.items():
            labels = f'{window},xid="{code}"'
            yield f"{XID_COUNT}{self._with(cell, labels)}{count}"

    def _with(self, cell: int, more: str) -> str:
        return f"{self._shown[cell].removesuffix('} ')}{more}}} "


def xid_labels(code: int) -> str:
    """Return the labels that make each code a series of its own; 0 stands for a GPU without an Xid."""
    known = xids().get(code)
    message = "No Error" if code == 0 else known.name if known else "Unknown Error"
    return f',err_code="{code}",err_msg="{_escaped(message)}"'


def own_labels(release: ExporterRelease, node: str, gpu: GpuIdentity, model: str, driver: str) -> str:
    """Return the labels of a GPU of a node, in dcgm-exporter's order."""
    return (
        f'gpu="{gpu.index}",UUID="{_escaped(gpu.uuid)}",pci_bus_id="{gpu.bus_id}",device="nvidia{gpu.index}",'
        f'modelName="{_escaped(model)}",{release.node_label}="{_escaped(node)}",'
        f'DCGM_FI_DRIVER_VERSION="{_escaped(driver)}"'
    )


def pod_labels(holder: GpuHolder | None) -> str:
    """Return the labels of the pod that holds a GPU, behind the GPU's own."""
    if holder is None:
        return ""
    return (
        f',container="{_escaped(holder.container)}",namespace="{_escaped(holder.namespace)}"'
        f',pod="{_escaped(holder.pod)}"'
    )


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

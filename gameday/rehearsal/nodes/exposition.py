"""dcgm-exporter's /metrics for all nodes at once, in Prometheus' text format.

Label strings change only when a GPU goes to another pod, so they are kept;
one scrape of 8,000 GPUs is then little more than joining strings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gameday.rehearsal.nodes.dcgm import FIELDS, DcgmCache
from gameday.rehearsal.nodes.devices import GpuHolder
from gameday.rehearsal.nodes.gpus import Cell
from gameday.rehearsal.nodes.identity import DRIVER_VERSION, MODEL, GpuIdentity

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    def __init__(self, cache: DcgmCache, names: list[str], gpus: list[tuple[GpuIdentity, ...]]) -> None:
        self._cache = cache
        self._gpus_per_node = cache.fleet.shape[1]
        self._index = {name: index for index, name in enumerate(names)}
        self._own = [_own_labels(name, gpu) for name, of_node in zip(names, gpus, strict=True) for gpu in of_node]
        self._labels = [f"{{{own}}} " for own in self._own]

    def hold(self, cell: Cell, holder: GpuHolder | None) -> None:
        """Name the pod that holds a GPU in the GPU's labels from now on."""
        flat = cell[0] * self._gpus_per_node + cell[1]
        pod = (
            f',container="{_escaped(holder.container)}",namespace="{_escaped(holder.namespace)}"'
            f',pod="{_escaped(holder.pod)}"'
            if holder
            else ""
        )
        self._labels[flat] = f"{{{self._own[flat]}{pod}}} "

    def render(self, nodes: list[str] | None = None, names: list[str] | None = None) -> Iterator[bytes]:
        """One piece per metric; only these nodes and metrics where given, unknown ones being no series."""
        self._cache.fleet.advance()
        wanted = self._cache.exporting.copy()
        if nodes is not None:
            wanted &= np.isin(np.arange(len(wanted)), [self._index[name] for name in nodes if name in self._index])
        for field in FIELDS:
            if names is not None and field.name not in names:
                continue
            cells = np.flatnonzero((self._cache.shown(field) & wanted[:, None]).ravel()).tolist()
            if not cells:
                continue
            values = self._cache.read(field).ravel()[cells].tolist()
            labels, name = self._labels, field.name
            lines = [f"{name}{labels[cell]}{value}" for cell, value in zip(cells, values, strict=True)]
            head = f"# HELP {name} {field.help}\n# TYPE {name} {field.kind}\n"
            yield (head + "\n".join(lines) + "\n").encode()


def _own_labels(node: str, gpu: GpuIdentity) -> str:
    """In dcgm-exporter's order."""
    return (
        f'gpu="{gpu.index}",UUID="{gpu.uuid}",pci_bus_id="{gpu.bus_id}",device="nvidia{gpu.index}",'
        f'modelName="{MODEL}",Hostname="{_escaped(node)}",DCGM_FI_DRIVER_VERSION="{DRIVER_VERSION}"'
    )


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

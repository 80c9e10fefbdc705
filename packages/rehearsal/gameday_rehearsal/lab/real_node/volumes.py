"""The volumes of a real node: folders of its disk, because nothing in the lab makes volumes as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gameday_rehearsal.lab.real_node.network import REAL_NODE

_COUNT = 4
"""Our own choice: the manifests of deploy/ ask for two."""
_PLACE = "/var/lib/volumes"


def make_volumes(var_lib: Path) -> None:
    """Make the volumes' folders below the node's /var/lib. Raises OSError."""
    for number in range(_COUNT):
        (var_lib / Path(_PLACE).name / str(number)).mkdir(parents=True, exist_ok=True)


def volume_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each volume's object and its collection; of this kind a kubelet gives files to the pod's own group."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [REAL_NODE]}
    for number in range(_COUNT):
        spec = {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"{_PLACE}/{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }
        yield "/api/v1/persistentvolumes", {"metadata": {"name": f"{REAL_NODE}-{number}"}, "spec": spec}

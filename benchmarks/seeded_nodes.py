"""Nodes in the embedded API server's store before it serves: a request each would take minutes for 50,000 of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from multiprocessing import Process
from pathlib import Path
from uuid import uuid4

from gameday.rehearsal.nodes.node_object import Conditions, NodeFacts, machine_status, node_object
from kubesim.apiserver.objects import Objects, Write
from kubesim.apiserver.resources import resource_named
from kubesim.apiserver.store import Store

_GPUS = 8
_IMAGES = 50  # the kubelet's nodeStatusMaxImages
_STATE_FILE = "state.jsonl"  # of kubesim/apiserver/server.py


def seed_nodes(folder: Path, names: Sequence[str], labels: Mapping[str, str] | None = None) -> None:
    """Write Ready Nodes of eight GPUs, as kubelets register them, into the data folder of an API server that is down.

    Args:
        folder: The server's data folder, without a state so far.
        names: The nodes' names.
        labels: Labels that each node has beside a virtual node's own.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A process of its own, whose memory goes with it: every Node is in it.
    writer = Process(target=_write, args=(folder / _STATE_FILE, names, labels or {}))
    writer.start()
    writer.join()
    if writer.exitcode:
        raise RuntimeError(f"{folder / _STATE_FILE} was not written: see above")


def _write(path: Path, names: Sequence[str], labels: Mapping[str, str]) -> None:
    store, resource = Store(path), resource_named("nodes")
    # As a request would, with defaults and managed fields, but for the taint that the node lifecycle takes off again.
    objects, kubelet = Objects(store), Write("kubelet", dry_run=True)
    status = {"conditions": Conditions().document(None), "images": _images()}
    for index, name in enumerate(names):
        facts = NodeFacts(index=index, name=name, gpus=_GPUS, port=None, version="v1.34.0")
        node = node_object(facts, 0, {**machine_status(facts, str(uuid4()), _GPUS), **status})
        node["metadata"]["labels"] |= labels
        created = objects.create(resource, "", node, kubelet).fresh()
        del created["spec"]["taints"]
        store.put(resource.store_key, created)
    store.close()


def _images() -> list[dict[str, object]]:
    return [{"names": [f"registry.example/image-{index}:1"], "sizeBytes": 10**9} for index in range(_IMAGES)]

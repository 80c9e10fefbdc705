"""The size of ledgers: a real one, as the cluster stores it while a game-day is rehearsed, and what many nodes make.

The game-day is on three virtual nodes, and takes two minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.scale_figures import Figure
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import load_profile
from gameday.fleet.labels import why_labels_do_not_fit
from gameday.ledger.ledger import LEDGER_BYTES, LEDGER_LABEL
from gameday.plan.catalogue import find_plan
from gameday.plan.targets import MOST_TARGETS
from gameday.rehearsal.blueprint import Blueprint, Detector, Size
from gameday.rehearsal.cluster import RehearsalCluster

_PLAYED = "gpu-fell-off-the-bus"
_TARGETS = 3
_LONG = 30
"""Characters of a node's name, as the arithmetic has it: gpu-00001.cluster-west.example."""
_EVIDENCE = ["x" * 300, "x" * 300, "x" * 180]
"""The most that an entry keeps: 800 bytes as JSON (gameday/ledger/ledger.py)."""
_LOOK_EVERY_S = 0.1


def ledger_figures(nodes: int) -> Iterator[Figure]:
    """Yield the size of a game-day's ledger, for as many targets as a plan may have, and of the labels of a fleet."""
    entries = _largest_ledger()
    stored, worst = _bytes(entries), _bytes(list(map(_with_evidence, entries)))
    yield Figure(
        f"ledger of {_TARGETS} targets, at its largest",
        "at most 8 entries a target, 300 to 1,100 bytes each",
        f"{len(entries) / _TARGETS:.1f} entries a target of {stored / len(entries):.0f} bytes",
    )
    for what, size in (("as they were", stored), ("each with 800 bytes of evidence", worst)):
        whole = size / _TARGETS * MOST_TARGETS
        yield Figure(
            f"ledger of {MOST_TARGETS} targets, entries {what}",
            "0.9 MiB at most",
            f"{whole / 2**20:.2f} MiB; {LEDGER_BYTES * _TARGETS // size} targets would fit",
        )
    yield Figure(f"labels of {nodes} nodes in a ledger", "refused", why_labels_do_not_fit(_names(nodes)) or "fit")
    yield Figure("labels that fit in a ledger", "11,000 nodes", f"{_most_labels():,} nodes")


def _largest_ledger() -> list[tuple[str, str]]:
    """Play a game-day; return keys and values of its ledger's entries when it was largest."""
    plan = YAML(typ="safe", pure=True).load(find_plan(_PLAYED).read_text())
    plan["targets"]["nodes"] = plan["guardrails"]["max_nodes"] = _TARGETS
    largest: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="gameday-scale-") as made,
        RehearsalCluster(Blueprint(Path(made) / "cluster", Size(nodes=6, gpus=2), Detector.DEFAULT)) as cluster,
        closing(Kubernetes(load_profile(cluster.profile))) as kubernetes,
    ):
        file = Path(made) / "plan.yaml"
        with file.open("w") as out:
            YAML(typ="safe", pure=True).dump(plan, out)
        argv = [sys.executable, "-m", "gameday.cli", "run", str(file), "--profile", str(cluster.profile)]
        environment = os.environ | cluster.prefect_client
        playing = subprocess.Popen(
            [*argv, "--reports", f"{made}/reports"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        while playing.poll() is None:
            for data in _ledgers(kubernetes):
                largest = max(largest, data, key=lambda one: sum(map(len, one.values())))
            time.sleep(_LOOK_EVERY_S)
    if playing.returncode:
        print(f"the game-day ended with {playing.returncode}", file=sys.stderr)
    return [(key, _with_long_name(text)) for key, text in largest.items() if key != "run.json"]


def _ledgers(kubernetes: Kubernetes) -> list[dict[str, str]]:
    namespace, selector = kubernetes.profile.namespace, f"{LEDGER_LABEL}=true"
    with kubernetes.explained("list ledgers"):
        found = kubernetes.core.list_namespaced_config_map(namespace, label_selector=selector).items
    return [dict(one.data or {}) for one in found]


def _with_long_name(text: str) -> str:
    node = json.loads(text)["node"]
    return text.replace(node, node.ljust(_LONG, "x")) if node else text


def _with_evidence(entry: tuple[str, str]) -> tuple[str, str]:
    key, text = entry
    settled = json.loads(text) | {"settled": "clean", "by": "flow", "evidence": _EVIDENCE}
    return key, json.dumps(settled, separators=(",", ":"))


def _bytes(entries: list[tuple[str, str]]) -> int:
    return sum(len(key) + len(text.encode()) for key, text in entries)


def _names(nodes: int) -> list[str]:
    return [f"gpu-{number:05d}.cluster-west.example" for number in range(nodes)]


def _most_labels() -> int:
    """Return the most nodes, in hundreds, whose labels one ledger holds."""
    return max(hundreds * 100 for hundreds in range(1, 500) if not why_labels_do_not_fit(_names(hundreds * 100)))

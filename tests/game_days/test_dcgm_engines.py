"""An exporter with a DCGM engine of its own: doctor and baseline tell before anything is broken."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday import cli
from gameday.history.events import FaultInjected
from tests.game_days.conftest import Arena, changed
from tests.rehearsal.processes import until

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]
ROW = "agent: DCGM's readers see the fault"
ROOT = Path(__file__).parents[2]
REMEDY = "DCGM_REMOTE_HOSTENGINE_INFO"


def plan_on(arena: Arena) -> dict[str, Any]:
    plan = YAML(typ="safe", pure=True).load(ROOT / "plans/dcgm-gpu-temperature.yaml")
    return changed(plan, "qa.floors.gpus", arena.cluster.size.gpus)


def engines_row(arena: Arena, *arguments: str) -> dict[str, Any]:
    """The doctor's line about the engines."""
    path, said = arena.folder / "engines.yaml", io.StringIO()
    YAML(typ="safe", pure=True).dump(plan_on(arena), path)
    with contextlib.redirect_stdout(said):
        cli.run(["doctor", str(path), "--profile", str(arena.cluster.profile), "--json", *arguments])
    rows: list[dict[str, Any]] = json.loads(said.getvalue())
    return next(row for row in rows if f"{row['area']}: {row['name']}" == ROW)


@pytest.fixture
def embedded(clean_arena: Arena) -> Iterator[Arena]:
    """Every node has one more exporter, which nobody told to ask the node's host engine."""
    names = [f"exporter-of-{node}" for node in clean_arena.nodes()]
    core = clean_arena.core
    for node, name in zip(clean_arena.nodes(), names, strict=True):
        labels = {"app.kubernetes.io/name": "dcgm-exporter"}
        container = {"name": "exporter", "image": "ghcr.io/example/dcgm-exporter:1"}
        spec = {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]}
        core.create_namespaced_pod("default", {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def all_run() -> bool:
        pods = core.list_namespaced_pod("default", label_selector="app.kubernetes.io/name=dcgm-exporter").items
        return [pod.status.phase for pod in pods] == ["Running"] * len(names)

    until(all_run, 30, "the exporters to run")
    yield clean_arena
    for name in names:
        core.delete_namespaced_pod(name, "default", grace_period_seconds=0)


def test_the_doctor_finds_nothing_where_the_exporter_asks_the_nodes_engine(clean_arena: Arena) -> None:
    assert engines_row(clean_arena)["ok"] is None
    row = engines_row(clean_arena, "--send-pod")
    assert row["ok"] is True, row
    assert "beside the node's" in row["detail"]


def test_an_exporter_with_an_engine_of_its_own_is_named_and_refused(embedded: Arena) -> None:
    row = engines_row(embedded, "--send-pod")
    assert row["ok"] is False, row
    assert "exporter-of-" in row["detail"]
    assert REMEDY in row["detail"]
    played = embedded.play(plan_on(embedded))
    assert played.exit_code == 5, played.output
    assert REMEDY in " ".join(played.output.split())
    assert not list(played.history.of(FaultInjected))

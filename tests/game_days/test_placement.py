"""The whole comparison of a gang that prefers fast nodes and one that knows of no classes."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.settings import temporary_settings

from gameday import cli
from gameday.history.events import FaultUndone, GangPlaced, IntentRecorded
from gameday.history.journal import read_history
from gameday_rehearsal.blueprint import Size
from tests.game_days.conftest import QUIET, Arena, arena_in
from tests.rehearsal.processes import until
from tests.support.prefect_api import client_settings

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def classed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A cluster of eight nodes, of which the last two are fast and the first is slow."""
    with arena_in(tmp_path_factory.mktemp("classed"), Size(gpu_classes=True)) as started:
        until(started.is_training, 60, "the training to have its GPUs")
        yield started


def test_a_gang_lands_on_the_fast_nodes_and_the_control_does_not(classed: Arena, tmp_path: Path) -> None:
    before, said = classed.nodes(), io.StringIO()
    settings = {**client_settings(classed.cluster.prefect_client), **QUIET}
    arguments = ["--profile", str(classed.cluster.profile), "--reports", str(tmp_path)]
    with temporary_settings(settings), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.run(["run", "hardware-aware-placement", *arguments])
    assert code == 0, said.getvalue()
    (page,) = tmp_path.glob("arms-*-hardware-aware-placement/comparison.json")
    compared = json.loads(page.read_bytes())
    (row,) = [row for row in compared["expectations"] if row["check"] == "placement"]
    assert [(cell["held"], cell["broken"]) for cell in row["cells"]] == [(1, 0), (0, 1)]
    runs = [run for column in compared["arms"] for run in column["runs"]]
    histories = [read_history(page.parent / run["run_id"] / "history.jsonl") for run in runs]
    ours, control = (history.of(GangPlaced)[0] for history in histories)
    assert {pod.node for pod in ours.pods} <= {"gpu-node-7", "gpu-node-8"}
    assert {pod.gpu_class for pod in ours.pods} == {"fast"} != {pod.gpu_class for pod in control.pods}
    gang = {f"gang-{index}" for index in range(3)}
    for history in histories:
        assert gang <= {event.intent for event in history.of(IntentRecorded)}
        assert gang <= {event.intent for event in history.of(FaultUndone)}
    assert (classed.leftovers(), classed.nodes()) == ([], before)

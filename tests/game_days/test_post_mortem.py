"""A real incident on the rehearsal cluster: an Xid that nobody of ours injected, reported afterwards, read only."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gameday import cli
from gameday.cluster.profile import load_profile
from gameday.cluster.prometheus import Prometheus
from gameday.xid.lines import format_xid
from tests.cluster.servers.conftest import eventually
from tests.game_days.conftest import Arena
from tests.game_days.test_guarded_runs import writes

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]
QUIET_S = 5
TAINT = "trainy.konduktor.ai/faulty"


def tainted(arena: Arena, node: str) -> bool:
    return any(taint.key == TAINT for taint in arena.core.read_node(node).spec.taints or [])


@pytest.fixture
def broken(clean_arena: Arena) -> Iterator[tuple[str, datetime]]:
    """A node whose kernel log got an Xid 95 by itself, with the taint and the alert that follow; and since when."""
    node = sorted(clean_arena.nodes())[-1]
    with Prometheus(load_profile(clean_arena.cluster.profile).prometheus) as prometheus:
        alert = f'alertname="GPUXidCritical",node="{node}"'
        earlier = f"max_over_time(ALERTS{{{alert}}}[{QUIET_S}s])"  # of the game-days before this
        eventually(lambda: prometheus.query(earlier), lambda found: not found)
        began = datetime.now(UTC) - timedelta(seconds=QUIET_S)
        host = clean_arena.hosts()[node]
        host.write_kernel_log("<3>" + format_xid(95, host.gpus()[0].pci_bus_id))
        host.write_kernel_log("<3>" + format_xid(13, host.gpus()[1].pci_bus_id))  # a workload's own error beside it
        # Twice, or nobody could tell how far apart its samples are, and so whether it stood when the window began.
        firing = f'ALERTS{{{alert},alertstate="firing"}}'
        fires = f"count_over_time({firing}[{QUIET_S}s]) > 1"
        eventually(lambda: tainted(clean_arena, node), bool)
        eventually(lambda: prometheus.query(fires), bool)
    yield node, began
    clean_arena.core.patch_node(node, {"spec": {"taints": None}})
    eventually(lambda: clean_arena.nodes()[node][-1], lambda annotations: not annotations)


def command(*arguments: str) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        return cli.run(["post-mortem", *arguments]), said.getvalue()


def test_an_incident_is_read_from_the_servers_and_nothing_in_the_cluster_is_written(
    clean_arena: Arena, broken: tuple[str, datetime], tmp_path: Path
) -> None:
    node, began = broken
    before = writes(clean_arena)
    where = ["--profile", str(clean_arena.cluster.profile), "--reports", str(tmp_path)]
    code, said = command("--node", node, "--from", began.isoformat(), *where)
    assert code == 0, said
    assert writes(clean_arena) == before
    (folder,) = tmp_path.iterdir()
    story = json.loads((folder / "post-mortem.json").read_bytes())
    statuses = {finding["id"]: finding["status"] for finding in story["findings"]}
    assert statuses | {"back": "broken"} == statuses  # it still carries the taint
    assert [statuses[which] for which in ("log", "alert", "taint")] == ["held"] * 3
    assert story["nearest"]["plan"] == "xid-95-uncontained-ecc"
    kept = [json.loads(line)["event"] for line in (folder / "history.jsonl").read_bytes().splitlines()]
    chain = {event["source"] for event in kept if event["kind"] == "hop_seen" and event["hop"].startswith("rule")}
    assert chain == {"ALERTS of GPUXidCritical"}  # and not that of the other line
    calls = {call for event in kept if event["kind"] == "api_cost" for call in event["by_call"]}
    assert all(call.startswith(("GET", "LIST")) for call in calls), calls
    again, _ = command(str(folder))
    assert again == 0


def test_a_node_that_nobody_knows_is_a_slip_and_leaves_no_folder(clean_arena: Arena, tmp_path: Path) -> None:
    where = ["--profile", str(clean_arena.cluster.profile), "--reports", str(tmp_path)]
    code, said = command("--node", "gpu-nod-1", "--from", "3m ago", *where)
    assert (code, list(tmp_path.iterdir())) == (64, [])
    assert "no server knows" in said


@pytest.mark.parametrize(
    "arguments", [["--node", "n"], [], ["--node", "n", "--from", "yesterday"], ["nowhere"], ["nowhere", "--node", "n"]]
)
def test_a_wrong_command_line_is_explained(arguments: list[str]) -> None:
    code, said = command(*arguments)
    assert code == 64
    assert said.startswith("gameday: ")

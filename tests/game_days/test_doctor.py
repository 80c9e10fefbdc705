"""`gameday doctor` on a whole cluster: each thing is broken in turn, and its line says so."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday import cli
from gameday_rehearsal.observability import ALERTMANAGER_USER
from gameday_rehearsal.seed import seeding
from tests.game_days.conftest import Arena
from tests.rehearsal.processes import until

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]
ROOT = Path(__file__).resolve().parents[2]
PLAN = "xid-95-uncontained-ecc"


def doctor(arena: Arena, *arguments: str, alert: str = "GPUXidCritical") -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and every line by its area and name, of the shipped plan made for the arena's smaller nodes."""
    until(lambda: is_scraped(arena), 30, "Prometheus to have scraped all of the young cluster")
    plan = arena.folder / "doctor.yaml"
    text = (ROOT / f"plans/{PLAN}.yaml").read_text().replace("gpus: 8", f"gpus: {arena.cluster.size.gpus}")
    assert "name: GPUXidCritical" in text
    plan.write_text(text.replace("name: GPUXidCritical", f"name: {alert}"))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = cli.run(["doctor", str(plan), "--profile", str(arena.cluster.profile), "--json", *arguments])
    return code, {f"{row['area']}: {row['name']}": row for row in json.loads(said.getvalue())}


def is_scraped(arena: Arena) -> bool:
    """Whether Prometheus has scraped the sources of the rules that the plan expects once."""
    query = {"query": 'count({__name__=~"gameday_health_.+"}) and count({__name__=~"DCGM_.+"})'}
    answer = httpx.get(f"{arena.cluster.urls['prometheus']}/api/v1/query", params=query, trust_env=False)
    return bool(answer.raise_for_status().json()["data"]["result"])


def failed(rows: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, row in rows.items() if row["ok"] is False}


def test_a_healthy_cluster_has_nothing_wrong_and_is_not_touched(clean_arena: Arena) -> None:
    code, rows = doctor(clean_arena)
    assert failed(rows) == set()
    # Virtual nodes list no images, and nobody scrapes their clocks: both unknown without a pod.
    assert {name for name, row in rows.items() if row["ok"] is None} == {"agent: image", "agent: clock"}
    assert code == 2


def test_a_pod_of_ours_checks_image_and_clock_and_is_deleted_again(clean_arena: Arena) -> None:
    code, rows = doctor(clean_arena, "--send-pod")
    assert rows["agent: image"]["ok"] is rows["agent: clock"]["ok"] is True, rows
    assert code == 0


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("PROMETHEUS__URL", "http://127.0.0.1:9", "prometheus: can be asked"),
        ("ALERTMANAGER__URL", "http://127.0.0.1:9", "alertmanager: can be asked"),
        ("LOKI__URL", "http://127.0.0.1:9", "logs: can be asked"),
        ("LOKI_NODE_LABEL", "no_such_label", "logs: labels exist"),
        ("OPT_IN_LABEL", "nobody/has=this", "targets: found"),
        ("CANARY_PRIORITY_CLASS", "no-such-class", "kubernetes: canaries are admitted"),
        ("GUARDRAILS", '{"protected_namespaces": ["training"]}', "guardrails: protected pods"),
    ],
)
def test_what_is_wrong_is_named_with_a_fix_and_refuses(
    clean_arena: Arena, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str
) -> None:
    monkeypatch.setenv(f"GAMEDAY_{variable}", value)
    code, rows = doctor(clean_arena)
    assert line in failed(rows), rows
    assert rows[line]["fix"], rows[line]
    assert code == 5


@contextmanager
def silenced(arena: Arena, alert: str) -> Iterator[None]:
    now = datetime.now(UTC)
    body = {
        "matchers": [{"name": "alertname", "value": alert, "isRegex": False, "isEqual": True}],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(minutes=5)).isoformat(),
        "createdBy": "ada",
        "comment": "a test",
    }
    api = f"{arena.cluster.urls['alertmanager']}/api/v2"
    auth = (ALERTMANAGER_USER, arena.cluster.alertmanager_password_file.read_text(encoding="ascii"))
    id = httpx.post(f"{api}/silences", json=body, auth=auth, timeout=10).raise_for_status().json()["silenceID"]
    try:
        yield
    finally:
        httpx.delete(f"{api}/silence/{id}", auth=auth, timeout=10).raise_for_status()


def test_a_silenced_alert_is_found_with_who_did_it(clean_arena: Arena) -> None:
    with silenced(clean_arena, "GPUXidCritical"):
        code, rows = doctor(clean_arena)
    assert failed(rows) == {"alertmanager: GPUXidCritical is not silenced"}
    assert "by ada" in rows["alertmanager: GPUXidCritical is not silenced"]["detail"]
    assert code == 5


@pytest.mark.parametrize("alert", ["GPUXidCritical", "GPUTemperatureHigh", "NodeHealthControllerAbsent"])
def test_a_rule_whose_series_are_scraped_or_come_with_the_fault_can_fire(clean_arena: Arena, alert: str) -> None:
    _, rows = doctor(clean_arena, alert=alert)
    assert rows[f"prometheus: rule {alert} can fire"]["ok"] is True, rows


def test_a_rule_of_dcgm_exporters_whose_series_are_scraped_does_not_fire_for_a_line_in_the_kernel_log(
    clean_arena: Arena,
) -> None:
    _, rows = doctor(clean_arena, alert="GPUXidHardware")
    row = rows["prometheus: rule GPUXidHardware can fire"]
    assert row["ok"] is False
    assert "fault xid is a line in the kernel log, of which DCGM sees nothing" in row["detail"]
    assert row["fix"].endswith(
        "able to fire here: GPUFellOffTheBus (our node-health controller), GPUXidCritical (our node-health controller)"
    )


@pytest.mark.parametrize(
    ("alert", "metric", "fix"),
    [
        ("NodeQuarantined", "kube_node_spec_taint", "scrape kube-state-metrics"),
        ("NVSwitchSXidFatalReported", "DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", "deploy/alerts/dcgm-counters.csv"),
    ],
)
def test_a_rule_that_reads_a_metric_nobody_exposes_can_never_fire(
    clean_arena: Arena, alert: str, metric: str, fix: str
) -> None:
    code, rows = doctor(clean_arena, alert=alert)
    row = rows[f"prometheus: rule {alert} can fire"]
    assert failed(rows) == {f"prometheus: rule {alert} can fire"}
    assert row["detail"].startswith(f"rule {alert} can never fire here: no series of metric {metric},")
    assert fix in row["fix"]
    assert code == 5


def test_every_right_that_is_missing_is_named(clean_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    with seeding(clean_arena.cluster.admin_kubeconfig) as seeder:
        path = seeder.service_account_kubeconfig("gameday-reaper", clean_arena.folder / "reaper.kubeconfig")
    monkeypatch.setenv("GAMEDAY_KUBECONFIG", os.fspath(path))
    code, rows = doctor(clean_arena)
    missing = {name for name in failed(rows) if name.startswith("rights: ")}
    assert {"rights: list nodes", "rights: create configmaps in gameday", "rights: create pods/eviction"} <= missing
    assert "rights: patch nodes" not in missing
    assert code == 5

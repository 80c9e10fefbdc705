"""Bad days of a control-plane game-day: others change what it put in, its servers go away, etcd is full."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client, config
from ruamel.yaml import YAML

from gameday import cli
from gameday.cluster.lab_control import Verb, ask_lab
from gameday.exit_codes import ExitCode
from gameday.plan.catalogue import package_plans
from gameday_rehearsal.cluster import RehearsalCluster
from tests.rehearsal.processes import until
from tests.support.control_plane_game_day import (
    begun,
    events,
    game_day_objects,
    lab_control,
    lab_for,
    running_programs,
)

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(600)]

LEVEL = "gameday-heavy-list"
_YAML = YAML(typ="safe", pure=True)


def small_storm(folder: Path, rehearsal: dict[str, Any] | None = None, **fault: object) -> Path:
    """The storm of six clients, behind two seats, with other keys of `rehearsal` and of the fault."""
    content = _YAML.load(package_plans()["apiserver-list-storm-limited-to-two"])
    content["fault"] |= {"clients": 6, "objects": 300, "rounds": 15, "form": "json", "hold": "60s", **fault}
    content["rehearsal"] |= rehearsal or {}
    plan = folder / "storm.yaml"
    with plan.open("w", encoding="utf-8") as file:
        _YAML.dump(content, file)
    return plan


def test_a_level_that_somebody_edits_meanwhile_breaks_the_run_by_name_and_goes_out(tmp_path: Path) -> None:
    plan, reports = small_storm(tmp_path), tmp_path / "reports"
    with lab_for(tmp_path, plan) as cluster:
        before = game_day_objects(cluster)
        with begun(cluster, plan, reports, "--arm", "limited") as run:
            api = client.FlowcontrolApiserverV1Api(config.new_client_from_config(str(cluster.admin_kubeconfig)))
            wider = {"spec": {"limited": {"nominalConcurrencyShares": 30}}}
            api.patch_priority_level_configuration(LEVEL, wider, field_manager="kubectl-edit")
            code = run.wait(180)
        assert code == ExitCode.FAILED
        judged = next(one for one in events(reports, "step_ended") if one["step"] == "verify taint")
        assert judged["outcome"] == "broken"
        assert f"{LEVEL} was changed by kubectl-edit" in judged["why"]
        assert events(reports, "run_ended")[-1]["cleanliness"] == "clean"
        assert game_day_objects(cluster) - before == set()


def test_the_undo_waits_for_three_servers_that_are_gone(tmp_path: Path) -> None:
    plan, reports = small_storm(tmp_path, {"api_servers": 3}), tmp_path / "reports"
    with lab_for(tmp_path, plan) as cluster:
        before, servers = game_day_objects(cluster), ("kube-apiserver", "kube-apiserver-2", "kube-apiserver-3")
        with begun(cluster, plan, reports, "--arm", "limited") as run:
            for server in servers:
                ask_lab(lab_control(cluster), Verb.HOLD, server)
            until(lambda: events(reports, "fault_undone"), 90, "the run gives up, and its undo begins")
            for server in servers:
                ask_lab(lab_control(cluster), Verb.START, server)
            run.wait(240)
        assert events(reports, "fault_undone")[0]["cleanliness"] == "unknown"
        assert events(reports, "run_ended")[-1]["cleanliness"] == "clean"
        assert game_day_objects(cluster) - before == set()


def test_a_full_etcd_ends_the_run_with_what_to_do_and_what_is_left_goes_after_it(tmp_path: Path) -> None:
    quota = {"flags": {"etcd": {"quota-backend-bytes": 32 << 20}}}
    plan, reports = small_storm(tmp_path, quota, objects=2000, object_size="20KB"), tmp_path / "reports"
    with lab_for(tmp_path, plan) as cluster:
        before = game_day_objects(cluster)
        profile = ["--profile", str(cluster.profile), "--reports", str(reports)]
        code = cli.run(["run", str(plan), "--arm", "limited", *profile])
        assert code != ExitCode.PASSED
        assert "etcd is full" in (next(reports.glob("*/history.jsonl"))).read_text()
        make_room(cluster)
        until(lambda: cli.run(["reap", *profile]) == ExitCode.PASSED, 120, "the reaper takes out what is left")
        until(lambda: game_day_objects(cluster) <= before, 60, "every object is gone")


def make_room(cluster: RehearsalCluster) -> None:
    """Compact and defragment the lab's etcd, and end its alarm: what docs/control-plane.md asks of an administrator.

    The lab has no etcdctl; these are its three calls, over etcd's own JSON gateway.
    """
    folder = cluster.admin_kubeconfig.parent
    command, _ = running_programs(cluster)["etcd"]
    url = next(word.partition("=")[2] for word in command.split("\0") if word.startswith("--advertise-client-urls="))
    tls = ssl.create_default_context(cafile=str(folder / "etcd-ca.crt"))
    tls.load_cert_chain(folder / "apiserver-etcd-client.crt", folder / "apiserver-etcd-client.key")
    with httpx.Client(base_url=url, verify=tls, trust_env=False, timeout=60) as etcd:

        def call(path: str, **asked: object) -> Any:
            answer = etcd.post(f"/v3/{path}", json=asked)
            assert answer.is_success, answer.text
            return answer.json()

        revision = call("kv/range", key="YQ==")["header"]["revision"]
        call("kv/compaction", revision=revision, physical=True)
        call("maintenance/defragment")
        for alarm in call("maintenance/alarm", action="GET")["alarms"]:
            call("maintenance/alarm", action="DEACTIVATE", **alarm)

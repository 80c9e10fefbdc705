"""A game-day and its agents are killed while their fault is in: `gameday reap` takes out everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday import cli
from gameday.cluster.lab_control import look_at
from gameday.exit_codes import ExitCode
from gameday.plan.catalogue import package_plans
from tests.rehearsal.processes import until
from tests.support.control_plane_game_day import (
    begun,
    game_day_objects,
    game_day_processes,
    kill_agents,
    lab_control,
    lab_for,
    running_programs,
)

_IN_CI = "webhook-gone"
_TAINTS_A_DEVICE = "dra-device-taint"
_NO_ANSWER = "apiserver-list-storm-releases"
"""The plan whose load keeps an API server of 1.32 from answering anybody."""
_YAML = YAML(typ="safe", pure=True)


def _plan(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.lab if name == _IN_CI else pytest.mark.control_plane)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [_plan(name) for name in sorted(package_plans())])
def test_the_reaper_takes_out_all_that_a_killed_game_day_and_its_killed_agents_left(tmp_path: Path, name: str) -> None:
    plan, arguments, changes_settings = _arm_to_kill(tmp_path, package_plans()[name])
    reports = tmp_path / "reports"
    with lab_for(tmp_path, plan) as cluster:
        with cluster.profile.open("a", encoding="utf-8") as profile:
            profile.write("lease_duration_s: 8\n")  # which the reaper waits for
        objects, programs = game_day_objects(cluster), running_programs(cluster)
        with begun(cluster, plan, reports, *arguments):
            assert (running_programs(cluster) != programs) == changes_settings
            if name == "etcd-slow":
                until(lambda: look_at(lab_control(cluster), "etcd").paused, 30, "etcd is paused")
            elif name != _NO_ANSWER:
                assert game_day_objects(cluster) - objects
        kill_agents(tmp_path)
        reap = ["reap", "--profile", str(cluster.profile), "--reports", str(reports)]
        # Where a detector may still quarantine the node, it takes another reap after the detector's time.
        until(lambda: cli.run(reap) == ExitCode.PASSED, 90 if name == _TAINTS_A_DEVICE else 0, "all of it is undone")
        if name == _TAINTS_A_DEVICE:  # it stays until the GPU is reset, which the reaper does not do
            objects |= {one for one in game_day_objects(cluster) if one.startswith("device taint")}
        # What belonged to a pod goes after it.
        until(lambda: game_day_objects(cluster) <= objects, 60, "every object is gone")
        assert running_programs(cluster) == programs
        assert not look_at(lab_control(cluster), "etcd").paused
        assert game_day_processes(tmp_path) == []


def _arm_to_kill(folder: Path, plan: Path) -> tuple[Path, list[str], bool]:
    """Return the plan, more of `gameday run`, and whether the fault goes in with other settings of the lab.

    The last arm with settings of its own is played first. Without one the last arm is played by itself: in webhook-gone
    it is the one whose webhook refuses nodes' Leases, too.
    """
    content = _YAML.load(plan)
    arms = content.get("arms", {}).get("compare", [])
    settings = [arm for arm in arms if "rehearsal" in arm.get("set", {})]
    if not settings:
        return plan, ["--arm", arms[-1]["name"]] if arms else [], False
    content["arms"] = {"compare": [settings[-1], *(arm for arm in arms if arm is not settings[-1])]}
    copy = folder / plan.name
    with copy.open("w", encoding="utf-8") as file:
        _YAML.dump(content, file)
    return copy, [], True

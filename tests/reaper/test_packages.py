"""A run of a package that the scheduled reaper lacks is refused, because nobody could undo what it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.cli.dry_run import dry_run
from gameday.errors import CommandError, RefusedError
from gameday.expect.registry import found_expectations
from gameday.faults.registry import found_faults
from gameday.guard.doctor.cluster import check_cluster
from gameday.guard.read_only_run import read_only_run
from gameday.history.events import IntentRecorded, Refused
from gameday.ledger.lease import is_game_day_lease
from gameday.plan.catalogue import package_plans
from gameday.plan.settings import Settings
from gameday.plugins import BrokenPlugin, Found, Group
from gameday.reaper import packages
from gameday.reaper.packages import REAPER_LEASE, announce_packages, check_packages
from gameday.reaper.reap import ReapResult, reap
from tests.support.opened import OpenedRun
from tests.support.plans import QUICK, changed, shipped
from tests.support.runs import loaded_plan, quick_plan
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE

CORE = {"gpu-gameday": "1.0"}
WHOLE = CORE | {"acme": "1.0"}


class Settled(Settings):
    """The settings of a cluster where acme is installed."""

    quiet: bool = False


@pytest.fixture
def of_acme(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault xid, the expectation cordoned and the setting quiet are acme's."""
    faults, expectations = found_faults(), found_expectations()
    monkeypatch.setattr(packages, "found_faults", lambda: Found(faults.parts, {"xid": "acme 1.0"}))
    monkeypatch.setattr(packages, "found_expectations", lambda: Found(expectations.parts, {"cordoned": "acme 1.0"}))
    monkeypatch.setattr(packages, "found_settings", lambda: Found({}, {"quiet": "acme 1.0"}))


@pytest.fixture
def say(world: ScriptedWorld, of_acme: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Let a scheduled reaper with these packages come; return the version of its Lease."""

    def come(has: dict[str, str], reaper: packages.Reaper = "cronjob") -> str:
        monkeypatch.setattr(packages, "__version__", has["gpu-gameday"])
        monkeypatch.setattr(packages, "installed_packages", lambda: has)
        with world.connected("gameday-reaper") as kubernetes:
            announce_packages(kubernetes, reaper)
        version: str = lease(world).metadata.resource_version
        return version

    return come


def lease(world: ScriptedWorld) -> Any:
    return world.coordination.read_namespaced_lease(REAPER_LEASE, NAMESPACE)


def opened(world: ScriptedWorld, reports: Path) -> OpenedRun:
    """Play a run of acme's fault, which nobody must refuse."""
    world.add_node()
    return OpenedRun(world, reports).play(lambda run: None)


def test_a_run_of_a_package_that_the_reaper_lacks_is_refused_before_it_changes_anything(
    world: ScriptedWorld, say: Callable[..., str], tmp_path: Path
) -> None:
    say(CORE)
    refused = OpenedRun(world, tmp_path).refused()
    (said,) = refused.history.of(Refused)
    assert said.why == (
        "the plan uses acme, which the scheduled reaper lacks (cronjob: gpu-gameday 1.0): if this process died, nobody "
        "would undo its changes"
    )
    assert "kubectl -n gameday create job --from=cronjob/gameday-reaper" in said.hint
    assert said.hint.endswith("kubectl -n gameday delete lease gameday-reaper")
    assert refused.history.of(IntentRecorded) == []
    assert (world.pods(refused.id), world.ledgers(), world.holders()) == ([], [], {REAPER_LEASE: None})


def test_each_scheduled_reaper_has_to_have_it(world: ScriptedWorld, say: Callable[..., str], tmp_path: Path) -> None:
    say(WHOLE, "flow")
    assert opened(world, tmp_path).history.of(Refused) == []
    say(CORE, "cronjob")
    (said,) = OpenedRun(world, tmp_path).refused().history.of(Refused)
    assert "(cronjob: gpu-gameday 1.0)" in said.why
    say(WHOLE, "cronjob")
    say(CORE, "flow")
    (said,) = OpenedRun(world, tmp_path).refused().history.of(Refused)
    assert "prefect deployment run 'reaper/reaper (undoes only)'" in said.hint


@pytest.mark.usefixtures("of_acme")
def test_nobody_is_refused_where_no_reaper_has_said_what_it_has(world: ScriptedWorld, tmp_path: Path) -> None:
    assert opened(world, tmp_path).history.of(Refused) == []
    foreign = {"name": REAPER_LEASE, "annotations": {"example.com/packages": "none"}}
    world.coordination.create_namespaced_lease(NAMESPACE, {"metadata": foreign, "spec": {}})
    assert opened(world, tmp_path).history.of(Refused) == []


@pytest.mark.parametrize("said", ["", "[", "null", "[1]", '{"acme": 1}', '{"acme": {}}', "[" * 5000, "\\ud800"])
def test_a_lease_that_nobody_can_read_counts_as_one_without_the_package(
    said: str, world: ScriptedWorld, say: Callable[..., str], tmp_path: Path
) -> None:
    say(WHOLE)
    annotations = {"gameday.dev/packages-of-cronjob": said}
    world.coordination.patch_namespaced_lease(REAPER_LEASE, NAMESPACE, {"metadata": {"annotations": annotations}})
    (refused,) = OpenedRun(world, tmp_path).refused().history.of(Refused)
    assert "does not say which packages the scheduled reaper has" in refused.why
    assert refused.hint.endswith("kubectl -n gameday delete lease gameday-reaper")
    say(WHOLE)
    assert opened(world, tmp_path).history.of(Refused) == []


XID = {"type": "xid", "xid": 95}
POWER_CAP = {"type": "power_cap", "watts": 300}
OF_CORE = changed(QUICK, "fault", POWER_CAP)


@pytest.mark.parametrize(
    "plan",
    [
        changed(QUICK, "fault", XID),
        changed(QUICK, "fault", {"type": "compound", "parts": [POWER_CAP, XID]}),
        changed(QUICK, "fault", {"type": "repeated", "fault": XID, "times": 2, "every": "5s"}),
        changed(OF_CORE, "recover", {"remediation": "reboot", "fault_during": XID}),
        changed(OF_CORE, "expect.cordoned", {"within": "5s"}),
    ],
    ids=["fault", "compound", "repeated", "fault_during", "expectation"],
)
def test_every_part_of_a_plan_is_asked_for_its_package(
    plan: dict[str, Any], world: ScriptedWorld, say: Callable[..., str]
) -> None:
    say(CORE)
    with world.connected("gameday-runner") as runner, pytest.raises(RefusedError, match="uses acme, which"):
        check_packages(loaded_plan(plan).plan, runner)


def test_a_setting_is_asked_for_its_package_where_it_is_given(world: ScriptedWorld, say: Callable[..., str]) -> None:
    say(CORE)
    plan = loaded_plan(OF_CORE).plan
    with world.connected("gameday-runner") as runner:
        check_packages(plan.model_copy(update={"settings": Settled()}), runner)
        with pytest.raises(RefusedError, match="uses acme, which"):
            check_packages(plan.model_copy(update={"settings": Settled(quiet=True)}), runner)


NOBODY: Any = SimpleNamespace(profile=SimpleNamespace(rehearsal=None))
REHEARSAL: Any = SimpleNamespace(profile=SimpleNamespace(rehearsal=Path("rehearsal")))


@pytest.mark.usefixtures("of_acme")
def test_a_plan_of_the_core_and_a_rehearsal_cost_no_request() -> None:
    check_packages(loaded_plan(OF_CORE).plan, NOBODY)
    check_packages(quick_plan().plan, REHEARSAL)


def broken(name: str, groups: Sequence[Group]) -> list[BrokenPlugin]:
    if name != "acme" or not {Group.FAULTS, Group.UNDOS} <= set(groups):
        return []
    return [BrokenPlugin(Group.MOMENTS, "acme", "acme 1.0", "ModuleNotFoundError: No module named 'x'")]


@pytest.mark.usefixtures("of_acme")
@pytest.mark.parametrize("cluster", [NOBODY, REHEARSAL])
def test_half_a_package_is_refused_without_a_request(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "broken_parts", broken)
    with pytest.raises(RefusedError) as caught:
        check_packages(quick_plan().plan, cluster)
    assert caught.value.why == (
        "the plan uses the package acme, and a part of it cannot be loaded here: gameday.moments acme: "
        "ModuleNotFoundError: No module named 'x'"
    )
    assert caught.value.hint == "install what it misses, or a version of acme that works"
    check_packages(loaded_plan(OF_CORE).plan, NOBODY)


def test_a_reaper_says_once_what_it_has_and_leaves_out_what_it_cannot_load(
    world: ScriptedWorld, say: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = say(WHOLE)
    assert lease(world).metadata.annotations == {"gameday.dev/packages-of-cronjob": json.dumps(WHOLE, sort_keys=True)}
    assert say(WHOLE) == first
    monkeypatch.setattr(packages, "broken_parts", broken)
    assert say(WHOLE) != first
    assert lease(world).metadata.annotations == {"gameday.dev/packages-of-cronjob": json.dumps(CORE)}


def test_its_lease_is_no_runs_and_no_leftover(world: ScriptedWorld, say: Callable[..., str]) -> None:
    before = say(WHOLE)
    assert not is_game_day_lease(REAPER_LEASE)
    with world.connected("gameday-reaper") as reaper:
        assert reap(reaper) == ReapResult()
    assert lease(world).metadata.resource_version == before


def test_plans_of_the_control_plane_need_its_package_and_those_of_the_core_none() -> None:
    of_packages = package_plans().keys() - {"dra-device-taint"}  # all that it breaks and expects is the core's
    for name, plan in shipped().items():
        needed = {"gpu-gameday-control-plane"} if name in of_packages else set()
        assert set(packages._packages_of(plan)) == needed, name


def test_the_reaper_here_has_every_package_of_ours(world: ScriptedWorld) -> None:
    with world.connected("gameday-reaper") as kubernetes:
        announce_packages(kubernetes, "flow")
    said = json.loads(lease(world).metadata.annotations["gameday.dev/packages-of-flow"])
    assert said.keys() >= {"gpu-gameday", "gpu-gameday-control-plane"}


@pytest.mark.parametrize("has", [CORE, WHOLE])
def test_doctor_and_a_dry_run_say_so_before(
    has: dict[str, str],
    world: ScriptedWorld,
    say: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gameday.guard.read_only_run.Servers", lambda profile: world.connect(profile, world.clock))
    say(has)
    loaded, profile = quick_plan(), world.profile_of("gameday-runner")
    with read_only_run("doctor", loaded, profile) as run:
        found = [one for one in check_cluster(run) if one.name == "the reaper can undo it"]
    assert [one.ok for one in found] == ([] if has is WHOLE else [False])
    with pytest.raises(CommandError, match="no node carries" if has is WHOLE else "refused: the plan uses acme"):
        dry_run([loaded], profile)

"""The plans that this machine takes, and the changes to one that it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gameday.cli.game_day import read_plan
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.faults.registry import known_faults
from gameday.host.base import GpuSample
from gameday_rehearsal.this_machine import fit
from gameday_rehearsal.this_machine.fit import CHANGE, RESET, default_plan, fitted, permissions, refuse_unfit
from gameday_rehearsal.this_machine.sight import Sight

GPU = GpuSample(index=0, uuid="GPU-1", name="H200", pci_bus_id="0000:4e:00", persistence_mode=True, ecc_mode=True)
MOCK = Sight(gpus=(GPU,), has_gpus=False, computes=False, obstacles=(), unseen=())
SILICON = replace(MOCK, has_gpus=True, computes=True)


@pytest.mark.parametrize(
    ("plan", "may", "why"),
    [
        ("node-reboot", {CHANGE, RESET}, "end this game-day with the machine"),
        ("gpu-fell-off-the-bus", {CHANGE, RESET}, "its repair, reboot, would end"),
        ("gpu-removed", {CHANGE, RESET}, "the machine may hang"),
        ("xid-48-double-bit-ecc", {CHANGE}, "to allow that: --may change,reset"),
        ("power-cap", {RESET}, "to allow that: --may change,reset"),
        ("ecc-off", {CHANGE}, "to allow that: --may change,reset"),
        ("dcgm-pause", {CHANGE, RESET}, "no DCGM host engine"),
        ("net-netem-ib0", {CHANGE, RESET}, "it needs more than one machine"),
        ("hands-off-double-bit-ecc", {CHANGE, RESET}, "repaired by the cluster"),
        ("rack-loses-power", {CHANGE, RESET}, "several nodes"),
        ("compare-remediations", {CHANGE, RESET}, "compares arms"),
        ("slow-gpu-straggler", {CHANGE, RESET}, ""),
    ],
)
def test_what_the_machine_cannot_take_or_may_not_is_refused(plan: str, may: set[str], why: str) -> None:
    if not why:
        refuse_unfit(read_plan(plan), SILICON, may)
        return
    with pytest.raises(CommandError, match="cannot be played on this machine") as refused:
        refuse_unfit(read_plan(plan), SILICON, may)
    assert why in str(refused.value)
    assert refused.value.code is ExitCode.REFUSED


def test_a_load_needs_a_gpu_that_computes() -> None:
    refuse_unfit(read_plan("gpu-burn"), SILICON, ())
    with pytest.raises(CommandError, match="needs CuPy and a GPU"):
        refuse_unfit(read_plan("gpu-burn"), MOCK, ())


@pytest.mark.parametrize("plan", ["nothing-happens", "xid-13-burst", "xid-94-again-and-again"])
def test_a_negative_control_only_loses_the_pods_that_nobody_has_here(plan: str) -> None:
    loaded = read_plan(plan)
    refuse_unfit(loaded, MOCK, ())
    played, changes = fitted(loaded, MOCK)
    assert changes == ["expect.workloads.running_pods is any, because no job has pods here"]
    expect = loaded.plan.expect
    workloads = expect.workloads.model_copy(update={"running_pods": "any"})
    assert played.plan == loaded.plan.model_copy(update={"expect": expect.model_copy(update={"workloads": workloads})})
    assert fitted(played, MOCK) == (played, [])


def test_what_is_changed_is_in_the_file_that_the_run_keeps() -> None:
    written = read_plan("xid-48-double-bit-ecc")
    played, changes = fitted(written, replace(MOCK, gpus=(GPU.model_copy(update={"ecc_mode": None}),)))
    assert played.plan.expect.workloads.resubmitted_within is None
    assert (played.plan.qa.burn_in, played.plan.qa.floors.ecc) == (None, None)
    assert played.sha256 != written.sha256
    kept = played.source.decode()
    assert all(f"# Changed for this machine: {one}.\n" in kept for one in changes)
    assert "# NVIDIA: WORKFLOW_XID_48" in kept
    assert fitted(played, MOCK)[0].plan == played.plan


def test_a_burn_in_is_short_where_somebody_waits_for_it() -> None:
    played, changes = fitted(read_plan("xid-48-double-bit-ecc"), SILICON)
    assert played.plan.qa.burn_in == fit._LONGEST_BURN_IN
    assert "qa.burn_in is 60s and not 300s" in changes


def test_the_default_plan_without_a_gpu_can_be_played() -> None:
    loaded = read_plan(default_plan(MOCK))
    refuse_unfit(loaded, MOCK, ())
    assert loaded.plan.detector == "konduktor"


def test_permissions_are_the_words_of_the_gpu_tests() -> None:
    assert permissions(None) == frozenset()
    assert permissions("reset, change") == {CHANGE, RESET}
    for wrong in ("", "resets", "change,,reset", "all"):
        with pytest.raises(CommandError, match="--may change,reset"):
            permissions(wrong)


def test_what_is_never_played_names_faults_that_there_are() -> None:
    assert known_faults().keys() >= fit._WHY_NEVER.keys()
    assert not fit._WHY_NEVER.keys() & fit._NEEDS.keys()

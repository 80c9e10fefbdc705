"""The node around a real GPU: kernel log, users of a device, QA; changes and a reset only where they are allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.mark import mark
from gameday.agent.qa.gpu_models import GPU_MODELS
from gameday.agent.task import MarkTask
from gameday.errors import HostError
from gameday.faults.optional import prior_state_of
from gameday.faults.registry import fault_for, parse_parameters
from gameday.host.base import GpuSample
from gameday.host.real import RealHost
from gameday.remediations.registry import remediation_for
from tests.gpu.conftest import Note

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

RATES = {"gemm-rate", "memory-bandwidth", "link-bandwidth", "all-reduce-rate"}
"""QA's checks of a rate against a floor."""
May = Callable[[str], None]


@pytest.mark.usefixtures("gpus", "root")
def test_a_marker_is_written_to_the_kernel_log_and_found_there(host: RealHost, tmp_path: Path, note: Note) -> None:
    task = MarkTask(run_id="r", node="n", marker="test-gpu-marker")
    try:
        done = mark(task, Context(host, Ending(), tmp_path, tmp_path / "log"))
    except HostError as error:
        pytest.skip(f"no kernel log here: {error}")
    note("; ".join(done.evidence))
    assert done.ok, done.error


@pytest.mark.usefixtures("root")
def test_the_users_of_a_gpu_are_found_and_this_process_is_none(gpu: GpuSample, host: RealHost, note: Note) -> None:
    users = host.gpu_users(gpu.index)
    note(
        f"{len(users)} processes have GPU {gpu.index} open: {', '.join(user.command[:40] for user in users) or 'none'}"
    )
    assert not any("pytest" in user.command for user in users)


def rate_beside_its_floor(found: dict[str, Any], gpus: list[GpuSample]) -> str:
    """Return a line on a rate of QA: what was measured, and the floor, which is the model's where that is listed."""
    of = [gpu for gpu in gpus if found["gpu"] in (None, gpu.index)]
    where = "node" if found["gpu"] is None else f"GPU {found['gpu']}"
    unlisted = sorted({gpu.name for gpu in of} - GPU_MODELS.keys())
    floor = found["bound"] or "no floor"
    listed = f"; model not listed: {', '.join(unlisted)}" if unlisted else ""
    return f"{where}: {found['check']} {found['value']} {found['unit']}, {floor}{listed}"


@pytest.mark.parametrize("burn_in_s", [pytest.param(None, id="at rest"), pytest.param(30, id="under load")])
@pytest.mark.usefixtures("gpu")  # at rest before
def test_qa_gives_a_verdict_on_every_gpu_by_its_models_floors(
    gpus: list[GpuSample], request: pytest.FixtureRequest, tmp_path: Path, note: Note, burn_in_s: int | None
) -> None:
    if burn_in_s:
        request.getfixturevalue("cupy")
    proof = {"floors": {}, "burn_in_s": burn_in_s, "virtual_burn_in_s": 1}
    task = {"role": "qa", "run_id": "r", "node": "n", "marker": "test-gpu-marker", "proof": proof}
    environment = os.environ | {
        "GAMEDAY_TASK": json.dumps(task | {"expected_gpus": len(gpus)}),
        "GAMEDAY_STATE_DIR": str(tmp_path),
        "GAMEDAY_TERMINATION_LOG": str(tmp_path / "log"),
    }
    argv = [sys.executable, "-m", "gameday.agent"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=1700)
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for one in (one for one in results if one["ok"] is not True):
        where = "node" if one["gpu"] is None else f"GPU {one['gpu']}"
        note(f"{where}: {one['check']} {one['value']} {one['unit']}, wanted {one['bound']}. {one['detail']}"[:300])
    note(f"{sum(one['ok'] is True for one in results)} of {len(results)} checks passed")
    answers = {one["gpu"]: one["ok"] for one in results if one["check"] == "gpu-answers"}
    assert answers == {gpu.index: not gpu.lost for gpu in gpus}
    if burn_in_s:
        rates = [one for one in results if one["check"] in RATES]
        for one in rates:
            note(rate_beside_its_floor(one, gpus))
        assert all(one["value"] for one in rates), rates
        assert {one["check"] for one in rates} >= {"gemm-rate", "memory-bandwidth", "link-bandwidth"}
        assert [one for one in rates if one["ok"] is False] == [], "below the floor of its model, or of the other GPUs"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("kind", ["power_cap", "clock_lock", "persistence_off"])
def test_a_setting_goes_in_shows_in_nvml_and_comes_out(
    gpu: GpuSample, host: RealHost, may: May, note: Note, kind: str
) -> None:
    may("change")
    watts = round(0.7 * (gpu.power_limit_w or 0))
    more: dict[str, dict[str, Any]] = {"power_cap": {"watts": watts}, "clock_lock": {"sm_clock_mhz": 600}}
    parameters = parse_parameters({"type": kind} | more.get(kind, {}))
    fault = fault_for(parameters)
    try:
        state = prior_state_of(parameters, gpu.index, host)
    except HostError as error:
        pytest.skip(f"this GPU does not take it: {error}")
    try:
        note(" / ".join(fault.inject(parameters, gpu.index, host).lines))
    finally:
        note(" / ".join(fault.undo(parameters, gpu.index, host, state).lines))
    assert fault.verify_undone(parameters, gpu.index, host, state)


@pytest.mark.usefixtures("root")
def test_a_reset_brings_the_gpu_back(gpu: GpuSample, host: RealHost, may: May, note: Note) -> None:
    may("reset")
    lines: list[str] = []
    try:
        remediation_for("gpu-reset").repair(gpu.index, host, lines)
    finally:
        for line in lines:
            note(line)
    after = next(sample for sample in host.gpus() if sample.index == gpu.index)
    assert (after.uuid, after.lost) == (gpu.uuid, False)

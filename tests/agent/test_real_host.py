"""The agent on the real host, whose NVML is our mock: samples, QA, and the faults that NVML proves."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import Agent
from tests.support.mock_nvml import MockNvml, healthy

Start = Callable[..., Agent]
SAMPLE = {"role": "sample", "run_id": "r", "node": "n", "interval_s": 0.1, "duration_s": 60}
PROOF = {"floors": {"nvlinks": 6}, "burn_in_s": None, "virtual_burn_in_s": 1}
QA = {"role": "qa", "run_id": "r", "node": "n", "marker": "marker-12", "proof": PROOF, "expected_gpus": 2}
FIT = {
    "nvmlDeviceGetEnforcedPowerLimit": "700000",
    "nvmlDeviceGetEccMode": "1 1",
    "nvmlDeviceGetTotalEccErrors.1": "0",
    "nvmlDeviceGetRemappedRows": "0 0 0 0",
    "nvmlDeviceGetNvLinkState": "1 1 1 1 1 1",
    "nvmlDeviceGetCurrPcieLinkGeneration": "5",
    "nvmlDeviceGetCurrPcieLinkWidth": "16",
    "nvmlDeviceGetCurrentClocksEventReasons": "0x1",
}
"""The changes that make a GPU of `healthy`, in which every value is another one, one that QA passes."""


@pytest.fixture
def nvml(mock_nvml: MockNvml) -> MockNvml:
    """Two GPUs that QA passes."""
    fit = {f"{gpu}.{key}": value for gpu in (0, 1) for key, value in FIT.items()}
    mock_nvml.show({"nvmlDeviceGetCount_v2": "2", **healthy(0), **healthy(1), **fit})
    return mock_nvml


def await_sample(agent: Agent, gpu: int, **wanted: Any) -> dict[str, Any]:
    """Return the first sample of a GPU with these values."""
    pause = threading.Event()
    for _ in range(2000):
        for line in list(agent.lines):
            sample: dict[str, Any] = line["gpus"][gpu]
            if all(sample[key] == value for key, value in wanted.items()):
                return sample
        assert agent.process.poll() is None, agent.stderr()
        pause.wait(0.01)
    raise AssertionError(f"no sample of GPU {gpu} with {wanted}")


@pytest.mark.slow
def test_samples_follow_the_library_to_the_loss_of_a_gpu_and_its_return(start: Start, nvml: MockNvml) -> None:
    agent = start(SAMPLE, nvml)
    agent.wait_ready()
    assert await_sample(agent, 1)["power_w"] == 350.501
    nvml.show({"1.nvmlDeviceGetTemperature.0": "93"})
    assert await_sample(agent, 1, temperature_c=93)["power_w"] == 350.501
    before = dict(healthy(1))
    nvml.lose(1)
    assert await_sample(agent, 1, lost=True)["temperature_c"] is None
    nvml.show(before | {"1.nvmlDeviceGetHandleByIndex_v2": "0", "1.nvmlDeviceGetTemperature.0": "30"})
    assert await_sample(agent, 1, temperature_c=30)["lost"] is False
    agent.terminate()
    status, result = agent.end()
    assert (status, result.ok, result.ended_by) == (0, True, "sigterm")
    assert all(line["gpus"][0]["lost"] is False for line in agent.lines)


@pytest.mark.parametrize("role", [SAMPLE, {"role": "gpu-users", "run_id": "r", "node": "n"}])
@pytest.mark.slow
def test_a_driver_of_another_version_than_the_library_is_the_results_error(
    start: Start, nvml: MockNvml, role: dict[str, Any]
) -> None:
    nvml.show({"nvmlInitWithFlags": "!18"})
    agent = start(role, nvml)
    status, result = agent.end()
    assert (status, result.ok) == (1, False)
    assert "driver and user-space library differ" in result.error
    assert "Traceback" not in agent.stderr()


def nvml_checks(start: Start, nvml: MockNvml) -> dict[tuple[str, int | None], bool | None]:
    """Run QA with the load off, and return its verdicts but those that are about the kernel log or a load."""
    agent = start(QA, nvml)
    agent.end()
    assert "Traceback" not in agent.stderr()
    others = ("kernel-log", "log", "xid", "gemm", "bandwidth", "wrong", "throttl", "clock", "load")
    return {
        (line["check"], line["gpu"]): line["ok"]
        for line in agent.lines
        if not any(part in line["check"] for part in others)
    }


@pytest.mark.slow
def test_qa_finds_exactly_what_is_broken(start: Start, nvml: MockNvml) -> None:
    nvml.show(
        {
            "0.nvmlDeviceGetTotalEccErrors.1": "1",
            "0.nvmlDeviceGetRemappedRows": "0 0 0 1",
            "1.nvmlDeviceGetCurrPcieLinkWidth": "8",
            "1.nvmlDeviceGetNvLinkState": "1 1 1 1 1 0",
            "1.nvmlDeviceGetEnforcedPowerLimit": "500000",
        }
    )
    found = nvml_checks(start, nvml)
    assert {("gpu-count", None), ("row-remap-pending", 0), ("pcie-generation", 1), ("temperature", 0)} <= set(found)
    assert {check for check, ok in found.items() if not ok} == {
        ("ecc-double-bit", 0),
        ("row-remap-failure", 0),
        ("pcie-width", 1),
        ("nvlinks-active", 1),
        ("power-limit", 1),
    }


@pytest.mark.slow
def test_qa_of_a_gpu_that_shows_less_is_unknown_and_of_a_lost_one_is_broken(start: Start, nvml: MockNvml) -> None:
    nvml.show({"0.nvmlDeviceGetRemappedRows": "!3"})
    nvml.lose(1)
    found = nvml_checks(start, nvml)
    assert found["row-remap-failure", 0] is None and found["row-remap-pending", 0] is None
    assert found["ecc-double-bit", 0] is True
    assert found["gpu-answers", 1] is False


SMI = """#!{python}
import json, sys
from pathlib import Path
state = Path({state!r})
def write(key, value):
    with state.open("a") as file:
        file.write("0." + key + " " + str(value) + chr(10))
def read(key):
    return [line.split(" ", 1)[1] for line in state.read_text().splitlines() if line.startswith("0." + key + " ")][-1]
uuid, option, *rest = sys.argv[2:]
assert uuid == read("nvmlDeviceGetUUID"), uuid
if option.startswith("--query-gpu="):
    watts = {{"power.limit": int(read("nvmlDeviceGetEnforcedPowerLimit")) / 1000, "power.default_limit": 700.0,
             "power.min_limit": 200.0, "power.max_limit": 700.0}}
    print(", ".join(format(watts[name], ".2f") for name in option.removeprefix("--query-gpu=").split(",")))
elif option == "-pl":
    write("nvmlDeviceGetEnforcedPowerLimit", round(float(rest[0]) * 1000))
elif option == "-lgc":
    write("nvmlDeviceGetClockInfo.1", rest[0].split(",")[0])
elif option == "-rgc":
    write("nvmlDeviceGetClockInfo.1", 1755)
elif option == "-pm":
    write("nvmlDeviceGetPersistenceMode", rest[0])
else:
    sys.exit(2)
"""
"""A stand-in for nvidia-smi that changes what the mock library shows."""

FAULT = """
import json, sys
from pathlib import Path
from gameday.faults.registry import fault_for, parse_parameters
from gameday.faults import clock_lock
from gameday.host import program
from gameday.host.real import RealHost
folder, parameters = Path(sys.argv[1]), parse_parameters(json.loads(sys.argv[2]))
program._ENVIRONMENT["PATH"] = str(folder)
clock_lock._SETTLES_WITHIN_S = 0.3
host, fault = RealHost(folder), fault_for(parameters)
injected = fault.inject(parameters, 0, host)
read = host.gpus()[0]
stays = fault.verify_undone(parameters, 0, host, injected.undo_state)
fault.undo(parameters, 0, host, injected.undo_state)
out = fault.verify_undone(parameters, 0, host, injected.undo_state)
print(json.dumps({"lines": injected.lines, "during": read.model_dump(), "after": host.gpus()[0].model_dump(),
                  "undone": [stays, out]}))
"""


@pytest.mark.parametrize(
    ("fault", "field", "during", "after"),
    [
        pytest.param({"type": "power_cap", "watts": 300}, "power_limit_w", 300.0, 700.0, id="power cap"),
        pytest.param(
            {"type": "clock_lock", "sm_clock_mhz": 210},
            *("sm_clock_mhz", 210.0, 1755.0),
            id="clock lock",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"type": "persistence_off"},
            *("persistence_mode", False, True),
            id="persistence off",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_fault_by_nvidia_smi_is_proved_by_the_library_in_and_out(
    nvml: MockNvml, tmp_path: Path, fault: dict[str, Any], field: str, during: object, after: object
) -> None:
    for process in ("1", "self"):
        (tmp_path / f"proc/{process}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{process}/ns/mnt").symlink_to("mnt:[1]")
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI.format(python=sys.executable, state=nvml.environment["MOCK_NVML_STATE"]))
    smi.chmod(0o755)
    argv = [sys.executable, "-c", FAULT, str(tmp_path), json.dumps(fault)]
    done = subprocess.run(argv, env=nvml.environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["during"][field], found["after"][field]) == (during, after), found["lines"]
    assert found["undone"] == [False, True]

"""The reading of a real NVML: plausible, the same as nvidia-smi's, and closed again."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gameday.agent.task import SampledNote, SampleTask, notes_in
from gameday.host.base import GpuSample
from gameday.host.real import RealHost
from tests.gpu.conftest import Note

pytestmark = pytest.mark.gpu

_MIB = 1 << 20


def test_every_gpu_says_who_it_is_and_figures_that_can_be(gpus: list[GpuSample], note: Note) -> None:
    for gpu in (one for one in gpus if not one.lost):
        assert gpu.uuid.startswith("GPU-") and gpu.name and gpu.pci_bus_id.count(":") == 2
        assert gpu.temperature_c is not None and 0 < gpu.temperature_c < 110
        assert gpu.memory_total_bytes and gpu.memory_total_bytes > 1 << 30
        assert gpu.memory_used_bytes is not None and 0 <= gpu.memory_used_bytes <= gpu.memory_total_bytes
        assert gpu.power_w is None or gpu.power_limit_w is None or 0 < gpu.power_w < 1.5 * gpu.power_limit_w
        assert gpu.sm_clock_mhz is None or gpu.sm_clock_max_mhz is None or gpu.sm_clock_mhz <= gpu.sm_clock_max_mhz
        assert (
            gpu.nvlinks_active is None or gpu.nvlinks_supported is None or gpu.nvlinks_active <= gpu.nvlinks_supported
        )
    lost = [gpu.index for gpu in gpus if gpu.lost]
    unknown = [name for name, value in gpus[0].model_dump().items() if value is None]
    note(f"{len(gpus)} GPUs: {', '.join(sorted({gpu.name for gpu in gpus}))}" + (f"; lost: {lost}" if lost else ""))
    note(f"GPU 0 shows {len(GpuSample.model_fields) - len(unknown)} of {len(GpuSample.model_fields)} fields")
    note(f"not shown: {', '.join(unknown) or 'none'}")


Read = Callable[[str], object]
FIELDS: dict[str, tuple[str, Read, float]] = {
    "uuid": ("uuid", str, 0),
    "name": ("name", str, 0),
    "enforced.power.limit": ("power_limit_w", float, 0.01),
    "power.default_limit": ("power_limit_default_w", float, 0.01),
    "clocks.max.sm": ("sm_clock_max_mhz", float, 0),
    "memory.total": ("memory_total_bytes", lambda text: float(text) * _MIB, _MIB),
    "pcie.link.gen.max": ("pcie_generation_max", int, 0),
    "pcie.link.width.max": ("pcie_width_max", int, 0),
    "ecc.mode.current": ("ecc_mode", lambda text: text == "Enabled", 0),
    "ecc.mode.pending": ("ecc_mode_pending", lambda text: text == "Enabled", 0),
    "ecc.errors.corrected.volatile.total": ("ecc_sbe_volatile", int, 0),
    "ecc.errors.uncorrected.volatile.total": ("ecc_dbe_volatile", int, 0),
    "persistence_mode": ("persistence_mode", lambda text: text == "Enabled", 0),
    "temperature.gpu": ("temperature_c", float, 3),
}
"""Our field for each of nvidia-smi's, what its text means in our unit, and by how much they may differ: nvidia-smi
rounds, and a temperature moves between the two readings."""


def test_the_reading_is_what_nvidia_smi_prints(gpus: list[GpuSample], host: RealHost, note: Note) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.skip("nvidia-smi is not on PATH")
    argv = [program, f"--query-gpu=index,{','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    now = {sample.index: sample for sample in host.gpus()}
    differing, compared = [], 0
    for line in printed.splitlines():
        index, *texts = (text.strip() for text in line.split(","))
        for text, (field, read, tolerance) in zip(texts, FIELDS.values(), strict=True):
            ours = getattr(now[int(index)], field)
            theirs = None if text in ("[N/A]", "N/A", "[Not Supported]") else read(text)
            numbers = isinstance(ours, int | float) and isinstance(theirs, int | float)
            compared += 1
            if not (ours == theirs or (numbers and abs(ours - theirs) <= tolerance)):
                differing.append(f"GPU {index} {field}: NVML {ours!r}, nvidia-smi {text!r}")
    note(f"{compared - len(differing)} of {compared} values are nvidia-smi's")
    assert compared and not differing, differing


def open_gpus() -> list[str]:
    """Return the GPUs' devices that this process has open."""
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [path for path in opened if path.removeprefix("/dev/nvidia").isdigit()]


def test_a_reading_leaves_no_gpu_open(gpus: list[GpuSample], host: RealHost, note: Note) -> None:
    before, took = open_gpus(), []
    for _ in range(10):
        began = time.monotonic()
        host.gpus()
        took.append(time.monotonic() - began)
    assert open_gpus() == before == [], "a CUDA context in this process would keep its GPU open, too"
    note(f"a reading of all takes {statistics.median(took):.3f} s, at most {max(took):.3f} s")


def test_the_sampler_reads_every_gpu(gpus: list[GpuSample], tmp_path: Path, note: Note) -> None:
    task = SampleTask(run_id="r", node="n", interval_s=0.5, duration_s=5)
    environment = os.environ | {
        "GAMEDAY_TASK": task.model_dump_json(),
        "GAMEDAY_STATE_DIR": str(tmp_path),
        "GAMEDAY_TERMINATION_LOG": str(tmp_path / "log"),
    }
    argv = [sys.executable, "-m", "gameday.agent"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    notes = notes_in(done.stdout, SampledNote)
    assert len(notes) >= 2 and {len(one.gpus) for one in notes} == {len(gpus)}
    note(f"{len(notes)} readings in 5 s; 10 were asked for")

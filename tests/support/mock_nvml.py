"""The mock NVML: our own libnvidia-ml.so.1, compiled here, and a process of the real host's that reads it.

`mock_nvml.c` says what its state file looks like.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import TypeAdapter

from gameday.errors import HostError
from gameday.host.base import GpuSample
from tests.support.compiler import compile_c

GPU_IS_LOST = "!15"
"""The error of nvml.h, as the state file writes it."""

_SOURCE = Path(__file__).with_name("mock_nvml.c")
_SAMPLES = TypeAdapter(list[GpuSample])
_READER = """
import sys
from pydantic import TypeAdapter
from gameday.errors import HostError
from gameday.host import open_host
from gameday.host.base import GpuSample
host, samples = open_host({}), TypeAdapter(list[GpuSample])
for _ in sys.stdin:
    try:
        print("ok", samples.dump_json(host.gpus()).decode(), flush=True)
    except HostError as error:
        print("no", error, flush=True)
"""
"""A process that reads all GPUs by the real host for each line on its standard input."""


class MockNvml:
    """The compiled library, and the state that it shows to one test."""

    def __init__(self, library: Path, state: Path) -> None:
        """Use a library that `compile_nvml` made; `state` is the state's file, which the first `show` writes."""
        self.library = library
        self._state = state
        self._values: dict[str, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The variables under which a process loads this library, and has no virtual host."""
        folder = str(self.library.parent)
        return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": folder, "MOCK_NVML_STATE": str(self._state)}

    def show(self, values: Mapping[str, str]) -> None:
        """Change what the library shows from now on; a reader sees the old file or the new one."""
        self._values |= values
        beside = self._state.with_suffix(".new")
        beside.write_bytes(
            b"".join(f"{key} {value}\n".encode("utf-8", "surrogateescape") for key, value in self._values.items())
        )
        beside.replace(self._state)

    def lose(self, gpu: int) -> None:
        """Let every function answer for this GPU that it is lost, as for one that fell off the bus."""
        of_gpu = [key for key in self._values if key.startswith(f"{gpu}.")]
        self.show(dict.fromkeys((*of_gpu, f"{gpu}.nvmlDeviceGetHandleByIndex_v2"), GPU_IS_LOST))


def compile_nvml(folder: Path, without: Sequence[str] = ()) -> Path:
    """Compile the library into a folder, which is made, and return it; it exports no function of `without`."""
    left_out = [f"-D{name}=without_{name}" for name in without]
    return compile_c(_SOURCE, folder / "libnvidia-ml.so.1", "-O1", "-shared", "-fPIC", *left_out)


class NvmlReader:
    """A process that reads the GPUs as the agent on a real node does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self) -> list[GpuSample]:
        """Return all GPUs. Raises HostError where the process does."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        verdict, _, rest = self._process.stdout.readline().rstrip("\n").partition(" ")
        if verdict == "no":
            raise HostError(rest)
        assert verdict == "ok", f"the reader ended with status {self._process.wait()}"
        return _SAMPLES.validate_json(rest)


@contextmanager
def nvml_reader(environment: Mapping[str, str]) -> Iterator[NvmlReader]:
    """Start a reader with exactly this environment, and end it after the block."""
    argv = [sys.executable, "-c", _READER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield NvmlReader(process)
        finally:
            process.kill()


def healthy(gpu: int) -> dict[str, str]:
    """Return the state of a GPU in which every field has a value that no other field of any GPU has, by key.

    Values are in NVML's own units: milliwatts, MHz, bytes.
    """
    return {
        f"{gpu}.{key}": value
        for key, value in {
            "nvmlDeviceGetUUID": f"GPU-0000000{gpu}-1111-2222-3333-444444444444",
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetPciInfo_v3": f"00000000:{0x4E + gpu:02X}:00.0",
            "nvmlDeviceGetTemperature.0": str(41 + gpu),
            "nvmlDeviceGetFieldValues.82": str(55 + gpu),
            "nvmlDeviceGetTemperatureThreshold.1": "90",
            "nvmlDeviceGetTemperatureThreshold.3": "86",
            "nvmlDeviceGetMarginTemperature": str(46 - gpu),
            "nvmlDeviceGetFieldValues.90": "26562",
            "nvmlDeviceGetFieldValues.194": "-2",
            "nvmlDeviceGetFieldValues.196": "0",
            "nvmlDeviceGetPowerUsage": str(350_500 + gpu),
            "nvmlDeviceGetEnforcedPowerLimit": "690000",
            "nvmlDeviceGetPowerManagementDefaultLimit": "700000",
            "nvmlDeviceGetClockInfo.1": str(1755 + gpu),
            "nvmlDeviceGetClockInfo.2": "2619",
            "nvmlDeviceGetMaxClockInfo.1": "1980",
            "nvmlDeviceGetUtilizationRates": "97 31",
            "nvmlDeviceGetMemoryInfo": "85520809984 80000000000 5520809984",
            "nvmlDeviceGetCurrentClocksEventReasons": "0x48",
            "nvmlDeviceGetEccMode": "1 0",
            "nvmlDeviceGetTotalEccErrors.0": "7",
            "nvmlDeviceGetTotalEccErrors.1": "2",
            "nvmlDeviceGetRemappedRows": "5 3 1 0",
            "nvmlDeviceGetNvLinkState": "1 1 0 1 1 1",
            "nvmlDeviceGetCurrPcieLinkGeneration": "4",
            "nvmlDeviceGetMaxPcieLinkGeneration": "5",
            "nvmlDeviceGetCurrPcieLinkWidth": "8",
            "nvmlDeviceGetMaxPcieLinkWidth": "16",
            "nvmlDeviceGetPcieReplayCounter": "13",
            "nvmlDeviceGetPersistenceMode": "1",
            "nvmlDeviceGetCpuAffinity": "0x00FF00000000000F 0x1",
            "nvmlDeviceGetComputeRunningProcesses_v3": f"{4711 + gpu} 4811",
        }.items()
    }

"""The host's own NVML in a container that no runtime gave one: looked for in every folder that may have it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = shutil.which("cc")
LIBRARY = """
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) { strncpy(uuid, "GPU-of-the-host", length); return 0; }
"""
READ = "import sys; from pathlib import Path; from gameday.host.nvml import read_gpus; "
READ += "print(*(gpu.uuid for gpu in read_gpus(host_root=Path(sys.argv[1]))))"


def uuids(root: Path) -> str:
    done = subprocess.run([sys.executable, "-c", READ, root], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() or done.stderr.splitlines()[-1]


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has an NVML of its own")
@pytest.mark.parametrize("folder", ["usr/lib64", "run/nvidia/driver/usr/lib64"])
def test_the_hosts_library_is_loaded(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "nvml.c").write_text(LIBRARY)
    library = tmp_path / folder / "libnvidia-ml.so.1"
    argv = [str(COMPILER), "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, tmp_path / "nvml.c"]
    subprocess.run(argv, check=True, timeout=60)
    assert uuids(tmp_path) == "GPU-of-the-host"


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has an NVML of its own")
def test_a_file_that_is_no_library_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").write_text("not a library")
    assert "NVML not found" in uuids(tmp_path)

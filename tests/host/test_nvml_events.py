"""NVML's events of Xids, of our mock NVML: by pynvml and the loader, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.mock_nvml import MockNvml, healthy

SCRIPT = """
from gameday.errors import HostError
from gameday.host.nvml_events import xid_events
try:
    with xid_events(1) as next_xid:
        event = next_xid()
    print("event", event and event.code)
except HostError as error:
    print("refused", error)
"""


def followed(nvml: MockNvml) -> str:
    argv = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(argv, env=nvml.environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ({"1.nvmlEventSetWait_v2": "31", "0.nvmlEventSetWait_v2": "79"}, "event 31"),
        ({"0.nvmlEventSetWait_v2": "79"}, "event None"),
        ({"1.nvmlEventSetWait_v2": "!15"}, "event None"),
        ({"1.nvmlDeviceRegisterEvents": "!4"}, "refused NVML: Insufficient Permissions: run the agent privileged"),
    ],
    ids=["this GPU's", "none of this GPU", "lost while waiting", "not allowed"],
)
def test_the_next_critical_xid_of_one_gpu(mock_nvml: MockNvml, shown: dict[str, str], said: str) -> None:
    mock_nvml.show({"nvmlDeviceGetCount_v2": "2", **healthy(0), **healthy(1), **shown})
    assert followed(mock_nvml) == said

"""The scripts beside the guest files: what each makes of a node's kernel log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gameday_rehearsal.guests.load import read_guest

GUESTS = Path(__file__).parents[1] / "examples" / "guests"
RECORDS = [
    "6,0,12,-;NVRM: loading NVIDIA UNIX Open Kernel Module\n",
    "12,1,90,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n",
    "12,2,95,-;kernel: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n",
]


def run(script: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(GUESTS / script), *map(str, arguments)]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=20, check=False
    )


def test_the_copies_of_a_kernel_log_have_every_record_one_a_read(tmp_path: Path) -> None:
    source = tmp_path / "kmsg"
    os.mkfifo(source)
    copies = [tmp_path / "xid", tmp_path / "sxid"]
    command = [sys.executable, str(GUESTS / "kmsg_copies.py"), *map(str, (source, *copies))]
    copying = subprocess.Popen(command)
    try:
        log = os.open(source, os.O_WRONLY)  # waits for the script, which makes the copies first
        readers = [os.open(copy, os.O_RDONLY) for copy in copies]
        for record in RECORDS:
            os.write(log, record.encode())
            assert [os.read(reader, 8192).decode() for reader in readers] == [record] * 2
        os.close(log)
        assert copying.wait(timeout=10) == 0
    finally:
        copying.kill()
        copying.wait()


def test_the_journal_of_a_kernel_log_cuts_the_first_word_off_a_users_line_only(tmp_path: Path) -> None:
    source = tmp_path / "kmsg"
    os.mkfifo(source)
    command = [sys.executable, str(GUESTS / "kmsg_to_journal.py"), str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as converting:
        log = os.open(source, os.O_WRONLY)
        found = []
        for record in RECORDS:
            os.write(log, record.encode())
            time.sleep(0.05)  # a plain pipe has no packets
        os.close(log)
        assert converting.stdout
        found = [dict(line.split("=", 1) for line in entry.splitlines())
                 for entry in converting.stdout.read().strip().split("\n\n")]  # fmt: skip
    assert [(entry["SYSLOG_IDENTIFIER"], entry["MESSAGE"].split(" ")[0]) for entry in found] == [
        ("kernel", "the"),
        ("kernel", "NVRM:"),
        ("NVRM", "Xid"),
        ("kernel", "NVRM:"),
    ]
    assert {entry["_TRANSPORT"] for entry in found} == {"kernel"}


def test_the_check_for_aks_xids_reports_a_line_once(tmp_path: Path) -> None:
    log, seen = tmp_path / "kern.log", tmp_path / "last-seen"
    old, now = (time.strftime("%b %d %H:%M:%S", time.localtime(time.time() - ago)) for ago in (3 * 3600, 5))
    log.write_text(
        f"{old} n1 kernel: [    1.000000] NVRM: Xid (PCI:0000:1b:00): 48, old\n"
        f"{now} n1 kernel: [   12.000000] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
        f"{now} n1 kernel: [   12.000000] NVRM: Xid (PCI:0000:1b:00): 13, a program\n"
    )
    runs = [run("aks_xid_check.py", KERNEL_LOG=str(log), LAST_SEEN=str(seen)) for _ in range(2)]
    assert [(one.returncode, one.stdout) for one in runs] == [(1, "Xids found: 79\n"), (0, "no new Xid\n")]


def test_nvsentinels_metadata_knows_the_switch_of_the_shipped_plans(tmp_path: Path) -> None:
    config = {
        "system": {"driver_version": "550.163.01"},
        "device_defaults": {"name": "NVIDIA H100 80GB HBM3"},
        "devices": [{"index": 0, "uuid": "GPU-1", "serial": "1", "pci": {"bus_id": "0000:1B:00.0"}}],
    }
    (tmp_path / "nvml.yaml").write_text(json.dumps(config))
    metadata = json.loads(run("nvsentinel_metadata.py", "n1", tmp_path / "nvml.yaml").stdout)
    assert metadata["gpus"][0]["pci_address"] == "0000:1b:00.0"
    assert metadata["gpus"][0]["nvlinks"][0] == {
        "link_id": 0,
        "remote_pci_address": "0000:c1:00.0",
        "remote_link_id": 0,
    }


@pytest.mark.parametrize("file", sorted(GUESTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_guest_file_is_valid_and_has_its_profile(file: Path) -> None:
    loaded = read_guest(file)
    assert loaded.guest.name == file.stem
    assert loaded.profile is not None


@pytest.mark.parametrize("script", sorted(GUESTS.glob("*.sh")), ids=lambda script: script.name)
def test_the_shell_scripts_are_whole(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)

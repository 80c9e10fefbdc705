from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from gameday_rehearsal.nodes import server
from gameday_rehearsal.nodes.kernel_log_files import NodeFiles, node_files
from gameday_rehearsal.nodes.logship import LogShipper
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.virtual_nodes import Settings, VirtualNodes
from tests.rehearsal.nodes.conftest import DEADLINE_S, Rack

RECORD = re.compile(rb"(\d+),(\d+),(\d+),-;(.*)\n")


class Reader:
    """A detector that opens the pipe as it would open /dev/kmsg, without waiting."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def record(self) -> bytes:
        """The next read; empty at the end of the file."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    return os.read(self.fd, 8192)
                except BlockingIOError:
                    await asyncio.sleep(0.005)

    async def until(self, text: bytes) -> list[bytes]:
        records = [await self.record()]
        while text not in records[-1]:
            records.append(await self.record())
        return records

    def close(self) -> None:
        os.close(self.fd)


def on_files(machine: Machine, folder: Path, play: Callable[[NodeFiles], Awaitable[None]]) -> None:
    async def run() -> None:
        async with node_files(folder, [machine]) as files:
            await play(files[machine.name])

    asyncio.run(run())


def test_a_read_gets_one_record_with_priority_sequence_and_time(machine: Machine, tmp_path: Path) -> None:
    async def play(files: NodeFiles) -> None:
        machine.log.write("<3>NVRM: Xid (PCI:0000:1b:00): 79, é\tGPU\n")
        reader = Reader(files.kmsg)
        records = [RECORD.fullmatch(record) for record in await reader.until(b"Xid")]
        reader.close()
        assert [int(found[2]) for found in records if found] == list(range(len(machine.log.records())))
        assert records[0] and records[0][4].startswith(b"Linux version")
        assert records[-1] and records[-1].groups()[::3] == (
            str(1 << 3 | 3).encode(),
            rb"NVRM: Xid (PCI:0000:1b:00): 79, \xc3\xa9\x09GPU",
        )
        # A reader adds it to this machine's boot, as of a real /dev/kmsg.
        assert abs(int(records[-1][3]) / 1e6 - time.clock_gettime(time.CLOCK_BOOTTIME)) < DEADLINE_S

    on_files(machine, tmp_path, play)


def test_the_next_reader_begins_at_the_rings_begin(machine: Machine, tmp_path: Path) -> None:
    async def play(files: NodeFiles) -> None:
        first = Reader(files.kmsg)
        await first.record()
        first.close()
        await asyncio.sleep(0)
        machine.log.driver("while nobody reads")
        second = Reader(files.kmsg)
        records = await second.until(b"nobody")
        second.close()
        assert len(records) == len(machine.log.records())

    on_files(machine, tmp_path, play)


def test_a_slow_reader_gets_all_that_the_ring_has(machine: Machine, tmp_path: Path) -> None:
    async def play(files: NodeFiles) -> None:
        reader = Reader(files.kmsg)
        await reader.until(b"Linux version")
        for number in range(2_000):
            machine.log.driver(f"line {number}")
        records = await reader.until(b"line 1999")
        reader.close()
        assert [f"line {number}".encode() in records[number - 2_000] for number in range(2_000)] == [True] * 2_000

    on_files(machine, tmp_path, play)


def test_the_longest_record_is_one_packet(machine: Machine, tmp_path: Path) -> None:
    async def play(files: NodeFiles) -> None:
        machine.log.write("<3>" + "\x01" * 1021)
        machine.log.driver("after it")
        reader = Reader(files.kmsg)
        records = await reader.until(b"after it")
        reader.close()
        assert len(records) == len(machine.log.records())
        assert RECORD.fullmatch(records[-2])

    on_files(machine, tmp_path, play)


def test_a_reboot_ends_the_read_and_empties_the_pipe_but_not_the_file(machine: Machine, tmp_path: Path) -> None:
    async def play(files: NodeFiles) -> None:
        machine.log.driver("before the boot")
        reader = Reader(files.kmsg)
        await reader.until(b"before the boot")
        machine.reboot(0.0)
        assert await reader.record() == b""
        reader.close()
        while not machine.powered:
            await asyncio.sleep(0.01)
        machine.log.driver("after the boot")
        reader = Reader(files.kmsg)
        records = await reader.until(b"after the boot")
        reader.close()
        assert records[0].split(b",")[1] == b"0"
        assert b"before the boot" not in b"".join(records)
        text = files.kernel_log.read_text()
        assert text.index("before the boot") < text.index("after the boot")

    on_files(machine, tmp_path, play)


def test_the_file_is_rsyslogs(machine: Machine, tmp_path: Path) -> None:
    async def play(files: NodeFiles) -> None:
        machine.log.driver("NVRM: loading")
        line = files.kernel_log.read_text().splitlines()[-1]
        assert re.fullmatch(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d a kernel: \[ *\d+\.\d{6}\] NVRM: loading", line)
        assert line.startswith(time.strftime("%b", time.localtime()))

    on_files(machine, tmp_path, play)


def states(path: Path) -> dict[int, dict[str, Any]]:
    return {device["index"]: device for device in json.loads(path.read_text())["devices"]}


def test_nvml_shows_a_lost_gpu_and_its_return(rack: Rack, tmp_path: Path) -> None:
    machine = rack.machines[0]

    async def play(files: NodeFiles) -> None:
        healthy = states(files.nvml_config)
        assert [device["uuid"] for device in healthy.values()] == [gpu.uuid for gpu in machine.gpus]
        machine.lose_gpu(2)
        assert states(files.nvml_config)[2]["failure"] == {"mode": "fallen_off_bus", "xid": {"code": 79}}
        overrides = json.loads((tmp_path / "a" / "overrides.yaml").read_text())["devices"]
        assert {index: state["failure"]["mode"] for index, state in overrides.items()} == {
            "0": "healthy",
            "1": "healthy",
            "2": "fallen_off_bus",
            "3": "healthy",
        }
        machine.pci_rescan()
        machine.fleet.nvlinks[0, 1] = 17
        files.refresh()
        (links,) = json.loads(files.nvml_config.read_text())["nvlink"]["device_links"]
        assert (links["index"], [link["state"] for link in links["links"]]) == (1, ["active"] * 17 + ["inactive"])
        machine.reboot(0.0)
        while machine.boot_id and not machine.going_down:
            await asyncio.sleep(0)
        while machine.going_down or not machine.powered:
            await asyncio.sleep(0.01)
        assert states(files.nvml_config)[2]["failure"] == {"mode": "healthy"}

    on_files(machine, tmp_path, play)


def test_what_is_no_pipe_is_not_removed(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "kmsg").write_text("mine")
    with pytest.raises(FileExistsError, match="is not a pipe"):
        on_files(machine, tmp_path, lambda _: asyncio.sleep(0))
    assert (tmp_path / "a" / "kmsg").read_text() == "mine"


def test_the_endpoint_gives_records(tmp_path: Path) -> None:
    async def play() -> None:
        nodes = VirtualNodes(Settings(1, 2, "n", 0.1, tmp_path), LogShipper(None))
        async with TestClient(TestServer(server.application(nodes))) as client:
            nodes.machines["n-1"].log.write("<4>hello\n")
            answer = await client.get("/hosts/n-1/kernel-log?form=kmsg")
            lines = (await answer.read()).splitlines(keepends=True)
            last = RECORD.fullmatch(lines[-1])
            assert last and last.groups()[::3] == (b"12", b"hello")
            answer = await client.get(f"/hosts/n-1/kernel-log?form=kmsg&since={len(lines) - 1}")
            assert (await answer.read()).splitlines(keepends=True) == lines[-1:]
            assert (await client.get("/hosts/n-1/kernel-log?form=kmsg&since=x")).status == 422

    asyncio.run(play())

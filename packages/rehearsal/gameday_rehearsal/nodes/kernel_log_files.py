"""Files that a detector on a node would open, in a folder for each node: the kernel log, and the GPUs for NVML."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from gameday_rehearsal.nodes.kernel_log import KernelRecord
from gameday_rehearsal.nodes.kmsg_pipe import KmsgPipe
from gameday_rehearsal.nodes.machine import Machine, MachineListener
from gameday_rehearsal.nodes.mock_nvml import CONFIG, MockNvml

log = logging.getLogger(__name__)

_NVML_EVERY_S = 1.0  # as often as the mock library looks


class NodeFiles(MachineListener):
    """The files of one machine: `kmsg`, `kern.log` and `nvml.yaml`."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        """Make the folder and the files. Raises OSError."""
        self.kmsg = folder / "kmsg"
        self.kernel_log = folder / "kern.log"
        self.nvml_config = folder / CONFIG
        folder.mkdir(parents=True, exist_ok=True)
        self._machine = machine
        self._pipe = KmsgPipe(self.kmsg, machine.log)
        self._file = self.kernel_log.open("wb", buffering=0)
        self._nvml = MockNvml(folder, machine)
        for record in machine.log.records():
            self._append(record)
        self._nvml.write()
        machine.listeners.append(self)

    def logged(self, record: KernelRecord) -> None:
        self._append(record)
        self._pipe.logged()

    def down(self) -> None:
        self._pipe.down()

    def up(self) -> None:
        self._pipe.up()
        self.refresh()

    def gpus_changed(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Write the present state of the GPUs."""
        try:
            self._nvml.write()
        except OSError as error:
            log.warning("%s: %s", self.nvml_config, error.strerror)

    def close(self) -> None:
        self._machine.listeners.remove(self)
        self._pipe.close()
        self._file.close()

    def _append(self, record: KernelRecord) -> None:
        """Append a record in rsyslog's traditional file format, in local time.

        A full disk must not end the nodes.
        """
        at = time.localtime(record.wall_ns / 1e9)
        stamp = f"{time.strftime('%b', at)} {at.tm_mday:2d} {time.strftime('%H:%M:%S', at)}"
        try:
            self._file.write(f"{stamp} {self._machine.name} kernel: {record.line}\n".encode("utf-8", "replace"))
        except OSError as error:
            log.warning("%s: %s", self.kernel_log, error.strerror)


@asynccontextmanager
async def node_files(folder: Path, machines: Iterable[Machine]) -> AsyncIterator[dict[str, NodeFiles]]:
    """Keep the files of every machine, by its name, for the block; remove the pipes after it. Raises OSError."""
    files: dict[str, NodeFiles] = {}
    refreshing = asyncio.create_task(_refresh(files))
    try:
        for machine in machines:
            files[machine.name] = NodeFiles(folder / machine.name, machine)
        yield files
    finally:
        refreshing.cancel()
        for one in files.values():
            one.close()


async def _refresh(files: dict[str, NodeFiles]) -> None:
    while True:
        await asyncio.sleep(_NVML_EVERY_S)
        for one in files.values():
            one.refresh()
            await asyncio.sleep(0)

"""The model's node for the table of exchanges."""

from __future__ import annotations

import asyncio

from gameday_rehearsal.nodes.dcgm import DcgmCache
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.exposition import Exposition, watched_by
from gameday_rehearsal.nodes.gpus import GpuFleet
from gameday_rehearsal.nodes.machine import HOST_ENGINE, Machine
from gameday_rehearsal.nodes.programs.run import run_program
from tests.rehearsal.dcgm.table import Answer
from tests.rehearsal.nodes.conftest import Clock

RELEASE = ExporterRelease.LOWER_CASE
"""The one that was recorded."""
_GPUS = 8


class ModelNode:
    """A model of a node, on a clock that moves only when a script waits."""

    def __init__(self) -> None:
        self.clock = Clock()
        fleet = GpuFleet(["a"], _GPUS, self.clock)
        self.cache = DcgmCache(fleet, self.clock, watched_by(RELEASE))
        self.machine = Machine(0, "a", fleet, self.cache, lambda *_: None, boot_s=0.01)
        self.exporter = Exposition(self.cache, ["a"], [self.machine.gpus], RELEASE)
        self.scrape()

    def dcgmi(self, *arguments: str) -> Answer:
        done = asyncio.run(run_program(self.machine, ["dcgmi", *arguments], 5))
        return Answer(done.stdout, done.stderr, done.exit_status)

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.pass_by(1)
            self.scrape()

    def kernel_log(self, gpu: int, text: str) -> None:
        self.machine.log.write(f"<3>{text.replace('{pci}', self.machine.gpus[gpu].pci)}\n")

    def engine(self, verb: str) -> None:
        self.machine.set_unit(HOST_ENGINE, active=verb == "start")

    def lose(self, gpu: int) -> None:
        self.cache.fleet.lost[0, gpu] = True

    def scrape(self) -> str:
        return b"".join(self.exporter.render()).decode()

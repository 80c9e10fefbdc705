"""The room in the folder of reports: the game-day ends while its history and its report still fit."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation
from gameday.history.room import NEEDED_BYTES, NEEDED_FILES, room_in
from gameday.plain_file import not_written
from gameday.run.run import Run


class RoomForReports(Guardrail):
    """Requires the room that a game-day needs on the disk; a dry run writes nothing there."""

    name: ClassVar[str] = "room for reports"
    interval_s: ClassVar[float | None] = 1.0
    asks_server: ClassVar[bool] = True  # a network file system that hangs
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        needed = f"at least {NEEDED_BYTES / 2**20:g} MiB and {NEEDED_FILES} files in the folder of reports"
        return needed if isinstance(observation.run, Run) else ""

    def measure(self, observation: Observation) -> Measurement:
        folder = observation.run.record.folder
        try:
            room = room_in(folder)
            room.require()
        except OSError as error:
            return Measurement(False, "", not_written(error, folder))
        return Measurement(True, f"{room.free_bytes / 2**20:.0f} MiB")

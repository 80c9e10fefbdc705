"""The means to run the same again: the command, the plan, versions, seed, and the files' hashes."""

from __future__ import annotations

from pydantic import BaseModel, Field

from gameday.history.events import FrameRead, TargetsChosen
from gameday.history.frames import SCHEMAS
from gameday.report.run_folder import RunFolder

ORDER = 120
TITLE = "Reproduce"
GROUP = "The run and its files"


class FileRow(BaseModel):
    name: str
    size_bytes: int
    sha256: str


class Reproduce(BaseModel):
    command: str | None
    gameday_version: str | None
    server_version: str | None
    seed: int | None
    plan_text: str
    files: tuple[FileRow, ...]
    frame_rows: dict[str, int]
    sources: tuple[FrameRead, ...] = Field(description="the queries that filled the frames")
    columns: dict[str, dict[str, str]] = Field(description="frame -> column -> pandas type")


def build(run: RunFolder) -> Reproduce:
    started, chosen = run.started, run.history.last(TargetsChosen)
    frames = {"metrics": run.frames.metrics, "alerts": run.frames.alerts}
    frames |= {"logs": run.frames.logs, "pods": run.frames.pods}
    return Reproduce(
        command=started.command if started else None,
        gameday_version=started.gameday_version if started else None,
        server_version=started.server_version if started else None,
        seed=chosen.seed if chosen else run.plan.targets.seed if run.plan else None,
        plan_text=run.plan_text,
        files=tuple(FileRow(name=f.name, size_bytes=f.size_bytes, sha256=f.sha256) for f in run.files),
        sources=tuple(run.history.of(FrameRead)),
        columns=SCHEMAS,
        frame_rows={name: len(frame) for name, frame in frames.items()},
    )

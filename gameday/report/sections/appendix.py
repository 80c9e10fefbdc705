"""The evidence as it was read: kernel-log lines and Kubernetes Events of the targets, in order of time."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from gameday.history.events import KubernetesEventSeen
from gameday.report.run_folder import GuestOutput, RunFolder
from gameday.text import without_secrets

ORDER = 125
TITLE = "Appendix: kernel log and Kubernetes events"
GROUP = "The run and its files"

MOST_LINES = 200
"""Kernel-log lines shown, half from the beginning and half from the end; frames/logs.parquet has all."""


class KernelLogRow(BaseModel):
    at: datetime
    offset_s: float
    node: str
    line: str


class Appendix(BaseModel):
    lines: tuple[KernelLogRow, ...]
    lines_left_out: int
    events: tuple[KubernetesEventSeen, ...]
    guest: tuple[GuestOutput, ...]

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return (
            ""
            if self.lines or self.events or self.guest
            else "no kernel-log line and no Event of a target is on record"
        )


def build(run: RunFolder) -> Appendix:
    frame = run.frames.logs
    frame = frame[frame["time"].notna()].sort_values("time", kind="stable", ignore_index=True)
    head = MOST_LINES // 2
    shown = frame if len(frame) <= MOST_LINES else frame[(frame.index < head) | (frame.index >= len(frame) - head)]
    lines = []
    for time, node, line in zip(shown["time"], shown["node"], shown["line"], strict=True):
        at = time.to_pydatetime(warn=False)
        lines.append(KernelLogRow(at=at, offset_s=run.offset_s(at), node=str(node), line=without_secrets(str(line))))
    events = sorted(run.history.of(KubernetesEventSeen), key=lambda event: event.at)
    events = [event.model_copy(update={"message": without_secrets(event.message)}) for event in events]
    return Appendix(
        lines=tuple(lines), lines_left_out=len(frame) - len(shown), events=tuple(events), guest=run.guest_output
    )

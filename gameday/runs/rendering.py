"""Render a run in a process that ends: judging and drawing need pandas, and the game-day's own process goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from gameday import child_process
from gameday.checks.outcome import RunResult


class _Request(BaseModel):
    folder: Path
    url: str | None


class RenderedRun(BaseModel):
    """A rendered run's result, and the run in short as Markdown."""

    result: RunResult
    words: str


def render_apart(folder: Path, url: str | None) -> RenderedRun:
    """Render a run's report, leave its row and the form for people's notes beside it.

    Args:
        folder: The run's folder.
        url: URL of the report on the worker's machine; None where nobody serves it.

    Raises:
        OSError: The report cannot be written.
        RuntimeError: A bug of ours; its note holds the traceback.
    """
    request = _Request(folder=folder, url=url).model_dump_json().encode()
    return RenderedRun.model_validate_json(child_process.ask(__name__, request))


def _render(request: bytes) -> bytes:
    from gameday.report.notes import write_form  # noqa: PLC0415
    from gameday.report.run_markdown import run_markdown  # noqa: PLC0415
    from gameday.runs.run_row import render_run  # noqa: PLC0415 - the process that ends needs it, and no other

    wanted = _Request.model_validate_json(request)
    rendered = render_run(wanted.folder, datetime.now(UTC))
    write_form(wanted.folder, "gameday report")
    words = run_markdown(rendered.run, rendered.html.resolve(), wanted.url)
    return RenderedRun(result=rendered.result, words=words).model_dump_json().encode()


if __name__ == "__main__":
    child_process.answer(_render)

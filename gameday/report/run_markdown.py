"""A summary of a run as Markdown, for its page in Prefect."""

from __future__ import annotations

from pathlib import Path

from gameday.history.events import RunEnded
from gameday.report.durations import durations
from gameday.report.markdown import markdown
from gameday.report.next_command import next_command
from gameday.report.run_folder import RunFolder
from gameday.report.sections import chain


def run_markdown(run: RunFolder, page: Path, url: str | None) -> str:
    """Return outcome, durations, verdicts and chains, with every value escaped.

    Args:
        run: The run.
        page: The whole report's file.
        url: Its URL on the worker's machine; None if nobody serves it.
    """
    return markdown(
        "report",
        "run.md",
        outcome=run.result.outcome.capitalize(),
        result=run.result,
        virtual=run.is_virtual,
        doctor=run.doctors_word,
        next=next_command(run.started, run.result, ended=run.history.last(RunEnded) is not None),
        durations=durations(run),
        verdicts=run.verdicts,
        chains=chain.build(run).chains,
        page=str(page),
        url=url,
    )

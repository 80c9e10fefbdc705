"""Publish a finished run: copy its report, send its trace, notify people. Nothing here changes an outcome.

A failure is logged and skipped: a chat that is down is no reason to call a passed game-day failed.
"""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.exceptions import MissingContextError
from prefect.logging import get_logger

from gameday.cluster.profile import ClusterProfile
from gameday.errors import AdapterError, PublishError
from gameday.plain_file import NO_PLACE, not_written
from gameday.report.earlier_runs import earlier_runs
from gameday.report.markdown import escaped
from gameday.report.message import Message, message, worth_telling
from gameday.report.run_folder import load_run_folder
from gameday.report.summary import read_summary
from gameday.runs.publish import comparison_around, publish
from gameday.runs.timings import write_timings
from gameday.tasks import step_task
from gameday.tasks.artifacts import show_page
from gameday.text import printable

OUTSIDE_PREFECT = logging.getLogger("gameday.publish")
"""The logger of the same warnings for the command line, which mutes Prefect's log and adds a handler here."""
OUTSIDE_PREFECT.propagate = False
OUTSIDE_PREFECT.setLevel(logging.WARNING)
OUTSIDE_PREFECT.addHandler(logging.NullHandler())


def warn(text: str, *values: object) -> None:
    """Log a warning, even if no flow runs: a hook and the command line publish, too."""
    try:
        get_run_logger().warning(text, *values)
    except MissingContextError:
        get_logger("gameday").warning(text, *values)
    OUTSIDE_PREFECT.warning(text, *values)


@step_task(name="publish")
def publish_run(profile: ClusterProfile, folder: Path) -> None:
    """Do what the profile asks for with a rendered run: `publish_to`, `traces`, `openmetrics`, `notify`."""
    try:
        publish_folder(profile, folder)
    except Exception as error:  # Prefect's server may be gone; the run itself is over and judged
        warn("the run could not be published: %s", safe_words(error, folder))


def safe_words(error: Exception, folder: Path) -> str:
    """Return a full disk's message; for any other error, which may contain a secret, only its name."""
    if isinstance(error, OSError) and error.errno in NO_PLACE:
        return not_written(error, folder)
    return type(error).__name__


def publish_folder(profile: ClusterProfile, folder: Path) -> None:
    """Publish any rendered run's folder as `publish_run` does; an error of Prefect's client is raised."""
    link = (folder / "report.html").resolve().as_uri()
    if profile.publish_to:
        link = copy_out(folder, profile.publish_to, "report.html") or link
    if profile.traces:
        _send_trace(profile.traces, folder)
    if profile.openmetrics:
        _renew_timings(folder, profile.openmetrics)
    summary = read_summary(folder) if profile.notify else None
    if summary:
        before = next(iter(earlier_runs(folder, summary)[-1:]), None)
        if worth_telling(summary, before, profile.notify_on):
            notify(profile, message(summary, before, link))


def copy_out(folder: Path, url: str, page: str) -> str | None:
    """Copy a folder and show its page in the Prefect UI.

    Args:
        folder: The folder.
        url: fsspec URL to copy it to.
        page: Name of the page in the folder.

    Returns:
        The copied page's URL; None if it could not be copied.
    """
    try:
        link = f"{publish(folder, url)}/{page}"
    except PublishError as error:
        warn("not published: %s", error)
        return None
    show_page("published-report", escaped(f"{folder.name}, published"), link, f"{folder.name}, published")
    return link


def notify(profile: ClusterProfile, content: Message) -> None:
    """Send a message through every notification block the profile names."""
    for name in profile.notify:
        try:
            try:
                block = Block.load(name)
            except ValueError:  # there is no such block, or no server that is named
                warn(
                    "no notification was sent through %s: the Prefect server of this run does not have it; set "
                    "PREFECT_API_URL to the one that does", name,
                )  # fmt: skip
                continue
            if not isinstance(block, NotificationBlock):
                warn("block %s is not a notification block", name)
                continue
            send: Any = block.notify  # typed as if always awaited; outside a loop it is done when it returns
            with block.raise_on_failure():
                send(content.body, subject=content.subject)
        except Exception as error:  # its text may hold the webhook's URL, which is a secret
            warn("no notification was sent through %s (%s)", name, type(error).__name__)


def _send_trace(url: str, folder: Path) -> None:
    # Only a profile with a receiver needs OpenTelemetry's SDK.
    from gameday.cluster.otlp import send_spans  # noqa: PLC0415
    from gameday.report.traces import trace_of  # noqa: PLC0415

    spans = trace_of(load_run_folder(folder))
    try:
        if spans:
            send_spans(url, spans)
    except AdapterError as error:
        again = f"later: gameday export {shlex.quote(str(folder))} --traces {shlex.quote(url)}"
        warn("no trace was sent: %s; %s", printable(str(error)), again)


def _renew_timings(folder: Path, file: Path) -> None:
    """Renew the file of all runs' timings; the game-days of a comparison are not in it."""
    if comparison_around(folder.resolve()):
        return
    reports = folder.resolve().parent
    try:
        write_timings(reports, file)
    except OSError as error:
        warn(
            "no OpenMetrics: %s; later: gameday export %s --openmetrics %s",
            not_written(error, file), shlex.quote(str(reports)), shlex.quote(str(file)),
        )  # fmt: skip

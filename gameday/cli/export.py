"""`gameday export`: a run in other tools' formats, copied elsewhere, or sent as a trace.

The run is not changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.help_page import Panel, add_command
from gameday.cli.report import refuse_running
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.text import printable

if TYPE_CHECKING:
    from gameday.report.run_folder import RunFolder


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        export,
        "gameday export reports/20260303-090000 --junit junit.xml",
        "gameday export reports --openmetrics game-days.prom",
        "gameday export reports/20260303-090000 --traces http://tempo:4318",
        panel=Panel.AFTER,
    )


def export(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Folder of a run. With --publish-to also of a group, with --openmetrics of all runs."
        ),
    ],
    junit: Annotated[Path | None, typer.Option(help="JUnit XML: one test case per expectation.")] = None,
    openmetrics: Annotated[Path | None, typer.Option(help="Timings for node-exporter's textfile collector.")] = None,
    publish_to: Annotated[str | None, typer.Option(help="fsspec URL to copy the folder to, such as s3://b/x.")] = None,
    traces: Annotated[
        str | None,
        typer.Option(metavar="URL", help="OTLP/HTTP receiver to send the run to, as an OpenTelemetry trace."),
    ] = None,
) -> int:
    """Write a run in the formats of other tools. The exit code is 0 if all was written, even for a failed run."""
    if not any((junit, openmetrics, publish_to, traces)):
        raise CommandError("say what to write: --junit, --openmetrics, --publish-to or --traces")
    if (folder / "arms.json").is_file():
        if not publish_to or any((junit, openmetrics, traces)):
            raise CommandError("of a comparison there is --publish-to alone: give the folder of one of its game-days")
        _publish(folder, publish_to)
        return ExitCode.PASSED
    if openmetrics and not any((junit, publish_to, traces)) and not (folder / "history.jsonl").exists():
        _write(openmetrics, _timings_of_all(folder))
        return ExitCode.PASSED
    run = _load(folder)
    if junit:
        from gameday.report.junit import junit as as_junit

        _write(junit, as_junit(run))
    if openmetrics:
        _write(openmetrics, _timings(run))
    if publish_to:
        _publish(folder, publish_to)
    if traces:
        _send_trace(run, traces)
    return ExitCode.PASSED


def _load(folder: Path) -> RunFolder:
    from gameday.report.run_folder import load_run_folder

    try:
        run = load_run_folder(folder)
    except FileNotFoundError as error:
        raise CommandError(str(error)) from None
    if not run.history.records:
        raise CommandError(f"{folder} holds no history.jsonl that could be read: there is nothing to export")
    refuse_running(folder)
    return run


def _timings(run: RunFolder) -> bytes:
    from gameday.report.openmetrics import openmetrics
    from gameday.report.summarise import summarise

    summary = summarise(run)
    if summary is None:
        raise CommandError("the run's history does not say which plan it is of: there is nothing to export")
    return openmetrics([summary])


def _timings_of_all(reports: Path) -> bytes:
    """Return the timings of the newest run of each plan on each cluster."""
    from gameday.runs.run_list import list_runs
    from gameday.runs.timings import timings_of

    try:
        runs = list_runs(reports).runs
    except OSError as error:
        raise CommandError(f"{reports}: {error.strerror}; give a run's folder, or the one that holds them") from None
    if not runs:
        raise CommandError(f"{reports} holds no run that could be read: there is nothing to export")
    return timings_of(runs)


def _write(path: Path, content: bytes) -> None:
    from gameday.plain_file import not_written, write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        raise CommandError(f"not written: {not_written(error, path)}") from None
    console().print(f"written: {path}", soft_wrap=True)


def _publish(folder: Path, url: str) -> None:
    from gameday.errors import PublishError
    from gameday.runs.publish import publish

    try:
        console().print(f"published: {publish(folder, url)}", soft_wrap=True)
    except PublishError as error:
        raise CommandError(printable(str(error))) from None


def _send_trace(run: RunFolder, url: str) -> None:
    from opentelemetry.trace import format_trace_id

    from gameday.cluster.otlp import send_spans
    from gameday.cluster.profile import PLAIN_URL
    from gameday.errors import AdapterError
    from gameday.report.traces import trace_of

    if not re.fullmatch(PLAIN_URL, url):
        raise CommandError(
            "--traces takes a receiver's base URL, such as --traces http://tempo:4318, without user, password and "
            "query; credentials go into $OTEL_EXPORTER_OTLP_HEADERS"
        )
    spans = trace_of(run)
    if not spans:
        raise CommandError("the run's history does not say which run it is of: there is nothing to trace")
    try:
        send_spans(url, spans)
    except AdapterError as error:
        raise CommandError(printable(str(error))) from None
    root = spans[0].get_span_context()
    assert root is not None
    sent = f"sent: trace {format_trace_id(root.trace_id)}, {len(spans)} spans, to {url}"
    console().print(sent, soft_wrap=True, markup=False)

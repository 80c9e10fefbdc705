"""`gameday export`: a run in other tools' formats, copied elsewhere, marked in Grafana, or sent as a trace.

The run is not changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.game_day import refuse_running
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.text import printable

if TYPE_CHECKING:
    from gameday.report.run_folder import RunFolder
    from gameday.report.summary import Summary


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        export,
        "gameday export reports/20260303-090000 --junit junit.xml",
        "gameday export reports/20260303-090000 --image game-day.png",
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
    chaostoolkit: Annotated[Path | None, typer.Option(help="Chaos Toolkit journal, for `chaos report`.")] = None,
    openmetrics: Annotated[Path | None, typer.Option(help="Timings for node-exporter's textfile collector.")] = None,
    image: Annotated[Path | None, typer.Option(help="PNG of 1200 × 630 pixels with the result, for chats.")] = None,
    publish_to: Annotated[str | None, typer.Option(help="fsspec URL to copy the folder to, such as s3://b/x.")] = None,
    grafana: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|block:NAME", help="Cluster profile. Its Grafana gets the fault window as an annotation."
        ),
    ] = None,
    traces: Annotated[
        str | None,
        typer.Option(metavar="URL", help="OTLP/HTTP receiver to send the run to, as an OpenTelemetry trace."),
    ] = None,
) -> int:
    """Write a run in the formats of other tools. Exit code 0 when all was written, whatever the run's outcome."""
    if not any((junit, chaostoolkit, openmetrics, image, publish_to, grafana, traces)):
        raise CommandError(
            "say what to write: --junit, --chaostoolkit, --openmetrics, --image, --publish-to, --grafana or --traces"
        )
    if (folder / "arms.json").is_file():
        if not publish_to or any((junit, chaostoolkit, openmetrics, image, grafana, traces)):
            raise CommandError("of a comparison there is --publish-to alone: give the folder of one of its game-days")
        _publish(folder, publish_to)
        return ExitCode.PASSED
    if (
        openmetrics
        and not any((junit, chaostoolkit, image, publish_to, grafana, traces))
        and not (folder / "history.jsonl").exists()
    ):
        _write(openmetrics, _timings_of_all(folder))
        return ExitCode.PASSED
    run = _load(folder)
    _write_files(run, junit, chaostoolkit, openmetrics)
    if image:
        _write(image, _image(run))
    if publish_to:
        _publish(folder, publish_to)
    if grafana:
        _annotate(run, grafana)
    if traces:
        from gameday.cli.export_traces import send_trace  # noqa: PLC0415

        send_trace(run, folder, traces)
    return ExitCode.PASSED


def _write_files(run: RunFolder, junit: Path | None, chaostoolkit: Path | None, openmetrics: Path | None) -> None:
    if junit:
        from gameday.report.junit import junit as as_junit  # noqa: PLC0415

        _write(junit, as_junit(run))
    if chaostoolkit:
        from gameday.report.journal_export import journal  # noqa: PLC0415

        _write(chaostoolkit, journal(run))
    if openmetrics:
        _write(openmetrics, _timings(run))


def _load(folder: Path) -> RunFolder:
    from gameday.report.run_folder import load_run_folder  # noqa: PLC0415 - see the package's docstring

    try:
        run = load_run_folder(folder)
    except FileNotFoundError as error:
        raise CommandError(str(error)) from None
    if not run.history.records:
        raise CommandError(f"{folder} holds no history.jsonl that could be read: there is nothing to export")
    refuse_running(folder)
    return run


def _timings(run: RunFolder) -> bytes:
    from gameday.report.openmetrics import openmetrics  # noqa: PLC0415

    return openmetrics([_summary(run)])


def _image(run: RunFolder) -> bytes:
    from gameday.report.summary_image import summary_image  # noqa: PLC0415

    return summary_image(_summary(run))


def _summary(run: RunFolder) -> Summary:
    from gameday.report.summarise import summarise  # noqa: PLC0415

    summary = summarise(run)
    if summary is None:
        raise CommandError("the run's history does not say which plan it is of: there is nothing to export")
    return summary


def _timings_of_all(reports: Path) -> bytes:
    """Return the timings of the newest run of each plan on each cluster."""
    from gameday.runs.run_list import list_runs  # noqa: PLC0415
    from gameday.runs.timings import timings_of  # noqa: PLC0415

    try:
        runs = list_runs(reports).runs
    except OSError as error:
        raise CommandError(f"{reports}: {error.strerror}; give a run's folder, or the one that holds them") from None
    if not runs:
        raise CommandError(f"{reports} holds no run that could be read: there is nothing to export")
    return timings_of(runs)


def _write(path: Path, content: bytes) -> None:
    from gameday.plain_file import not_written, write_whole  # noqa: PLC0415

    try:
        write_whole(path, content)
    except OSError as error:
        raise CommandError(f"not written: {not_written(error, path)}") from None
    console().print(f"written: {path}", soft_wrap=True)


def _publish(folder: Path, url: str) -> None:
    from gameday.errors import PublishError  # noqa: PLC0415
    from gameday.runs.publish import publish  # noqa: PLC0415

    try:
        console().print(f"published: {publish(folder, url)}", soft_wrap=True)
    except PublishError as error:
        raise CommandError(printable(str(error))) from None


def _annotate(run: RunFolder, profile: str) -> None:
    from gameday.cluster.grafana import Grafana  # noqa: PLC0415
    from gameday.cluster.profile import load_profile  # noqa: PLC0415
    from gameday.errors import AdapterError  # noqa: PLC0415
    from gameday.report.annotation import annotation_of  # noqa: PLC0415

    found = annotation_of(run)
    if found is None:
        from gameday.checks.fault_state import fault_state  # noqa: PLC0415

        raise CommandError(f"{fault_state(run.history)} during this run: there is no window to mark")
    try:
        endpoint = load_profile(profile).grafana
        if endpoint is None:
            named = profile or "the environment (GAMEDAY_…)"
            raise CommandError(f"{named} names no grafana: add its url and bearer_token_env")
        with Grafana(endpoint) as server:
            drawn = server.annotate(found.start, found.end, found.text, found.tags)
    except AdapterError as error:
        raise CommandError(printable(str(error))) from None
    console().print("marked in Grafana" if drawn else "Grafana has this run's annotation already")

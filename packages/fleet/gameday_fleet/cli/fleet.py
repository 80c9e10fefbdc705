"""`gameday fleet`: measure every idle GPU, name the slow ones, and show what they cost a synchronous job."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.game_day import Profile, Reports, check_reports
from gameday.cli.help_page import Panel, add_command
from gameday.cli.play_season import cluster_profile, duration_of
from gameday.cli.rehearse_options import DEFAULT_DETECTOR, Cluster, Gpus, KeepRehearsed, Rehearse
from gameday.cli.virtual_clusters import virtual_clusters
from gameday.errors import CommandError, RefusedError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written
from gameday.text import printable
from gameday.values.nodes import MAX_NODES

if TYPE_CHECKING:
    from rich.console import Console

    from gameday_fleet.judge import Fleet
    from gameday_fleet.page import RenderedFleet
    from gameday_fleet.record import Labelled

_MOST_NAMED = 20
_LEAST_LOAD, _MOST_LOAD = timedelta(seconds=2), timedelta(hours=1)

AtOnce = Annotated[int, typer.Option(min=1, max=100, help="The most nodes to measure at the same time.")]
Load = Annotated[str, typer.Option(help="Time for which each GPU computes before it is measured, 2s to 1h.")]
Against = Annotated[
    Path | None,
    typer.Option(help="An earlier fleet run's folder, for the drift.", show_default="the newest in --reports"),
]
Slow = Annotated[int, typer.Option(min=0, max=1000, help="With --rehearse: GPUs that are made slow.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        fleet,
        "gameday fleet --rehearse --slow 3",
        "gameday fleet --profile cluster.yaml --at-once 8",
        "gameday fleet --profile cluster.yaml --unlabel",
        panel=Panel.CLUSTER,
    )


def fleet(
    profile: Profile = None,
    rehearse: Rehearse = False,
    at_once: AtOnce = 4,
    load: Load = "30s",
    against: Against = None,
    again: Annotated[Path | None, typer.Option(help="Draw a fleet run's page again; nothing is measured.")] = None,
    unlabel: Annotated[
        bool, typer.Option("--unlabel", help="Take our labels of GPU classes off all nodes; nothing is measured.")
    ] = False,
    nodes: Annotated[int, typer.Option(min=1, max=MAX_NODES, help="With --rehearse: virtual GPU nodes.")] = 8,
    gpus: Gpus = 8,
    slow: Slow = 0,
    seed: Annotated[int, typer.Option(help="With --rehearse: chooses the slow GPUs.")] = 1,
    cluster: Cluster = "embedded",
    reports: Reports = Path("reports"),
    keep: KeepRehearsed = False,
) -> int:
    """Measure every idle GPU that opted in, never a busy one: who is slow, and what that costs a synchronous job.

    Exit code 0 when no GPU is named, 1 when one is, 2 when there are too few to judge.
    """
    from gameday.cli.prefect_client import prefect_server, set_defaults

    out = console()
    if unlabel:
        if rehearse or again is not None or against is not None:
            raise CommandError("--unlabel measures nothing: leave out --rehearse, --again and --against")
        return _unlabel(out, profile)
    if again is not None:
        return _draw_again(out, again)
    if rehearse and profile:
        raise CommandError("--rehearse brings its own cluster: leave out --profile, or --rehearse")
    if slow and not rehearse:
        raise CommandError("--slow makes virtual GPUs slow: add --rehearse, or leave it out")
    if slow > nodes:
        raise CommandError(f"--slow {slow} needs as many nodes, and --nodes is {nodes}: raise --nodes, or lower --slow")
    lasts = _load_of(load)
    if against is not None:
        _check_earlier(against)
    check_reports(reports)
    command = ["gameday", "fleet", "--at-once", str(at_once), "--load", load]
    command += ["--against", str(against)] if against else []
    if not rehearse:
        set_defaults()
        cluster_profile(profile)
        command += ["--profile", profile] if profile else []
        with prefect_server(out):
            return _probe(out, profile, at_once, lasts, against, reports, "manual", shlex.join(command))
    virtual = virtual_clusters()
    command += ["--rehearse", "--nodes", str(nodes), "--gpus", str(gpus), "--slow", str(slow), "--seed", str(seed)]
    command += ["--cluster", cluster]
    with virtual.embedded(
        out,
        nodes,
        gpus,
        DEFAULT_DETECTOR,
        cluster,
        keep=keep,
        flow="gameday_fleet.flow",
        spare=nodes - 1,
        slow=slow,
        seed=seed,
        exporter=virtual.exporter_for(None, []),
    ) as here:
        line = shlex.join(command)
        code = here.end_with(_probe(out, str(here.profile), at_once, lasts, against, reports, "rehearsal", line))
    if here.made_slow:
        said = ", ".join(here.made_slow)
        out.print(f"made slow in this rehearsal: {said}", style="dim", soft_wrap=True)
    return code


def _load_of(written: str) -> timedelta:
    parsed = duration_of("--load", written)
    if parsed is None or not _LEAST_LOAD <= parsed <= _MOST_LOAD:
        raise CommandError(f"--load {written}: write 2s to 1h; in less, clocks and temperatures have not settled")
    return parsed


def _check_earlier(folder: Path) -> None:
    from gameday_fleet.record import FleetRecord

    try:
        FleetRecord.load(folder)
    except (OSError, ValueError):
        raise CommandError(f"--against {folder} is not a fleet run's folder: it has no fleet.json of ours") from None


def _probe(
    out: Console,
    profile: str | None,
    at_once: int,
    load: timedelta,
    against: Path | None,
    reports: Path,
    trigger: str,
    command: str,
) -> ExitCode:
    """Run the flow in this thread, and print its findings."""
    from gameday.cli.prefect_client import give_events_up_at_once, gone_message
    from gameday.run.record import new_run_id
    from gameday.runs.run_list import FLEET_FILE
    from gameday.runs.season_record import SeasonResult
    from gameday_fleet.cli.fleet_view import FleetView
    from gameday_fleet.flow import fleet as flow
    from gameday_fleet.page import render_fleet

    id = f"fleet-{new_run_id()}"
    folder = reports / id
    result: object
    give_events_up_at_once()
    with FleetView(folder, out):
        try:
            state = flow(
                profile=profile,
                at_once=at_once,
                load=load,
                against=str(against) if against else None,
                reports=str(reports),
                trigger=trigger,
                fleet_id=id,
                command=command,
                return_state=True,
            )
            result = state.result(raise_on_failure=False)
        except Exception as error:  # an error of Prefect's own, for example; the folder holds what was measured
            result = error
    gone = gone_message(result) if isinstance(result, BaseException) else None
    if isinstance(result, BaseException) and not gone:
        raise result
    if not (folder / FLEET_FILE).is_file():
        why = result.why if isinstance(result, SeasonResult) else gone or "no result"
        raise CommandError(why, ExitCode.REFUSED)
    if gone:
        out.print(gone, style="yellow", markup=False, soft_wrap=True)
    return _print(out, render_fleet(folder, datetime.now(UTC)))


def _unlabel(out: Console, profile: str | None) -> ExitCode:
    """Take the labels off under the cluster's lease, so that no fleet run writes labels meanwhile."""
    from gameday.run.record import new_run_id
    from gameday.runs.play import open_season
    from gameday_fleet.labels import take_labels_off

    cluster = cluster_profile(profile)
    try:
        with open_season(f"unlabel-{new_run_id()}", cluster, lambda _: None) as opened:
            done = take_labels_off(opened.kubernetes, lambda: opened.stopped)
    except RefusedError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    _print_left_alone(out, done)
    out.print(f"labels of GPU classes taken off {len(done.changed)} nodes", markup=False, soft_wrap=True)
    if done.stopped:
        out.print(f"ended early: {printable(done.stopped)}", style="yellow", soft_wrap=True, markup=False)
    return ExitCode.ABORTED if done.stopped else ExitCode.PASSED


def _print_labels(out: Console, fleet: Fleet) -> None:
    """Print the number of nodes of each class, and what happened to the labels."""
    from gameday.values.gpu_class import GpuClass

    counts = Counter(str(one.gpu_class) for one in fleet.classes)
    if counts:
        said = ", ".join(f"{counts[value]} {value}" for value in GpuClass)
        out.print(f"classes of nodes: {said}", soft_wrap=True, highlight=False)
    labels = fleet.record.labels
    if labels is None or labels.stopped:
        return
    _print_left_alone(out, labels)
    out.print(
        f"labels: {len(labels.changed)} written, {len(labels.unchanged)} as they were; "
        "gameday fleet --unlabel takes them off",
        soft_wrap=True,
        highlight=False,
    )


def _print_left_alone(out: Console, labels: Labelled) -> None:
    from gameday.values.gpu_class import GPU_CLASS_LABEL

    for node, value in list(labels.left_alone.items())[:_MOST_NAMED]:
        out.print(
            f"label left alone: {printable(node)} has {GPU_CLASS_LABEL}={printable(value)}, set by somebody else",
            style="yellow",
            soft_wrap=True,
            markup=False,
        )


def _draw_again(out: Console, folder: Path) -> ExitCode:
    from gameday_fleet.page import render_fleet

    try:
        return _print(out, render_fleet(folder, datetime.now(UTC)))
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "fleet.json is damaged"
        raise CommandError(f"{folder} is not a fleet run's folder: {why}") from None
    except OSError as error:
        raise CommandError(f"the fleet run's page cannot be drawn: {not_written(error, folder)}") from None


def _print(out: Console, rendered: RenderedFleet) -> ExitCode:
    from gameday_fleet.spread import TITLES

    judged = rendered.fleet
    for model in judged.models:
        for figure in model.figures:
            spread = figure.spread
            out.print(
                f"{printable(figure.title):22} {spread.median:10.4g} {figure.unit:8} median of {spread.n}, "
                f"{spread.low:.4g} to {spread.high:.4g}",
                soft_wrap=True,
                highlight=False,
            )
        for one in (*model.stragglers, *model.unusual)[:_MOST_NAMED]:
            word = "slow" if one in model.stragglers else "unusual"
            out.print(
                f"{word:8} {printable(one.where)}: {one.title} {one.value:.4g} {one.unit}, {one.percent:+.1f} % "
                f"(robust z {one.z:.1f}, n {one.n})",
                style="red" if word == "slow" else "yellow",
                soft_wrap=True,
                markup=False,
            )
        if model.costs:
            cost = model.costs[-1]
            without = cost.lost_percent_without
            better = "" if without is None else f", {without:.1f} % without the stragglers"
            out.print(
                f"a synchronous job on all {cost.ranks} loses {cost.lost_percent:.1f} % to its slowest rank{better}",
                soft_wrap=True,
                highlight=False,
            )
    for lost in judged.drift.drifted[:_MOST_NAMED] if judged.drift else ():
        place, title = f"{printable(lost.node)} GPU {lost.gpu}", TITLES[lost.figure]
        out.print(f"drifted  {place}: {title} {lost.percent:+.1f} % against itself", soft_wrap=True, markup=False)
    _print_labels(out, judged)
    left = sum(one.gpus for one in judged.left_out)
    if judged.left_out:
        out.print(f"not measured: {left} GPUs of {len({one.node for one in judged.left_out})} nodes, the page says why")
    out.print(printable(judged.headline), style="bold", soft_wrap=True)
    if judged.record.stopped:
        out.print(f"ended early: {printable(judged.record.stopped)}", style="yellow", soft_wrap=True, markup=False)
    for path in () if rendered.unwritten else rendered.floors:
        out.print(f"floors for qa: {path}", soft_wrap=True)
    out.print(rendered.unwritten or f"page: {rendered.html}", soft_wrap=True)
    return ExitCode(judged.exit_code)

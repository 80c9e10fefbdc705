"""`gameday coverage`: a season of game-days, and a matrix: which signals noticed which fault, and how fast."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.completion import complete_plan
from gameday.cli.console import console
from gameday.cli.game_day import Profile, Reports, check_plan, check_reports
from gameday.cli.help_page import Panel, add_command
from gameday.cli.play_season import AskedSeason, cluster_profile, duration_of, play_season
from gameday.cli.rehearse_options import (
    DEFAULT_DETECTOR,
    Cluster,
    Exporter,
    Gpus,
    GuestOption,
    KeepRehearsed,
    Rehearse,
    Watcher,
)
from gameday.cli.virtual_clusters import check_fit, virtual_clusters
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written
from gameday.text import printable
from gameday.values.nodes import MAX_NODES

if TYPE_CHECKING:
    from rich.console import Console

_AT_ONCE = 4
# The number of runs that two cores carry at the same time; docs/coverage.md has the figures.
_REHEARSED_AT_ONCE, _REHEARSED_WITHIN = 12, "2m"
# A quarter of the training work is left out: the pods that many runs evict must leave room for canaries and QA.
_SPARE = 4
# As many as have the pods of the GPU operator, which some plans freeze (`seed`); resubmitted jobs find a healthy one.
_VIRTUAL_NODES = 32

Plans = Annotated[
    list[str] | None,
    typer.Argument(
        autocompletion=complete_plan,
        help="Names of shipped plans, or plan files. Default: every shipped plan, dangerous ones only with --rehearse.",
    ),
]
AtOnce = Annotated[
    int | None,
    typer.Option(
        min=1, max=100, help="Largest number of nodes that may be broken at once.", show_default="4, with --rehearse 12"
    ),
]
Within = Annotated[
    str | None,
    typer.Option(
        help="Leave out plans that may wait longer than this for a signal, such as 10m.",
        show_default="none, with --rehearse 2m",
    ),
]
ApprovedBy = Annotated[
    str | None, typer.Option(help="Your name. Approves the game-days of this season that ask for approval.")
]
Again = Annotated[Path | None, typer.Option(help="Folder of a season. Draws its page again; runs nothing.")]
Compare = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]FOLDER",
        help="Folder of a season, and its detector's name. Once for each: draws fault × detector; runs nothing.",
    ),
]

Plays = Annotated[
    int,
    typer.Option(min=1, max=1000, help="Plays of each plan, in the seed's random order. A detector is judged by 20."),
]
After = Annotated[
    list[str] | None,
    typer.Option(metavar="FOLDER", help="Folder of an earlier season: what it played to its end counts for --plays."),
]
WrongCosts = Annotated[
    float, typer.Option(min=0, max=1000, help="With --compare: what acting wrongly costs, in missed faults.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        coverage,
        "gameday coverage --rehearse",
        "gameday coverage --compare reports/season-… --compare reports/season-…",
        "gameday coverage xid-95-uncontained-ecc power-cap --profile cluster.yaml",
        panel=Panel.DETECTORS,
    )


def coverage(
    plans: Plans = None,
    profile: Profile = None,
    rehearse: Rehearse = False,
    seed: Annotated[int, typer.Option(help="Seed of the choice of nodes. The same seed makes the same choice.")] = 1,
    at_once: AtOnce = None,
    within: Within = None,
    approved_by: ApprovedBy = None,
    again: Again = None,
    compare: Compare = None,
    wrong_costs: WrongCosts = 1,
    plays: Plays = 1,
    after: After = None,
    nodes: Annotated[
        int, typer.Option(min=2, max=MAX_NODES, help="With --rehearse: virtual GPU nodes.")
    ] = _VIRTUAL_NODES,
    gpus: Gpus = 8,
    detector: Watcher = None,
    cluster: Cluster = "embedded",
    guest: GuestOption = None,
    exporter: Exporter = None,
    reports: Reports = Path("reports"),
    keep: KeepRehearsed = False,
) -> int:
    """Run many game-days at once, and draw which faults were noticed, by which signal and how fast.

    Exit code: the worst of its runs.
    """
    from gameday.cli.prefect_client import prefect_server, set_defaults
    from gameday.plan.catalogue import shipped_plans

    out, asked = console(), plans or []
    if again is not None:
        return _draw_again(out, again)
    if compare:
        return _compare(out, compare, reports, wrong_costs)
    if rehearse and profile:
        raise CommandError("--rehearse brings its own cluster: leave out --profile, or --rehearse")
    if guest and not rehearse:
        raise CommandError("--guest starts a detector beside virtual nodes: add --rehearse, or leave it out")
    if exporter and not rehearse:
        raise CommandError("--exporter chooses what virtual nodes export: add --rehearse, or leave it out")
    virtual = virtual_clusters() if rehearse else None
    watching = virtual.guest_of(guest, cluster, detector) if virtual else None
    detector = detector or DEFAULT_DETECTOR
    if rehearse:
        within = within or (None if asked else _REHEARSED_WITHIN)
    at_once = at_once or (_REHEARSED_AT_ONCE if rehearse else _AT_ONCE)
    set_defaults()
    season = AskedSeason(
        tuple(asked),
        seed,
        at_once,
        duration_of("--within", within),
        approved_by,
        reports,
        plays=plays,
        after=tuple(after or ()),
    )
    detector_profiles = () if rehearse else cluster_profile(profile).detector_profiles
    checked = [check_plan(name, detector_profiles) for name in asked or shipped_plans()]
    check_reports(reports)
    command = ["gameday", "coverage", *asked, "--seed", str(seed), "--at-once", str(at_once)]
    command += ["--within", within] if within else []
    command += ["--plays", str(plays)] if plays > 1 else []
    if virtual is None:
        command += ["--profile", profile] if profile else []
        with prefect_server(out):
            return play_season(out, season, profile, shlex.join(command), "manual")
    for plan in checked:
        check_fit(plan, nodes, gpus)
    command += ["--rehearse", "--nodes", str(nodes), "--gpus", str(gpus), "--cluster", cluster]
    command += ["--guest", guest] if guest else ["--detector", detector]
    spare, flow = nodes // _SPARE, "gameday.flows.season"
    release = virtual.exporter_for(exporter, checked)
    command += ["--exporter", release]
    with virtual.embedded(
        out, nodes, gpus, detector, cluster, keep=keep, flow=flow, spare=spare, exporter=release, guest=watching
    ) as here:
        return here.end_with(play_season(out, season, str(here.profile), shlex.join(command), "rehearsal"))


def _compare(out: Console, asked: list[str], reports: Path, wrong_costs: float) -> ExitCode:
    from gameday.runs.by_detector import compare_detectors

    named = [one.split("=", 1) if "=" in one.partition("/")[0] else ("", one) for one in asked]
    try:
        folders = [(name, Path(folder)) for name, folder in named]
        made = compare_detectors(folders, reports, datetime.now(UTC), wrong_costs)
    except OSError as error:
        where = error.filename or reports
        again = "give a season's folder; `gameday coverage --again FOLDER` draws its page"
        raise CommandError(f"{where}: {error.strerror}; {again}") from None
    except ValueError:
        raise CommandError("a season's coverage.json is damaged: `gameday coverage --again FOLDER` draws it") from None
    for one in made.content.columns:
        points = "" if one.score.points.value is None else f", {one.score.points.value:.2f} points"
        said = f"{one.name}: noticed {one.noticed} of {one.played}, wrongly acted {one.wrong}{points}"
        out.print(printable(said), markup=False, soft_wrap=True)
    out.print(made.unwritten or f"detectors: {made.html}", soft_wrap=True, highlight=False)
    return ExitCode.PASSED


def _draw_again(out: Console, folder: Path) -> ExitCode:
    from gameday.cli.coverage_table import print_coverage
    from gameday.runs.season_page import render_season

    try:
        return print_coverage(out, render_season(folder, datetime.now(UTC)))
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "season.json is damaged"
        raise CommandError(f"{folder} is no season's folder: {why}") from None
    except OSError as error:
        raise CommandError(f"the season's page cannot be drawn: {not_written(error, folder)}") from None

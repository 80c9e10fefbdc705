"""`gameday season --random`: game-days with plans, nodes and times drawn from a seed, until a time budget is over."""

from __future__ import annotations

import secrets
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.completion import complete_plan
from gameday.cli.console import console
from gameday.cli.coverage import ApprovedBy
from gameday.cli.game_day import Profile, Reports, check_plan, check_reports
from gameday.cli.help_page import Panel, add_command
from gameday.cli.play_season import AskedSeason, cluster_profile, duration_of, play_season
from gameday.cli.rehearse_options import DEFAULT_DETECTOR, Cluster, Gpus, KeepRehearsed, Rehearse, Watcher
from gameday.cli.virtual_clusters import check_fit, virtual_clusters
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.values.nodes import MAX_NODES

if TYPE_CHECKING:
    from gameday.cluster.profile import ClusterProfile
    from gameday.runs.season_record import RandomSettings

# As in `gameday coverage`: a quarter of the training work is left out, and enough nodes for evicted pods.
_SPARE, _VIRTUAL_NODES = 4, 24

Plans = Annotated[
    list[str] | None,
    typer.Argument(
        autocompletion=complete_plan,
        help="Shipped plans' names or plan files to draw from; none: every shipped one that fits the cluster.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        season,
        "gameday season --random --seed 7 --budget 1h --rehearse",
        "gameday season --random --budget 4h --mean-gap 20m --profile cluster.yaml --dry-run",
        panel=Panel.DETECTORS,
    )


def season(
    plans: Plans = None,
    random: Annotated[bool, typer.Option("--random", help="Draw plans, nodes and times; has to be given.")] = False,
    budget: Annotated[
        str | None, typer.Option(help="Time within which all game-days usually end, like 1h; has to be given.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Draws the season: the same seed, the same season.", show_default="a new one"),
    ] = None,
    mean_gap: Annotated[str, typer.Option(help="Mean gap from one beginning to the next.")] = "5m",
    at_once: Annotated[
        int, typer.Option(min=1, max=100, help="Largest number of nodes that may be broken at once.")
    ] = 4,
    profile: Profile = None,
    approved_by: ApprovedBy = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be played, when and where; changes nothing.")
    ] = False,
    rehearse: Rehearse = False,
    nodes: Annotated[
        int, typer.Option(min=2, max=MAX_NODES, help="With --rehearse: virtual GPU nodes.")
    ] = _VIRTUAL_NODES,
    gpus: Gpus = 8,
    detector: Watcher = None,
    cluster: Cluster = "embedded",
    reports: Reports = Path("reports"),
    keep: KeepRehearsed = False,
) -> int:
    """Play game-days at random, as a chaos monkey would, within the guardrails; the seed plays them again.

    A dangerous plan is drawn only if the cluster's profile allows its fault. Exit code: the worst of its runs.
    """
    from gameday.cli.prefect_client import prefect_server, set_defaults
    from gameday.cli.season_preview import print_preview
    from gameday.plan.catalogue import shipped_plans
    from gameday.runs.draw import SEEDS, random_season_command

    if not random:
        raise CommandError("add --random to draw game-days, or play each plan once: gameday coverage")
    if rehearse and profile:
        raise CommandError("--rehearse brings its own cluster: leave out --profile, or --rehearse")
    out, play, drawn = console(), print_preview if dry_run else play_season, _settings(budget, mean_gap)
    seed = secrets.randbelow(SEEDS) if seed is None else seed
    asked = AskedSeason(tuple(plans or ()), seed, at_once, None, approved_by, reports, drawn)
    again = partial(random_season_command, asked.plans, seed, at_once, drawn)
    set_defaults()
    met = _virtual_cluster(cluster) if rehearse else cluster_profile(profile)
    checked = [check_plan(name, met.detector_profiles) for name in asked.plans or shipped_plans()]
    _refuse_what_cannot_be_drawn(asked, met)
    if not dry_run:
        check_reports(reports)
    if not rehearse:
        command = again(*(["--profile", profile] if profile else []))
        with nullcontext() if dry_run else prefect_server(out):
            return play(out, asked, profile, command, "manual")
    virtual = virtual_clusters()
    for plan in checked if plans else ():
        check_fit(plan, nodes, gpus)
    watcher, release = detector or DEFAULT_DETECTOR, virtual.exporter_for(None, checked)
    size = ["--nodes", str(nodes), "--gpus", str(gpus)]
    command = again("--rehearse", *size, "--cluster", cluster, "--detector", watcher)
    spare, flow = nodes // _SPARE, "gameday.flows.season"
    with virtual.embedded(
        out, nodes, gpus, watcher, cluster, keep=keep, flow=flow, spare=spare, exporter=release
    ) as here:
        return here.end_with(play(out, asked, str(here.profile), command, "rehearsal"))


def _virtual_cluster(control_plane: str) -> ClusterProfile:
    """Return as much of a profile as a draw needs, for a cluster that is not started yet."""
    from gameday.cluster.profile import ClusterProfile
    from gameday.faults.registry import parameter_models

    name, lab = ("lab", Path()) if control_plane == "lab" else ("rehearsal", None)
    dangers = tuple(parameter_models())
    return ClusterProfile.model_construct(name=name, rehearsal=Path(), lab_control=lab, allow_dangerous=dangers)


def _refuse_what_cannot_be_drawn(asked: AskedSeason, cluster: ClusterProfile) -> None:
    """Raise CommandError, before anything is started, if the season would be refused for its plans or budget."""
    from gameday.errors import RefusedError
    from gameday.runs.draw import plans_to_draw, refuse_settings
    from gameday.runs.timings import usual_durations

    assert asked.random is not None
    before = usual_durations(asked.reports, cluster.name)
    try:
        refuse_settings(asked.random)
        plans_to_draw(asked.plans, cluster=cluster, at_once=asked.at_once, budget=asked.random.budget, before=before)
    except RefusedError as error:
        raise CommandError(f"refused: {error.why}; {error.hint}", ExitCode.REFUSED) from None


def _settings(budget: str | None, mean_gap: str) -> RandomSettings:
    from gameday.runs.season_record import RandomSettings

    time, gap = duration_of("--budget", budget), duration_of("--mean-gap", mean_gap)
    if time is None or gap is None:
        raise CommandError("say how long the season may take: --budget 1h")
    return RandomSettings(budget=time, mean_gap=gap)

"""`gameday doctor`: check everything that a game-day needs, before anybody relies on it."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.completion import complete_plan
from gameday.cli.console import console
from gameday.cli.game_day import DEFAULT_PLAN, Profile, checked_plan
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gameday.guard.doctor.prerequisite import Prerequisite

_CELL_CHARACTERS = 1000
_SAID = {True: ("ok", "green"), False: ("failed", "red"), None: ("unknown", "yellow")}


def register(app: typer.Typer) -> None:
    """Add `doctor`."""
    add_command(
        app,
        doctor,
        "gameday doctor --profile cluster.yaml",
        "gameday doctor gpu-fell-off-the-bus --profile cluster.yaml --send-pod",
        panel=Panel.CLUSTER,
    )


def doctor(
    plans: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PLAN...]", autocompletion=complete_plan, help=f"Plans to look after; none: {DEFAULT_PLAN}."
        ),
    ] = None,
    profile: Profile = None,
    send_pod: Annotated[
        bool,
        typer.Option(help="Send the agent to one target: pulls the image, reads the node's clock, writes a log line."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: a JSON list.")] = False,
) -> int:
    """Check rights, servers, alerts, logs, targets and guardrails. Changes nothing without --send-pod.

    Exit code 0 when all is well; 2 when nothing failed and a check is unknown: a run would begin, and may end unknown;
    5 when a check failed.
    """
    found = [(plan, check) for plan in plans or [DEFAULT_PLAN] for check in _examine(plan, profile, send_pod)]
    return show_prerequisites(found, as_json=as_json, several=len(plans or ()) > 1)


def show_prerequisites(found: list[tuple[str, Prerequisite]], *, as_json: bool, several: bool = False) -> ExitCode:
    """Print the checks of each plan, and return the exit code that they mean.

    Args:
        found: The checks, each with its plan's name; empty for checks of no plan.
        as_json: Print a JSON list.
        several: Show the plans' names.
    """
    if as_json:
        rows = [{"plan": plan, **dataclasses.asdict(check)} for plan, check in found]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        _print(console(), found, several=several)
    verdicts = {check.ok for _, check in found}
    if False in verdicts:
        return ExitCode.REFUSED
    return ExitCode.UNKNOWN if None in verdicts else ExitCode.PASSED


def _examine(plan: str, profile: str | None, send_pod: bool) -> list[Prerequisite]:
    from gameday.cluster.profile import load_profile
    from gameday.errors import AdapterError
    from gameday.guard.doctor.preflight import check_prerequisites
    from gameday.guard.read_only_run import read_only_run
    from gameday.run.record import new_run_id

    try:
        cluster = load_profile(profile)
        loaded = checked_plan(plan, cluster.detector_profiles, cluster.detector)
        found: list[Prerequisite] = []
        for one in loaded.played:
            with read_only_run(f"{new_run_id()}-doctor", one, cluster) as run:
                checks = check_prerequisites(run, send_pod=send_pod)
                found += [check for check in checks if check not in found]
        return found
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None


def _folded(found: list[tuple[str, Prerequisite]]) -> list[tuple[str, Prerequisite]]:
    """Return the checks with a plan's granted rights as one line, because nobody has to act on them."""
    from gameday.guard.doctor.prerequisite import Prerequisite

    folded: list[tuple[str, Prerequisite]] = []
    for plan, group in itertools.groupby(found, key=lambda one: one[0]):
        checks = [check for _, check in group]
        rights = [check for check in checks if check.area == "rights" and check.ok]
        line = Prerequisite("rights", f"{len(rights)} rights", True, "granted (--json lists them)")
        for check in checks:
            if check not in rights:
                folded.append((plan, check))
            elif check is rights[0]:
                folded.append((plan, line))
    return folded


def _print(out: Console, found: list[tuple[str, Prerequisite]], *, several: bool) -> None:
    """Print a row for each check: first those that are fine, in a run's order, then those that need mending."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from gameday.text import printable

    table: Table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in [*(["plan"] if several else []), "result", "area", "check and what was found"]:
        table.add_column(column, overflow="fold")
    for plan, check in sorted(_folded(found), key=lambda one: (True, None, False).index(one[1].ok)):
        said, style = _SAID[check.ok]
        words = Text(printable(check.name, _CELL_CHARACTERS), style="" if check.ok else "bold")
        words.append(f": {printable(check.found, _CELL_CHARACTERS)}", style="not bold")
        if check.ok:
            words.no_wrap, words.overflow = True, "ellipsis"  # --json has all of it
        if check.fix and not check.ok:
            words.append(f"\nfix: {printable(check.fix, _CELL_CHARACTERS)}", style="not bold yellow")
        table.add_row(*([Text(plan)] if several else []), Text(said, style=style), Text(check.area), words)
    out.print(table)
    verdicts = [check.ok for _, check in found]
    out.print(
        f"{len(found)} checks: {verdicts.count(False)} failed, {verdicts.count(None)} unknown{_meaning(verdicts)}"
    )


def _meaning(verdicts: list[bool | None]) -> str:
    """Return the meaning of the exit code."""
    if False in verdicts:
        return ". A run would be refused, or could not be judged (exit code 5)"
    if None in verdicts:
        return ". A run would begin; what is unknown may spoil its result (exit code 2)"
    return ". A run would begin (exit code 0)"

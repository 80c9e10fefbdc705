"""`gameday detectors`: list the detector profiles, and show what one says about each fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.help_page import HelpGroup, Panel, add_command
from gameday.cli.plans import DetectorFolders

if TYPE_CHECKING:
    from gameday.detectors.models import DetectorProfile, Rule

WIDE = 160
"""Width for a pipe, which has none: wide enough that little folds."""


def register(app: typer.Typer) -> None:
    """Add `gameday detectors` and `gameday detectors show`."""
    detectors = typer.Typer(
        cls=HelpGroup, help="Show what each detector should do about each fault.", invoke_without_command=True
    )
    detectors.callback()(listing)
    add_command(detectors, show, "gameday detectors show konduktor")
    app.add_typer(detectors, name="detectors", rich_help_panel=Panel.START)


def listing(context: typer.Context, detectors: DetectorFolders = None) -> None:
    """List the detector profiles; a plan names one with `detector:` and gets its expectations."""
    if context.invoked_subcommand:
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gameday.detectors.load import known_detectors, read_detector

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("detector", "reads", "rules", "what it is"):
        table.add_column(column, overflow="fold", no_wrap=column == "detector")
    for path in known_detectors(detectors or []).values():
        profile = read_detector(path)
        table.add_row(
            Text(profile.name, style="bold"), ", ".join(profile.reads), str(len(profile.rules)), Text(profile.title)
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDE
    console.print(table)
    console.print("gameday detectors show NAME says what one does about each fault", style="dim")


def show(
    name: Annotated[str, typer.Argument(help="A profile's name, or the path of its file.")],
    detectors: DetectorFolders = None,
) -> None:
    """Show what a detector does about each fault, in the order of its rules."""
    from rich.console import Console
    from rich.text import Text

    from gameday.detectors.load import load_detector

    profile = load_detector(name, detectors or [])
    console = Console(highlight=False)
    console.print(Text(profile.title, style="bold"), soft_wrap=True)
    console.print(Text(f"reads {', '.join(profile.reads)}; {profile.source}", style="dim"), soft_wrap=True)
    console.print(Text(f"{profile.configuration}\n"), soft_wrap=True)
    for line in _repairs(profile):
        console.print(Text(line), soft_wrap=True)
    for rule in profile.rules:
        console.print(Text(_about(rule), style="bold"), soft_wrap=True)
        for line in _does(rule):
            console.print(Text(f"    {line}"), soft_wrap=True)
        console.print(Text(f"    {_ground(rule)}{rule.source}", style="dim"), soft_wrap=True)


def _repairs(profile: DetectorProfile) -> Iterator[str]:
    from gameday.documents.fields import format_duration

    repairs = profile.repairs
    if repairs is None:
        yield (
            f"repairs nothing: {profile.repairs_nothing}\n"
            if profile.repairs_nothing
            else "its repair: not described\n"
        )
        return
    yield f"repairs: {repairs.by}. {repairs.configuration}"
    for hop, expected in repairs.hops.expected():
        yield f"    {hop} within {format_duration(expected.within)} of the hop before"
    if repairs.cancelled_by:
        yield f"    cancelled by: {', '.join(repairs.cancelled_by)}"
    yield f"    {repairs.source}\n"


def _about(rule: Rule) -> str:
    what = ", ".join((*rule.faults, *(f"every fault at layer {layer}" for layer in rule.layers)))
    asked = "; ".join(f"{name} {', '.join(map(_word, values))}" for name, values in rule.when.items())
    return f"{what} ({asked})" if asked else what


def _ground(rule: Rule) -> str:
    if rule.seen_on:
        return f"seen here on {rule.seen_on}; "
    return "read only; " if rule.evidence else ""


def _word(value: object) -> str:
    return {None: "not given", "": "blank"}.get(value, str(value))  # type: ignore[call-overload, no-any-return]


def _does(rule: Rule) -> Iterator[str]:
    from gameday.documents.fields import format_duration

    if rule.cannot_see:
        yield f"cannot see it: {rule.cannot_see}"
        return
    effects = [
        *((f"taint {one.key}={one.value}:{one.effect}", one) for one in rule.taints),
        *((("cordon", rule.cordoned),) if rule.cordoned else ()),
        *((f"condition {one.type}={one.status} {one.reason or ''}".rstrip(), one) for one in rule.conditions),
        *((f"label {one.key}" + (f"={one.value}" if one.value else ""), one) for one in rule.labels),
        *((f"Event {one.reason}", one) for one in rule.events),
        *((("fewer allocatable GPUs", rule.allocatable_falls),) if rule.allocatable_falls else ()),
    ]
    for what, effect in effects:
        typically = f", typically {format_duration(effect.typically)}" if effect.typically is not None else ""
        yield f"{what} within {format_duration(effect.within)}{typically}"
    if not effects:
        yield "nothing that the cluster shows"
    if rule.quarantines or rule.conditions:
        yield f"ends with: {', '.join(rule.ends_with) or 'nothing by itself'}"
    if rule.repaired_by is not None:
        yield f"repaired by: {', '.join(rule.repaired_by) or 'nobody; a person must act'}"
    if rule.harm:
        yield f"warning: {rule.harm.what} {rule.harm.fix}"
    if rule.note:
        yield rule.note

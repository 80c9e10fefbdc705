"""`gameday plans`: the shipped plans by the layer where their fault goes in, a line each, or some of them in detail."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gameday.cli.completion import complete_plan
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.text import printable

if TYPE_CHECKING:
    from gameday.detectors.models import DetectorProfile
    from gameday.plan.fault import FaultParameters
    from gameday.plan.models import Plan

_PIPE_WIDTH = 1000
"""Columns for a pipe, which has no width: wide enough that a plan stays on one line, for grep."""
_INDENT = 6
_SCHEDULING = "scheduling"
"""Heading in place of a fault's layer for plans about the scheduler: device taints, gangs."""


def register(app: typer.Typer) -> None:
    """Add `gameday plans`."""
    add_command(
        app,
        plans,
        "gameday plans",
        "gameday plans gpu-fell-off-the-bus",
        "gameday plans --layer network --long",
        "gameday plans --fault xid --detector konduktor",
        panel=Panel.START,
    )


def plans(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PLAN]...", autocompletion=complete_plan, help="Show all about these shipped plans, and no others."
        ),
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="Only plans with a fault at this layer, such as 'kernel log' or network.")
    ] = None,
    fault: Annotated[str | None, typer.Option(help="Only plans with this fault, such as xid.")] = None,
    detector: Annotated[
        str | None,
        typer.Option(help="Only plans that this detector can notice: a profile's name or file (`gameday detectors`)."),
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="Show also each plan's fault, what it expects, and who repairs the node.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, for programs.")] = False,
) -> None:
    """List the shipped plans.

    They are grouped by the layer where the fault goes in. A plan marked `dangerous` runs only if the cluster's
    profile allows its fault.
    """
    from gameday.faults.base import Layer
    from gameday.faults.registry import known_faults, parameter_models
    from gameday.plan.catalogue import find_plan, load_shipped

    _refuse_unknown("layer", layer, [*Layer, _SCHEDULING])
    _refuse_unknown("fault", fault, known_faults())
    profile = _detector(detector)
    asked = {find_plan(name).stem for name in names or ()}
    found = [
        plan
        for plan in (loaded.plan for loaded in load_shipped(parameter_models()))
        if (not asked or plan.name in asked)
        and layer in (None, _layer(plan))
        and (fault is None or fault in plan.fault.types())
        and (profile is None or _sees(profile, plan))
    ]
    if as_json:
        typer.echo(json.dumps([_row(plan) for plan in found], indent=2, ensure_ascii=False))
    elif found:
        _print(found, profile, long=long or bool(asked))
    else:
        raise CommandError("no shipped plan is like that; `gameday plans` lists them all")


def _refuse_unknown(option: str, value: str | None, known: Collection[str]) -> None:
    if value is None or value in known:
        return
    near = difflib.get_close_matches(value[:64], known, n=1, cutoff=0.5)
    advice = f"did you mean --{option} '{near[0]}'?" if near else f"one of: {', '.join(sorted(known))}"
    raise CommandError(f"there is no {option} {printable(value)}; {advice}")


def _detector(name: str | None) -> DetectorProfile | None:
    from gameday.detectors.load import load_detector

    return load_detector(name) if name else None


def _sees(profile: DetectorProfile, plan: Plan) -> bool:
    from gameday.detectors.facts import rule_for

    rule = rule_for(profile, plan.fault)
    return rule is not None and not rule.cannot_see


def _layer(plan: Plan) -> str:
    from gameday.faults.registry import fault_for

    return _SCHEDULING if plan.expect.device_taints or plan.expect.placement else fault_for(plan.fault).layer


def _print(found: list[Plan], profile: DetectorProfile | None, *, long: bool) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    widest = max(len(plan.name) for plan in found)
    for layer, plans_there in groupby(sorted(found, key=_layer_position), _layer):
        console.print(Text(f"{layer[0].upper()}{layer[1:]}", style="bold underline"))
        for plan in plans_there:
            danger = ("  dangerous" if plan.dangers() else "", "red")
            if not long:
                row = Text.assemble("  ", (f"{plan.name:<{widest}}", "bold"), f"  {plan.title}", danger)
                console.print(row, no_wrap=True, overflow="ellipsis")
                continue
            console.print(Text.assemble("  ", (plan.name, "bold"), danger))
            for line, style in ((plan.title, ""), (_details(plan), "dim")):
                console.print(Padding(Text(line, style=style), (0, 0, 0, _INDENT), expand=False))
        console.print()
    more = "" if long else " `gameday plans NAME` says all about one."
    count = f"{len(found)} plan{'' if len(found) == 1 else 's'}."
    console.print(f"{count}{more} `gameday rehearse NAME` plays one on virtual nodes.", soft_wrap=True)
    if profile:
        console.print(f"`gameday detectors show {profile.name}` says what it does about each fault.", soft_wrap=True)


def _layer_position(plan: Plan) -> int:
    from gameday.faults.base import Layer

    return [*Layer, _SCHEDULING].index(_layer(plan))


def _details(plan: Plan) -> str:
    """Return the fault in words, the expectations, and who repairs."""
    words = [_words(plan.fault), *_expected(plan)]
    if plan.recover.repair != "none":
        words.append(f"repair: {plan.recover.repair}")
    return " · ".join(words)


def _words(fault: FaultParameters) -> str:
    """Return a fault with the parameters that differ from their defaults, as 'xid 79' or 'clock_lock (gpu 0)'."""
    chosen = fault.model_dump(mode="json", exclude={"type", "hold", "parts", "fault"}, exclude_defaults=True)
    if parts := fault.made_of():
        return ", ".join([" + ".join(map(_words, parts)), *map(_pair, chosen.items())])
    own = chosen.pop(fault.type, None)
    name = fault.type if own is None else f"{fault.type} {own}"
    return name + (f" ({', '.join(map(_pair, chosen.items()))})" if chosen else "")


def _pair(item: tuple[str, Any]) -> str:
    match item:
        case key, True:
            return key
        case key, dict(value):
            return f"{key} {' '.join(f'{name}={one}' for name, one in value.items())}"
        case key, list(value):
            return f"{key} {' '.join(map(str, value))}"
        case key, float(value):
            return f"{key} {value:g}"
    return " ".join(map(str, item))


def _expected(plan: Plan) -> Iterator[str]:
    from gameday.documents.fields import format_duration

    expect = plan.expect
    bounded = (
        *((one.name or one.meaning, one.within) for one in expect.alerts),
        *((one, one.within) for one in expect.signals_awaited()),
    )
    yield from (f"{what} within {format_duration(within)}" for what, within in bounded)
    if plan.names_detector:
        yield f"what {plan.detector} should do"
    if gang := expect.placement:
        yield f"a gang of {gang.pods} pods on fast nodes within {format_duration(gang.placed_within)}"
    if expect.stays_schedulable_for:
        yield f"stays schedulable for {format_duration(expect.stays_schedulable_for)}"


def _row(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "title": plan.title,
        "layer": _layer(plan),
        "fault": _words(plan.fault),
        "dangerous": sorted(plan.dangers()),
        "targets": f"a whole {plan.targets.domain.label}" if plan.targets.domain else plan.targets.nodes,
        "expected": list(_expected(plan)),
        "remediation": plan.recover.repair,
    }

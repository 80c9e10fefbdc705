"""`gameday validate`, `plans` and `schema`: everything about plans that needs no cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gameday.errors import CommandError, DocumentError
from gameday.exit_codes import ExitCode
from gameday.text import printable

if TYPE_CHECKING:
    from gameday.detectors.models import DetectorProfile
    from gameday.guests.models import Guest
    from gameday.health.policy import Policy
    from gameday.league.document import League
    from gameday.plan.load import DetectorWarning
    from gameday.plan.models import FaultParameters, Plan


DetectorFolders = Annotated[
    list[Path] | None,
    typer.Option("--detectors", metavar="FOLDER", help="A folder of your own detector profiles; may be repeated."),
]


def register(app: typer.Typer) -> None:
    """Add the plan commands."""
    app.command()(validate)
    app.command()(plans)
    app.command()(schema)


def validate(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAN...",
            help="Plan files, detector profiles, guests or health policies, or names of shipped plans.",
        ),
    ],
    detectors: DetectorFolders = None,
) -> int:
    """Check plans, detector profiles, guests and health policies without a cluster.

    A good one gets a line `ok`, a bad one a line for every problem.

    A plan that names a detector is warned of what its fault does to that detector.

    Exit code 0 when all are good, 64 when any is not.
    """
    from rich.console import Console  # noqa: PLC0415 - see the package's docstring
    from rich.text import Text  # noqa: PLC0415

    out, err = Console(), Console(stderr=True)
    code = ExitCode.PASSED
    for name in names:
        try:
            path, found, warnings = _load(name, detectors or [])
        except DocumentError as error:
            code = ExitCode.USAGE
            err.print(Text(str(error), style="red"), soft_wrap=True)
        else:
            out.print(Text.assemble(("ok", "green"), f"  {printable(str(path))}  {found.name}"), soft_wrap=True)
            for said in _arm_lines(found):
                out.print(Text(f"      {said}", style="dim"), soft_wrap=True)
            for warning in warnings:
                said = f"detector {warning.detector}: {warning.what} {warning.fix}"
                err.print(Text(f"warning: {printable(str(path))}: {said}", style="yellow"), soft_wrap=True)
    return code


def plans(as_json: Annotated[bool, typer.Option("--json", help="For programs: a JSON list.")] = False) -> None:
    """List the shipped plans."""
    from gameday.plan.catalogue import load_shipped  # noqa: PLC0415

    rows = [_row(loaded.plan) for loaded in load_shipped(_parameter_models())]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("plan", "fault", "targets", "expected", "remediation"):
        table.add_column(column, overflow="fold", no_wrap=column == "plan")
    for row in rows:
        cells = (row["fault"], row["targets"], "\n".join(row["expected"]), row["remediation"])
        table.add_row(Text(row["name"], style="bold"), *(Text(cell) for cell in cells))
    console = Console(highlight=False)
    if not console.is_terminal:
        # Columns of a pipe, which has no width of its own: wide enough that no line folds.
        console.width = 160
    console.print(table)
    for row in rows:
        console.print(Text.assemble((row["name"], "bold"), f": {row['title']}"), soft_wrap=True)


def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")] = None,
) -> None:
    """Print the plans' JSON schema, which editors complete and check plans with."""
    from gameday.faults.registry import known_faults  # noqa: PLC0415
    from gameday.plan.schema import schema_text  # noqa: PLC0415
    from gameday.remediations.registry import known_remediations  # noqa: PLC0415

    summaries = {name: fault.summary for name, fault in known_faults().items()}
    text = schema_text(_parameter_models(), summaries, known_remediations())
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{printable(str(output))} cannot be written: {error.strerror}") from None


def _parameter_models() -> dict[str, type[FaultParameters]]:
    from gameday.faults.registry import parameter_models  # noqa: PLC0415

    return parameter_models()


def _load(
    name: str, detectors: list[Path]
) -> tuple[Path, Plan | DetectorProfile | Guest | League | Policy, tuple[DetectorWarning, ...]]:
    """A detector profile says in its `kind` that it is one."""
    from gameday.detectors.load import KIND, parse_detector  # noqa: PLC0415
    from gameday.detectors.resolve import completed  # noqa: PLC0415
    from gameday.documents.read import decode, read  # noqa: PLC0415
    from gameday.documents.source import parse  # noqa: PLC0415
    from gameday.guests import load as guests  # noqa: PLC0415
    from gameday.health import policy_files  # noqa: PLC0415
    from gameday.league import document as league  # noqa: PLC0415
    from gameday.plan.catalogue import find_plan  # noqa: PLC0415
    from gameday.plan.load import parse_plan  # noqa: PLC0415
    from gameday.remediations.registry import known_remediations  # noqa: PLC0415

    path = find_plan(name)
    source = read(path)
    parsed = parse(decode(source, str(path)), str(path))
    if parsed.data.get("kind") == KIND:
        return path, parse_detector(parsed, str(path)), ()
    if parsed.data.get("kind") == guests.KIND:
        return path, guests.parse_guest(parsed, path).guest, ()
    if parsed.data.get("kind") == league.KIND:
        return path, league.parse_league(parsed, path), ()
    if parsed.data.get("kind") == policy_files.KIND:
        return path, policy_files.parse_policy(parsed, path).policy, ()
    loaded = completed(parse_plan(source, str(path), _parameter_models(), known_remediations()), path, detectors)
    for one in (loaded, *loaded.scales.values()):
        if one.arms:
            from gameday.season.arm_checks import refuse_unknown_checks  # noqa: PLC0415

            refuse_unknown_checks(one, path)
    warnings = dict.fromkeys(warning for one in (loaded, *loaded.arms) for warning in one.detector_warnings)
    return path, loaded.plan, tuple(warnings)


def _arm_lines(found: Plan | DetectorProfile | Guest | League | Policy) -> list[str]:
    """Return a line for each arm of a plan: its name, and what it changes."""
    arms = getattr(found, "arms", None)
    return [
        printable(f"arm {arm.name}: {'; '.join(arm.changes()) or 'the plan as it is'}")
        for arm in (arms.compare if arms else ())
    ]


def _row(plan: Plan) -> dict[str, Any]:
    from gameday.documents.fields import format_duration  # noqa: PLC0415

    expect = plan.expect
    expected = [f"{alert.name or alert.meaning} within {format_duration(alert.within)}" for alert in expect.alerts]
    expected += [f"{taint.key}:{taint.effect} within {format_duration(taint.within)}" for taint in expect.taints]
    expected += [f"{one.type}={one.status} within {format_duration(one.within)}" for one in expect.conditions]
    expected += [f"Event {one.reason} within {format_duration(one.within)}" for one in expect.events]
    expected += [f"device taint {one} within {format_duration(one.within)}" for one in expect.device_taints]
    expected += [f"label {one.key} within {format_duration(one.within)}" for one in expect.labels]
    if expect.cordoned:
        expected.append(f"cordoned within {format_duration(expect.cordoned.within)}")
    if expect.allocatable_falls:
        expected.append(f"fewer GPUs offered within {format_duration(expect.allocatable_falls.within)}")
    if plan.names_detector:
        expected.append(f"what {plan.detector} should do")
    if expect.stays_schedulable_for:
        expected.append(f"stays schedulable for {format_duration(expect.stays_schedulable_for)}")
    parameters = plan.fault.model_dump(mode="json", exclude={"type", "hold"}, exclude_defaults=True)
    return {
        "name": plan.name,
        "title": plan.title,
        "fault": " ".join([plan.fault.type, *(str(value) for value in parameters.values())]),
        "targets": f"{plan.targets.nodes} node" + ("s" if plan.targets.nodes > 1 else ""),
        "expected": expected,
        "remediation": plan.recover.repair,
    }

"""`gameday validate` and `schema`: check plans, and print the schema that editors check them with."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.completion import complete_plan
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError, DocumentError, DocumentProblem, ProfileError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written
from gameday.text import printable, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gameday.cluster.profile import ClusterProfile
    from gameday.detectors.models import DetectorProfile
    from gameday.documents.source import Source
    from gameday.plan.fault import FaultParameters
    from gameday.plan.load import DetectorWarning
    from gameday.plan.models import Plan

DetectorFolders = Annotated[
    list[Path] | None,
    typer.Option("--detectors", metavar="FOLDER", help="Folder of your own detector profiles. May be repeated."),
]


def register(app: typer.Typer) -> None:
    """Add `gameday validate` and `gameday schema`."""
    add_command(app, validate, "gameday validate my-plan.yaml", "gameday validate plans/*.yaml", panel=Panel.START)
    add_command(app, schema, "gameday schema --output plan.schema.json", panel=Panel.START)


def validate(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAN...",
            autocompletion=complete_plan,
            help="Plan files, detector profiles, guests, health policies or cluster profiles, or names of "
            "shipped plans.",
        ),
    ],
    detectors: DetectorFolders = None,
) -> int:
    """Check plans, detector profiles, guests, health policies and cluster profiles without a cluster.

    Prints `ok` for each good one, and a line for every problem of a bad one.

    Warns if a plan names a detector that its own fault disturbs.

    Exit code 0 when all are good, 64 when any is not.
    """
    from rich.console import Console
    from rich.text import Text

    out, err = Console(), Console(stderr=True)
    code = ExitCode.PASSED
    for name in names:
        try:
            path, found, warnings = _load(name, detectors or [])
        except (DocumentError, ProfileError) as error:
            code = ExitCode.USAGE
            err.print(Text(str(error), style="red"), soft_wrap=True)
        else:
            called = found if isinstance(found, str) else found.name
            out.print(Text.assemble(("ok", "green"), f"  {printable(str(path))}  {called}"), soft_wrap=True)
            for said in _arm_lines(found):
                out.print(Text(f"      {said}", style="dim"), soft_wrap=True)
            for warning in warnings:
                said = f"detector {warning.detector}: {warning.what} {warning.fix}"
                err.print(Text(f"warning: {printable(str(path))}: {said}", style="yellow"), soft_wrap=True)
    return code


def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write to, instead of stdout.")] = None,
) -> None:
    """Print the plans' JSON schema, which editors complete and check plans with."""
    from gameday.faults.registry import known_faults
    from gameday.plan.schema import schema_text
    from gameday.remediations.registry import known_remediations

    summaries = {name: fault.summary for name, fault in known_faults().items()}
    text = schema_text(_parameter_models(), summaries, known_remediations())
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"the schema cannot be written: {printable(not_written(error, output))}") from None


def _parameter_models() -> dict[str, type[FaultParameters]]:
    from gameday.faults.registry import parameter_models

    return parameter_models()


def _load(
    name: str, detectors: list[Path]
) -> tuple[Path, Plan | DetectorProfile | ClusterProfile | str, tuple[DetectorWarning, ...]]:
    """Find out by `kind`, or by the keys of a cluster profile, what the file is, and check it as that.

    Returns its path, what it holds (of a kind that a package brings only the name), and warnings.
    """
    from gameday.cli.game_day import complete
    from gameday.corpus.load import KIND as CASE
    from gameday.corpus.load import parse_case
    from gameday.detectors.load import KIND, parse_detector
    from gameday.documents.read import decode, read
    from gameday.documents.source import parse
    from gameday.plan.catalogue import find_plan
    from gameday.plan.load import parse_plan
    from gameday.remediations.registry import known_remediations

    path = find_plan(name)
    source = read(path)
    parsed = parse(decode(source, str(path)), str(path))
    if parsed.data.get("kind") == KIND:
        return path, parse_detector(parsed, str(path)), ()
    if parsed.data.get("kind") == CASE:
        return path, f"case {parse_case(parsed, str(path)).name}", ()
    of_packages = _kinds_of_packages()
    if check := of_packages.get(str(parsed.data.get("kind"))):
        return path, check(parsed, path), ()
    if (
        "apiVersion" not in parsed.data
        and "fault" not in parsed.data
        and (cluster := _cluster_profile(parsed.data, path))
    ):
        return path, cluster, ()
    if problem := _not_a_plan(parsed.data, path, [KIND, CASE, *of_packages]):
        raise DocumentError([problem])
    loaded = complete(parse_plan(source, str(path), _parameter_models(), known_remediations()), detectors, None)
    warnings = dict.fromkeys(warning for one in (loaded, *loaded.arms) for warning in one.detector_warnings)
    return path, loaded.plan, tuple(warnings)


def _kinds_of_packages() -> Mapping[str, Callable[[Source, Path], str]]:
    """Return the check of each kind of file that installed packages bring."""
    from gameday.plugins import Group, find

    return find(Group.DOCUMENTS, (), lambda module: {module.KIND: module.checked}).parts


def _cluster_profile(data: Mapping[str, object], path: Path) -> ClusterProfile | None:
    """Load a file that has a cluster profile's keys and none of a plan's; return None for any other.

    This loads Kubernetes' client, which checking a plan does not need.
    """
    from gameday.cluster.profile import ClusterProfile, load_profile
    from gameday.plan.models import Plan

    own = ClusterProfile.model_fields.keys() - Plan.model_fields.keys() - {"guest"}
    return None if own.isdisjoint(data) else load_profile(path)


def _not_a_plan(data: Mapping[str, object], path: Path, kinds: Sequence[str]) -> DocumentProblem | None:
    """Return what to do with a file that is clearly something else, by its keys, or by a `kind` that nobody knows."""
    if "fault" in data or "hypothesis" in data:
        return None
    if data.keys() >= {"id", "places", "trigger"}:
        message, fix = "this is the record of a season, and no file to write", f"gameday coverage --again {path.parent}"
    elif "kind" in data:
        near = difflib.get_close_matches(str(data["kind"])[:64], kinds, n=1)
        message = f"no package that is installed here knows the kind {shown(data['kind'])}; known: {', '.join(kinds)}"
        fix = f"did you mean {near[0]}?" if near else "install the package that it is for"
    elif "rules" in data:
        message = "this has rules, but does not say of what"
        fix = "begin it with `kind: HealthPolicy` or `kind: DetectorProfile`"
    else:
        return None
    return DocumentProblem(str(path), None, None, "", None, message, fix)


def _arm_lines(found: object) -> list[str]:
    """Return a line for each arm of a plan: its name and its changes."""
    arms = getattr(found, "arms", None)
    return [
        printable(f"arm {arm.name}: {'; '.join(arm.changes()) or 'the plan as it is'}")
        for arm in (arms.compare if arms else ())
    ]

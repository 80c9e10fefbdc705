"""`gameday run --dry-run`: print what a run would do, as YAML with comments, and write nothing to the cluster."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import typer
from ruamel.yaml import YAML

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.text import printable
from gameday.values.nodes import NodeRole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gameday.cluster.profile import ClusterProfile
    from gameday.guard.check import GuardrailCheck
    from gameday.guard.preview import PlannedChange
    from gameday.plan.fault import FaultParameters
    from gameday.plan.load import LoadedPlan
    from gameday.run.run import ReadOnlyRun
    from gameday.run.targets import ChosenTarget, Targets

_SAID = {True: "ok", False: "TRIPS", None: "UNKNOWN"}


def dry_run(plans: Sequence[LoadedPlan], profile: ClusterProfile) -> int:
    """Print to stdout what each game-day would do. Exit code 0 if all would begin, 5 if one would be refused."""
    checks: list[list[GuardrailCheck]] = []
    for one in plans:
        checks.append(_print_game_day(one, profile, checks[-1] if checks else []))
    fit = all(checked.measurement.ok for of_one in checks for checked in of_one)
    return ExitCode.PASSED if fit else ExitCode.REFUSED


def _print_game_day(loaded: LoadedPlan, profile: ClusterProfile, before: list[GuardrailCheck]) -> list[GuardrailCheck]:
    """Print one game-day, and return its guardrails.

    Guardrails are left out if they say the same as those `before`.
    """
    from gameday.errors import AdapterError, RefusedError
    from gameday.guard.check import check_all
    from gameday.guard.preview import planned_changes
    from gameday.guard.read_only_run import choose_and_follow, read_only_run
    from gameday.reaper.packages import check_packages
    from gameday.run.record import new_run_id

    try:
        with read_only_run(new_run_id(), loaded, profile) as run:
            check_packages(run.plan, run.kubernetes)
            targets = choose_and_follow(run)
            checked = check_all(run, targets)
            _comment(f"a dry run of {run.plan.name}; it ends with a summary")
            if run.plan.fault.runs_on is NodeRole.GPU:
                _comment(*_host_commands(run.plan.fault, targets[0]))
            changes = list(planned_changes(run, targets))
            for change in changes:
                _print(change)
            counted = f"it would make {len(changes)} changes of the cluster, above"
            _comment("", _head(run, targets), counted, *_guardrails(checked, before), _verdict(checked), "")
    except RefusedError as error:
        raise CommandError(
            f"refused: {error.why}" + (f"; {error.hint}" if error.hint else ""), ExitCode.REFUSED
        ) from None
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    return checked


def _verdict(checks: list[GuardrailCheck]) -> str:
    """Return a sentence: the game-day would begin, or which guardrails would refuse it."""
    against = [one.name for one in checks if not one.measurement.ok]
    return f"it would be refused, by: {', '.join(against)}" if against else "it would begin"


def _comment(*lines: str) -> None:
    """Print the block's lines as comments, so that all of stdout is YAML."""
    for text in lines:
        for line in text.split("\n"):
            typer.echo(f"# {printable(line)}".rstrip())


def _head(run: ReadOnlyRun, targets: Targets) -> str:
    from gameday.guard.preview import fault_warnings
    from gameday.history.events import TargetsChosen

    plan, approval = run.plan, run.plan.approval.required or run.profile.approval.required
    dangers = [
        f"{name} is not allowed on this cluster" for name in plan.dangers() if name not in run.profile.allow_dangerous
    ]
    if why_not := plan.fault.why_not_here(run.profile.namespace, is_lab=run.profile.lab_control is not None):
        dangers.append(f"the run would be refused: {why_not}")
    touched = ", ".join(str(target.target) for target in targets)
    if (chosen := run.history().last(TargetsChosen)) and chosen.domain:
        touched += f" ({len(targets)} of the {chosen.domain.nodes} GPU nodes of {chosen.domain})"
    lines = [
        f"a dry run of {plan.name}: {plan.title}",
        f"cluster {run.profile.name} ({run.kubernetes.server}), namespace {run.profile.namespace}; nothing was changed",
        f"it would touch: {touched}",
        f"it would wait for somebody's approval: {'yes' if approval else 'no'}",
        *(f"note: {said}" for said in (*fault_warnings(run), *dangers)),
        *(f"WARNING: detector {one.detector}: {one.what}\n  {one.fix}" for one in run.record.loaded.detector_warnings),
    ]
    return "\n".join(lines)


def _guardrails(checks: list[GuardrailCheck], before: list[GuardrailCheck]) -> list[str]:
    """Return the lines about the guardrails; one line if nothing but measurements can differ from those before."""

    def said(checks: list[GuardrailCheck]) -> list[tuple[object, ...]]:
        return [(one.name, one.limit, one.measurement.ok, one.measurement.why) for one in checks]

    if said(checks) == said(before):
        return ["guardrails: as of the game-day before"]
    return ["guardrails:", *map(_guardrail, checks)]


def _guardrail(checked: GuardrailCheck) -> str:
    found = checked.measurement
    why = f" ({found.why})" if found.why else ""
    return f"  {_SAID[found.ok]:<8} {checked.name}: {found.value or 'not measured'}{why}; limit: {checked.limit}"


def _host_commands(fault: FaultParameters, target: ChosenTarget) -> list[str]:
    """Return the injector's commands on the node, as played on a model node."""
    from gameday.cli.virtual_clusters import installed_virtual_clusters

    virtual = installed_virtual_clusters()
    if virtual is None:
        return ["what the injector would do on the node: `pip install gpu-gameday-rehearsal` plays it on a model node"]
    played = virtual.on_model_node(fault, target.gpu or 0, target.before.allocatable_gpus or 8)
    lines = [f"on {target.node} the injector would, as played on a model node whose GPU and PCI ids stand for its own:"]
    return [*lines, *(f"  {what}" for what in played)]


def _print(change: PlannedChange) -> None:
    typer.echo("---")
    where = f" (node {change.node})" if change.node else ""
    _comment(f"{change.step}: {change.verb} {change.object}{where}: {change.why}")
    if change.manifest is None:
        return
    yaml = YAML()
    yaml.width = 4096
    text = io.StringIO()
    yaml.dump(change.manifest, text)
    typer.echo(text.getvalue(), nl=False)

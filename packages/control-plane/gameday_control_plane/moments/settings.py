"""The plan's settings of the control plane: put in at the start of step 2, read back, and taken back at the end."""

from __future__ import annotations

from datetime import timedelta

from gameday.cluster.lab_control import Verb, ask_lab
from gameday.errors import ControlError, KubernetesError, StepFailedError
from gameday.run.run import Run
from gameday.run.targets import Targets
from gameday_control_plane.events import FlowControlRead, FlowControlSet, HeldServersStarted, SeatsRead
from gameday_control_plane.flow_control_objects import (
    FlowControlApi,
    FlowControlKind,
    Shares,
    level_names,
    manifests,
    total_seats,
)
from gameday_control_plane.flow_control_seats import growth_for_exactly, shares_for_exactly
from gameday_control_plane.observe import nominal_seats
from gameday_control_plane.settings import ControlPlaneSettings, FlowControl
from gameday_control_plane.undos import DeleteFlowControl

ORDER = 1
# The API server reads new levels from a watch, and Prometheus scrapes it every 15 s by default.
_IN_FORCE_WITHIN = timedelta(seconds=45)
_POLL_S = 0.5
_EXISTS = 409


def fault_goes_in(run: Run, targets: Targets) -> None:
    """Create the plan's level and flow schema, and wait until every API server has exactly the wanted seats.

    Raises:
        StepFailedError: The objects exist already, or the servers do not have the wanted seats in time.
        KubernetesError: The API server refuses them.
        AdapterError: Prometheus cannot be asked.
    """
    hold_servers(run)
    wanted = ControlPlaneSettings.of(run.plan.settings).flow_control
    if wanted is None:
        return
    api = FlowControlApi(run.kubernetes)
    seats_now = nominal_seats(run)
    if not seats_now:
        raise StepFailedError(
            f"Prometheus {run.profile.prometheus.url} has no apiserver_flowcontrol_nominal_limit_seats",
            "let Prometheus scrape the API servers (docs/control-plane.md, What a cluster needs)",
        )
    shares_now = api.shares()
    try:
        total = max(total_seats(levels, shares_now) for levels in seats_now.values())
    except ValueError as error:
        raise StepFailedError(str(error), "let Prometheus scrape the API servers' own metrics") from None
    shares = _shares(wanted.seats, total, sum(shares_now.values()))
    undo = DeleteFlowControl(schema_name=wanted.name, levels=level_names(wanted, shares))
    run.intend("flow-control", f"create flow schema {wanted.name}", undo, None, run.plan.guardrails.max_duration)
    for kind, manifest in manifests(wanted, shares, run.id, run.profile.namespace):
        _create(api, kind, manifest)
    run.note(
        FlowControlSet(
            name=wanted.name, seats=wanted.seats, shares=shares.own, spare_shares=shares.spare, total_seats=total
        )
    )
    _await_seats(run, wanted, frozenset(seats_now))


def hold_servers(run: Run) -> None:
    """Hold back the servers that are to start after the fault, if an earlier run has started them.

    Raises:
        StepFailedError: The cluster is not a lab, or the lab does not do it.
    """
    _ask_servers(run, Verb.HOLD)


def fault_is_in(run: Run) -> None:
    """Start the servers that were held back. Raises StepFailedError."""
    if servers := _ask_servers(run, Verb.START):
        run.note(HeldServersStarted(servers=servers))


def _ask_servers(run: Run, verb: Verb) -> tuple[str, ...]:
    rehearsal, lab = run.plan.rehearsal, run.profile.lab_control
    if ControlPlaneSettings.of(run.plan.settings).start_held_servers is None:
        return ()
    if lab is None:
        raise StepFailedError(
            "settings.start_held_servers starts API servers, and this cluster is no lab",
            f"gameday rehearse {run.plan.name}",
        )
    servers = rehearsal.held_servers
    try:
        for server in servers:
            ask_lab(lab, verb, server)
    except ControlError as error:
        raise StepFailedError(f"the lab does not {verb} its API servers: {error}", "gameday lab status") from None
    return servers


def _shares(seats: int, total: int, others: int) -> Shares:
    """Return the shares of a new level beside others. Raises StepFailedError if none give exactly these seats."""
    if own := shares_for_exactly(seats, total=total, others=others):
        return Shares(own, spare=0)
    spare = growth_for_exactly(seats, total=total, shares=1, sum_of_shares=others + 1)
    if spare is None:
        raise StepFailedError(
            f"no number of shares gives a level exactly {seats} of {total} seats",
            "choose other settings.flow_control.seats",
        )
    return Shares(1, spare)


def note_flow_control_after(run: Run) -> None:
    """Read again how many seats the level has on each API server, and whether somebody changed what was put in.

    Raises:
        AdapterError: A server that has to be asked does not answer.
    """
    wanted, put_in = ControlPlaneSettings.of(run.plan.settings).flow_control, run.history().last(FlowControlSet)
    if wanted is None or put_in is None:
        return
    run.note(SeatsRead(phase="after", seats=_seats_of(run, wanted)))
    api, levels = FlowControlApi(run.kubernetes), level_names(wanted, Shares(put_in.shares, put_in.spare_shares))
    objects = [(FlowControlKind.SCHEMA, wanted.name), *((FlowControlKind.LEVEL, level) for level in levels)]
    changes = [api.change(kind, name, run.id) for kind, name in objects]
    run.note(FlowControlRead(changes=tuple(filter(None, changes))))


def _create(api: FlowControlApi, kind: FlowControlKind, manifest: dict[str, object]) -> None:
    try:
        api.create(kind, manifest)
    except KubernetesError as error:
        if error.status != _EXISTS:
            raise
        raise StepFailedError(
            f"the cluster has a {kind} of the plan's name already: {error.cause}",
            "kubectl get flowschemas,prioritylevelconfigurations; choose another settings.flow_control.name, or run "
            "`gameday reap` if a dead run left it",
        ) from None


def _await_seats(run: Run, wanted: FlowControl, servers: frozenset[str]) -> None:
    def in_force() -> dict[str, int] | None:
        seats = _seats_of(run, wanted)
        return seats if servers <= seats.keys() and set(seats.values()) == {wanted.seats} else None

    what = f"{wanted.seats} seats of level {wanted.name} on every API server"
    seats = run.wait(what, _IN_FORCE_WITHIN, in_force, every_s=_POLL_S)
    if seats is None:
        found = ", ".join(f"{server}: {n}" for server, n in sorted(_seats_of(run, wanted).items())) or "none is scraped"
        raise StepFailedError(
            f"the API servers do not have {what} after {_IN_FORCE_WITHIN.total_seconds():g} s ({found})",
            "are --max-requests-inflight and --max-mutating-requests-inflight the same on all of them?",
        )
    run.note(SeatsRead(phase="before", seats=seats))


def _seats_of(run: Run, wanted: FlowControl) -> dict[str, int]:
    return {server: levels[wanted.name] for server, levels in nominal_seats(run).items() if wanted.name in levels}

"""The cluster's own state: who holds it, what earlier runs left there, and what the plan may do to it."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.errors import RefusedError
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.ledger.lease import CLUSTER_LEASE, held_lease, lease_refusal
from gameday.ledger.ledger import ledger_name, stored_ledgers
from gameday.reaper.excluded_nodes import node_reasons
from gameday.reaper.packages import check_packages
from gameday.run.run import ReadOnlyRun


def check_cluster(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Check that the cluster answers, allows the plan's dangers, is not held, and was left clean.

    Raises:
        KubernetesError: The API server does not answer, or refuses a request.
    """
    identity = run.kubernetes.identity()
    yield Prerequisite("kubernetes", "answers", True, f"{identity.server}, {identity.version}")
    for name, why in run.plan.dangers().items():
        fix = f"add {name} to allow_dangerous of profile {run.profile.name}, if this cluster may bear it"
        yield Prerequisite("kubernetes", f"{name} is allowed here", name in run.profile.allow_dangerous, why, fix)
    if why_not := run.plan.fault.why_not_here(run.profile.namespace, is_lab=run.profile.lab_control is not None):
        fix = f"gameday rehearse {run.plan.name} (docs/control-plane.md, On a real cluster, and on the lab only)"
        yield Prerequisite("kubernetes", f"{run.plan.fault.type} suits this cluster", False, why_not, fix)
    try:
        check_packages(run.plan, run.kubernetes)
    except RefusedError as error:
        yield Prerequisite("kubernetes", "the reaper can undo it", False, error.why, error.hint)
    held = held_lease(run.kubernetes, CLUSTER_LEASE)
    fix = lease_refusal(held).hint if held else ""
    yield Prerequisite(
        "kubernetes", "no other game-day", held is None, str(held) if held else "nobody holds the lease", fix
    )
    ledgers = stored_ledgers(run.kubernetes)
    left_open = [(one.header.run_id, entry) for one in ledgers.ledgers for entry in one.open_entries()]
    reasons = node_reasons(run.kubernetes, [entry for _, entry in left_open])
    open_runs = dict.fromkeys(run_id for (run_id, _), why in zip(left_open, reasons, strict=True) if not why)
    left = [f"open: {', '.join(open_runs)}"] if open_runs else []
    left += [f"unreadable: {'; '.join(map(str, ledgers.unreadable_parts))}"] if ledgers.unreadable_parts else []
    fix = "gameday reap, which says what it cannot undo" if left else ""
    nothing = "only what keeps runs off single nodes" if left_open else "no ledger holds an open entry"
    yield Prerequisite("kubernetes", "nothing left to undo", not left, "; ".join(left) or nothing, fix)
    for (run_id, entry), why in zip(left_open, reasons, strict=True):
        if why:
            fix = (
                "run `gameday reap` when that is over; for a node that never comes back: "
                f"kubectl -n {run.profile.namespace} delete configmap {ledger_name(run_id)}; until then it is no target"
            )
            detail = f"{why}; run {run_id} left open: {entry.act}"
            yield Prerequisite("kubernetes", f"{entry.node} is clean", None, detail, fix)
    fix = f"take it out, then kubectl -n {run.profile.namespace} delete that configmap; until then it is no target"
    for node, why in ledgers.dirty_nodes.items():
        yield Prerequisite("kubernetes", f"{node} is clean", None, why, fix)

"""Hold the cluster for a season: its lease, the nodes its runs may break, and the order in which they begin and end.

One season or one game-day per cluster: the season holds the cluster's lease,
its runs hold leases of their nodes only. Runs are threads of one process, each
with its own Run; the main thread alone receives signals, and passes them on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from pathlib import Path

from gameday.checks.outcome import RunResult, nodes_left_quarantined
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import snapshot
from gameday.cluster.profile import ClusterProfile
from gameday.errors import AbortedError, AdapterError, KubernetesError, LeaseHeldError, RefusedError, StopRunError
from gameday.history.journal import read_history
from gameday.ledger.lease import CLUSTER_LEASE, Leases, lease_duration, lease_refusal
from gameday.reaper.excluded_nodes import reap_before_start
from gameday.reaper.histories import reap_season_member
from gameday.reaper.reap import ReapResult
from gameday.run.abort import Abort
from gameday.run.record import HISTORY_FILE
from gameday.run.targets import judges_running_pods, why_unfit
from gameday.runs.assignment import FitNode, RunQueue, seeded_order
from gameday.runs.plans import ChosenPlan
from gameday.runs.season_record import Assignment, DirtyNode
from gameday.values.nodes import NodeRole
from gameday.values.results import Cleanliness

# Pause between looks for a signal: also runs that were just opening when it came must get it.
_PASSED_ON_WITHIN_S = 0.2
_SAID_CHARACTERS = 200
# Most nodes that are looked at and turn out unfit; after that, the cluster is the problem and not the choice.
_UNFIT_AT_MOST = 20


class OpenSeason:
    """An open season: the cluster's lease is held."""

    def __init__(self, id: str, kubernetes: Kubernetes, abort: Abort, dirty_nodes: Collection[str] = ()) -> None:
        """Open a season. `dirty_nodes` still have something that a dead run left, and wait for a person."""
        self.id = id
        self.kubernetes = kubernetes
        self.abort = abort
        self.dirty_nodes = dirty_nodes
        self.late: list[str] = []
        """Runs of a random season that got their turn too late for its budget."""
        self.taken_out: list[DirtyNode] = []
        """Nodes that a guest left dirty meanwhile."""
        self.died: set[str] = set()
        """Runs that did not end by themselves; their histories now say what was undone for them."""

    @property
    def stopped(self) -> str:
        """The reason why no further run may begin; empty while they may."""
        return str(self.abort.requested or "")


@contextmanager
def open_season(
    id: str,
    profile: ClusterProfile,
    on_reaped: Callable[[ReapResult], object],
    chosen: Sequence[ChosenPlan] = (),
) -> Iterator[OpenSeason]:
    """Hold the cluster's lease until the block ends; SIGINT and SIGTERM ask the season's runs to stop.

    Args:
        id: The season's name.
        profile: The cluster.
        on_reaped: Gets what was undone of dead runs, even if that keeps the season from beginning.
        chosen: The plans; the lease has to outlast their faults.

    Raises:
        RefusedError: Another run or season holds it, or the API server cannot be asked.
    """
    try:
        kubernetes, abort = Kubernetes(profile), Abort()
    except AdapterError as error:
        raise RefusedError(f"{error.url}: {error.cause}", error.hint) from None
    outages = [plan.fault.api_server_away_for for one in chosen for plan in one.played]
    lasts = lease_duration(profile.lease_duration_s, max(outages, default=timedelta()))
    leases = Leases(kubernetes, id, lambda why: abort.request("guard", why), lasts, abort.sleep)
    with abort.on_signals():
        try:
            leases.acquire(CLUSTER_LEASE)
            leases.keep_renewing()
            yield OpenSeason(id, kubernetes, abort, reap_before_start(kubernetes, id, on_reaped))
        except LeaseHeldError as error:
            raise lease_refusal(error) from None
        except AdapterError as error:
            raise RefusedError(str(error), error.hint) from None
        except AbortedError as error:
            raise RefusedError(f"stopped: {error.why}") from None
        finally:
            leases.release()
            kubernetes.close()


def fit_nodes(season: OpenSeason, chosen: Sequence[ChosenPlan], seed: int, at_least: int = 0) -> list[FitNode]:
    """Return as many fit opted-in nodes as the plans need together, in the seed's order, if there are so many.

    `at_least` are returned of each kind of node, if there are so many, however few the plans need.

    Nodes are listed once for each of the plans' selectors. Each node that is looked at is read once, with its pods if a
    plan judges those. Raises KubernetesError.
    """
    kubernetes = season.kubernetes
    ask_pods = any(judges_running_pods(plan) for one in chosen for plan in one.played)
    wanted: Counter[tuple[NodeRole, tuple[tuple[str, str], ...]]] = Counter()
    for one in chosen:
        selector = tuple(sorted(one.plan.targets.selector.items()))
        wanted[one.plan.fault.runs_on, selector] += one.plan.targets.nodes
    looked_at: dict[tuple[NodeRole, str], FitNode | None] = {}
    named = {name for one in chosen for name in one.plan.targets.names}
    for (role, selector), needed in sorted(wanted.items()):
        count = max(needed, at_least)
        key, _, value = kubernetes.profile.required_label(role).partition("=")
        listed = kubernetes.candidates({key: value, **dict(selector)})
        order = seeded_order([candidate.name for candidate in listed], seed)
        fit = turned_down = 0
        for name in dict.fromkeys([*sorted(named & set(order)), *order]):
            if (fit >= count and name not in named) or turned_down > _UNFIT_AT_MOST:
                break
            if (role, name) not in looked_at:
                dirty = name in season.dirty_nodes
                looked_at[role, name] = None if dirty else _fit_node(kubernetes, name, role, ask_pods=ask_pods)
            fit, turned_down = (fit + 1, turned_down) if looked_at[role, name] else (fit, turned_down + 1)
    return [node for node in looked_at.values() if node]


def _fit_node(kubernetes: Kubernetes, name: str, role: NodeRole, *, ask_pods: bool) -> FitNode | None:
    """Return the node if it can be a target; None for one that is gone or unfit."""
    try:
        seen = snapshot(kubernetes.node(name))
    except KubernetesError as error:
        if error.status != 404:
            raise
        return None
    profile = kubernetes.profile
    key, _, value = profile.required_label(role).partition("=")
    if why_unfit(seen, {key: value}, profile.quarantine_taint_keys, profile.ordinary_taints(role)):
        return None
    return FitNode(name, seen.labels, bool(ask_pods and kubernetes.gpu_pods(name)), role)


def run_all(
    season: OpenSeason, waiting: RunQueue, at_once: int, play: Callable[[Assignment], RunResult], reports: Path
) -> None:
    """Play every run, as many at the same time as may, until all have ended; their folders hold the results.

    What a run left that died is undone at once, and the others go on. No further run begins once the season is
    stopped: by a signal, by the loss of its lease, by a run after which the cluster is not provably clean, or by one
    that ended without a result. Those under way then stop, and undo. In a rehearsal with a guest, where the cluster
    ends with the season, a quarantine that is left takes only its nodes out of the season.
    """
    running: dict[Future[Cleanliness], Assignment] = {}
    to_the_end = partial(_play_to_the_end, season, play, reports)
    clock = season.kubernetes.clock
    began_s = clock.boottime()
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="run") as threads:
        while True:
            if not season.stopped:
                # Each thread gets the flow run's context, so that Prefect files its run under the season.
                due = waiting.startable(clock.boottime() - began_s)
                running |= {threads.submit(copy_context().run, to_the_end, one): one for one in due}
            if not running:
                if season.stopped or not waiting.waits_for_a_time:
                    season.late = waiting.late
                    return
                with suppress(StopRunError):  # the loop's next turn finds out why
                    season.abort.sleep(_PASSED_ON_WITHIN_S)
                continue
            done, _ = wait(running, _PASSED_ON_WITHIN_S, FIRST_COMPLETED)
            for future in done:
                place = running.pop(future)
                waiting.ended(place.run_id)
                if dirty := _left_by_guest(season, place, future, reports):
                    season.taken_out += dirty
                    waiting.take_out([one.node for one in dirty])
                else:
                    _stop_the_line(season, place, future)
            season.abort.forward_to_other_runs()


def _play_to_the_end(
    season: OpenSeason, play: Callable[[Assignment], RunResult], reports: Path, place: Assignment
) -> Cleanliness:
    """Play the run, reap it unless it ends proved clean or dirty, and return the cluster's state after it."""
    try:
        left = play(place).cleanliness
    except Exception:
        season.died.add(place.run_id)
        reap_season_member(season.kubernetes, place.run_id, place.reports(reports))
        raise
    if left is not Cleanliness.UNKNOWN:
        return left
    season.died.add(place.run_id)
    return reap_season_member(season.kubernetes, place.run_id, place.reports(reports))


def _left_by_guest(
    season: OpenSeason, place: Assignment, future: Future[Cleanliness], reports: Path
) -> list[DirtyNode]:
    """Return the nodes that a run left quarantined beside a guest; none if it left anything else as well."""
    if season.kubernetes.profile.guest is None or future.exception() or future.result() is not Cleanliness.DIRTY:
        return []
    try:
        history = read_history(place.reports(reports) / place.run_id / HISTORY_FILE)
    except OSError:
        return []
    return [
        DirtyNode(node=node, run_id=place.run_id, plan=place.plan) for node in sorted(nodes_left_quarantined(history))
    ]


def _stop_the_line(season: OpenSeason, place: Assignment, future: Future[Cleanliness]) -> None:
    error = future.exception()
    if error is not None:
        said = next(iter(str(error).splitlines()), "")[:_SAID_CHARACTERS]
        season.abort.request("guard", f"run {place.run_id} ({place.plan}) broke off: {type(error).__name__}: {said}")
    elif (left := future.result()) is not Cleanliness.CLEAN:
        season.abort.request("guard", f"after run {place.run_id} ({place.plan}) the cluster is {left}")

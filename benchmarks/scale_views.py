"""The reads of game-days and seasons on an API server with very many Node objects, behind which no kubelet runs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.node_health import Process
from benchmarks.scale_figures import Figure, in_a_child
from benchmarks.seeded_nodes import seed_nodes
from gameday.cluster.profile import ClusterProfile, Endpoint
from gameday.cluster.watch import Follower
from gameday.guard.observation import Observation
from gameday.guard.read_only_run import choose_and_follow, read_only_run
from gameday.health.episodes.node import node_seen
from gameday.health.model import Taint
from gameday.run.abort import Abort
from gameday.run.run import ReadOnlyRun
from gameday.run.successor import PoolWatch
from gameday.runs.draw import DRAWN_FROM, draw, plans_to_draw
from gameday.runs.plans import read_plan
from gameday.runs.play import OpenSeason, fit_nodes
from gameday.runs.season_record import RandomSettings

_SYNCED_WITHIN_S = 300.0
_POOL = {"nvidia.com/gpu.present": "true"}
_OUR_TAINT = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")
_DRAWN = RandomSettings(budget=timedelta(hours=8), mean_gap=timedelta(minutes=1))
_PLAN = "gpu-fell-off-the-bus"
View = Callable[[ReadOnlyRun], str]


def view_figures(nodes: int) -> Iterator[Figure]:
    """Yield what each view of a cluster of so many nodes asks of the API server, and what it takes."""
    pages = -(-nodes // 500)
    views: list[tuple[str, str, View]] = [
        ("a page of candidates", "1 request, 75 KB", _page),
        ("a game-day's target, and the guardrails' looks at pool and domain", "a few requests", _targets),
        ("gameday fleet: the whole pool", f"{pages} requests, {nodes * 160 / 1e6:.0f} MB", _whole_pool),
        ("a random season of 8 hours is drawn", "some hundred requests", _season),
        ("nodes_and_pods_stay: every node", "", _readiness),
        ("hands-off: the pool, for the node in the target's place", "", _successor),
        ("the repairer's watch of all nodes", "", _repairer),
    ]
    with _api_server(nodes) as kubeconfig:
        for what, on_paper, view in views:
            cost = in_a_child(_look, kubeconfig, _PLAN, view)
            yield Figure(what, on_paper, f"{cost.answer}; {cost}")
        cost = in_a_child(_look, kubeconfig, "rack-loses-power", _targets)
        yield Figure("the same with targets.domain: a rack", "2 lists of names, 2 reads more", f"{cost.answer}; {cost}")


@contextmanager
def _api_server(nodes: int) -> Iterator[Path]:
    """Serve so many nodes until the block ends; yield the administrator's kubeconfig."""
    with tempfile.TemporaryDirectory(prefix="gameday-scale-") as folder:
        seed_nodes(Path(folder), [f"gpu-node-{number:05d}" for number in range(nodes)])
        server = Process("kubesim.apiserver", "--data-dir", folder)
        server.start()
        try:
            yield Path(server.ready["kubeconfig"])
        finally:
            server.kill()


def _profile(kubeconfig: Path) -> ClusterProfile:
    nobody = Endpoint(url="http://127.0.0.1:9")
    return ClusterProfile(kubeconfig=kubeconfig, prometheus=nobody, alertmanager=nobody, loki=nobody)


def _look(kubeconfig: Path, plan: str, view: View) -> str:
    profile = _profile(kubeconfig)
    with read_only_run("scale", read_plan(plan, (), profile)[0].loaded, profile) as run:
        said = view(run)
        cost = run.kubernetes.counter.cost()
    return f"{said}: {cost.requests} requests, {cost.bytes_received / 1e6:.2f} MB"


def _page(run: ReadOnlyRun) -> str:
    return f"{len(run.kubernetes.candidates(_POOL))} nodes"


def _whole_pool(run: ReadOnlyRun) -> str:
    return f"{len(run.kubernetes.all_candidates(_POOL))} nodes"


def _targets(run: ReadOnlyRun) -> str:
    targets = choose_and_follow(run)
    observation = Observation(run, tuple(chosen.target for chosen in targets))
    domain = targets[0].before.labels[run.profile.guardrails.topology_label]
    looked_at = len(observation.pool), len(observation.nodes_in_domain(domain))
    return f"{len(targets)} chosen, {looked_at[0]} of the pool and {looked_at[1]} of the domain looked at"


def _season(run: ReadOnlyRun) -> str:
    chosen, _ = plans_to_draw((), cluster=run.profile, at_once=4, budget=_DRAWN.budget)
    nodes = fit_nodes(OpenSeason("scale", run.kubernetes, Abort(), {}), chosen, 1, DRAWN_FROM)
    runs, not_placed = draw("scale", chosen, nodes, _DRAWN, 1, run.profile.guardrails)
    return f"{len(runs)} game-days of {len(chosen)} plans on {len(nodes)} nodes, {len(not_placed)} not placed"


def _readiness(run: ReadOnlyRun) -> str:
    return f"{len(run.kubernetes.readiness_of_nodes())} nodes"


def _successor(run: ReadOnlyRun) -> str:
    watch = PoolWatch(run.kubernetes, _POOL, datetime.now(UTC))
    watch._follower.require_synced(_SYNCED_WITHIN_S)
    found = len(watch.candidates())
    watch.stop()
    return f"{found} newer nodes"


def _repairer(run: ReadOnlyRun) -> str:
    began = time.monotonic()
    seen = partial(node_seen, taint=_OUR_TAINT, quarantine_keys=())
    with Follower(run.kubernetes.core.list_node, None, seen) as nodes:
        nodes.require_synced(_SYNCED_WITHIN_S)
        return f"{len(nodes.objects())} nodes known after {time.monotonic() - began:.1f} s"

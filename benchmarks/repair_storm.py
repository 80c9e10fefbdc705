"""A storm of faults: from one Xid in the kernel logs of many nodes at once until the last node is back in service.

A whole rehearsal's cluster repairs itself: node-health controller, repairer, Prefect, a process of the agent for each
reboot and each QA. Its policy lets `--at-once` nodes be under repair, and its detector's brake is set aside. A node is
back when it is without our taint and our label, Ready, and offers all its GPUs; a watch in this process dates it.

First single nodes fail one after the other, as soon as all training runs. The ladder allows the storm the time of one
of them for every `--at-once` nodes: that is what the storm is compared with.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.storm_policy import write_storm_policy
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import load_profile
from gameday.cluster.watch import Follower
from gameday.health.api import Api
from gameday.health.episodes import DEFAULT_TAINT
from gameday.health.episodes.api import RepairApi
from gameday.health.episodes.model import State
from gameday.health.episodes.node import NodeSeen
from gameday.health.episodes.status import StatusRow, status
from gameday.health.episodes.work import Settings
from gameday.health.model import Taint
from gameday.health.policy_files import load_policy
from gameday.host.virtual import VirtualHost
from gameday.rehearsal.blueprint import Blueprint, Detector, Size
from gameday.rehearsal.children import cpu_seconds
from gameday.rehearsal.cluster import RehearsalCluster
from gameday.rehearsal.seed import seeding
from gameday.xid.lines import format_xid

_ALONE = 3
_ALONE_WITHIN_S = 120.0
_WRITERS = 32
_JOBS = "/apis/batch/v1/namespaces/training/jobs"
_PROCESSES = ("repair", "prefect", "node-health", "apiserver", "controllers", "nodes", "logstore", "prometheus")
_UNDER_REPAIR = frozenset(str(state) for state in State if state.is_repair)


@dataclass
class Course:
    """The moments of one node's way out of service and back, as the watch shows them."""

    tainted: float | None = None
    withheld: float | None = None
    """The first mark that its repair has to wait."""
    begun: float | None = None
    """The first sign of its repair."""
    back: float | None = None

    @property
    def repair_s(self) -> float | None:
        """Seconds from the first sign of the repair until the node is back; None before."""
        return None if self.begun is None or self.back is None else self.back - self.begun


@dataclass
class Courses:
    """The courses of the nodes that were broken, and how many were under repair at the same time."""

    of: dict[str, Course]
    most_at_once: int = 0
    handed_over: set[str] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition)
    _under_repair: set[str] = field(default_factory=set)

    @classmethod
    def of_nodes(cls, names: Sequence[str]) -> Courses:
        """Return the courses of nodes that are still to be broken."""
        return cls({name: Course() for name in names})

    def take(self, seen: NodeSeen, at: float) -> None:
        """Note one state of a node; a node that reboots is under repair, whatever its label says."""
        course = self.of.get(seen.name)
        if course is None:
            return
        with self.changed:
            is_under_repair = seen.state in _UNDER_REPAIR or not seen.ready
            (self._under_repair.add if is_under_repair else self._under_repair.discard)(seen.name)
            self.most_at_once = max(self.most_at_once, len(self._under_repair))
            if seen.ours and course.tainted is None:
                course.tainted = at
            if seen.state == State.WITHHELD and course.withheld is None:
                course.withheld = at
            if is_under_repair and course.begun is None:
                course.begun = at
            if seen.state == State.HANDED_OVER:
                self.handed_over.add(seen.name)
            is_well = not seen.ours and seen.state is None and seen.is_back(seen.gpu_capacity)
            if course.tainted is not None and is_well and course.back is None:
                course.back = at
            self.changed.notify_all()

    def away(self) -> list[str]:
        """Return the nodes that are neither back nor left to a person."""
        return [name for name, course in self.of.items() if course.back is None and name not in self.handed_over]

    def await_back(self, within_s: float) -> None:
        """Wait until none is away, `within_s` seconds at most."""
        with self.changed:
            self.changed.wait_for(lambda: not self.away(), within_s)


def allowed_s(nodes: int, at_once: int, alone_s: float) -> float:
    """Return the seconds that a ladder takes which repairs so many nodes at once, and each as fast as one alone."""
    return math.ceil(nodes / at_once) * alone_s


def occupied(courses: Courses, at_once: int, until: float) -> float:
    """Return the share of the places for repairs that were taken, from the first repair's beginning on."""
    begun = [course.begun for course in courses.of.values() if course.begun is not None]
    if not begun or until <= min(begun):
        return 0.0
    taken = sum((course.back or until) - course.begun for course in courses.of.values() if course.begun is not None)
    return taken / (at_once * (until - min(begun)))


class Site:
    """The cluster under the storm's policy, and the watch of its nodes."""

    def __init__(self, cluster: RehearsalCluster, at_once: int) -> None:
        self.cluster = cluster
        policy = write_storm_policy(cluster.folder, at_once)
        self._restart_under(policy)
        profile = load_profile(cluster.profile).model_copy(update={"kubeconfig": cluster.admin_kubeconfig})
        self.settings = Settings(profile, load_policy(str(policy)).policy.repair, Taint.parse(DEFAULT_TAINT))
        self._hosts = cluster.child("nodes").ready["hosts"]
        self._courses: tuple[Courses, ...] = ()
        self._watch = Follower(Api(cluster.admin_kubeconfig).list_node, self._changed, self.settings.seen)
        self._watch.__enter__()
        self._watch.require_synced()

    def close(self) -> None:
        self._watch.stop()

    def _restart_under(self, policy: Path) -> None:
        """Start controller and repairer again as their supervisor would with other arguments."""
        for name in ("node-health", "repair"):
            child = self.cluster.child(name)
            argv = child.argv
            if "--policy" in argv:
                del argv[argv.index("--policy") : argv.index("--policy") + 2]
            argv += ["--policy", str(policy)]
            self.cluster.restart(name)
            child.await_ready_line()

    def _changed(self, _kind: str, seen: NodeSeen) -> None:
        at = time.monotonic()
        for courses in self._courses:
            courses.take(seen, at)

    def break_nodes(self, names: Sequence[str], xid: int) -> tuple[Courses, float, float]:
        """Write an Xid into the kernel logs of all these nodes; return their courses, and begin and end of it."""
        hosts = [VirtualHost(f"{self._hosts}/{name}") for name in names]
        with ThreadPoolExecutor(_WRITERS) as pool:
            lines = [f"<3>{format_xid(xid, pci)}" for pci in pool.map(_pci_of_first, hosts)]
            courses = Courses.of_nodes(names)
            self._courses = (*self._courses, courses)
            began = time.monotonic()
            list(pool.map(VirtualHost.write_kernel_log, hosts, lines))
        return courses, began, time.monotonic()

    def rows(self) -> list[StatusRow]:
        """Return what `gameday health status` shows."""
        with closing(Kubernetes(self.settings.profile)) as kubernetes:
            return status(RepairApi(kubernetes), self.settings, datetime.now(UTC))

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time of each process up to now, and of all agents that have ended."""
        pids = {name: self.cluster.child(name).process for name in _PROCESSES}
        used = {name: cpu_seconds(process.pid) for name, process in pids.items() if process}
        nodes = pids["nodes"]
        assert nodes
        return {**used, "agents": _reaped_cpu_s(nodes.pid), "this watch": sum(os.times()[:2])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storm", type=int, default=750, help="nodes that fail at once")
    parser.add_argument("--at-once", type=int, default=20, help="nodes under repair at the same time, at most")
    parser.add_argument("--nodes", type=int, default=1010, help="nodes of the cluster, 3 or more beside the storm's")
    parser.add_argument("--xid", type=int, default=79, help="79: reboot; 48: reset of the GPU")
    parser.add_argument("--idle", action="store_true", help="nodes without training work, so that drains move nothing")
    parser.add_argument("--within", type=float, default=900, help="seconds until nodes that are not back are given up")
    options = parser.parse_args()
    if options.nodes < options.storm + _ALONE:
        parser.error(f"--nodes {options.nodes} leaves no {_ALONE} nodes beside the storm: raise it, or lower --storm")
    size = Size(nodes=options.nodes, spare=options.nodes if options.idle else 0)
    with (
        tempfile.TemporaryDirectory() as folder,
        RehearsalCluster(Blueprint(Path(folder), size, Detector.DEFAULT, repair=True)) as cluster,
        closing(Site(cluster, options.at_once)) as site,
    ):
        _await_training(cluster.admin_kubeconfig)
        names = [f"gpu-node-{number}" for number in range(1, options.nodes + 1)]
        alone_s = _measure_alone(site, names[-_ALONE:], options.xid)
        _measure_storm(site, names[: options.storm], options, alone_s)


def _await_training(kubeconfig: Path) -> None:
    """Wait until every pod of the training jobs runs: thousands that start keep the nodes' process busy."""
    jobs = Api(kubeconfig).request("GET", _JOBS)["items"]
    with seeding(kubeconfig) as seeder:
        seeder.await_training({job["metadata"]["name"]: job["spec"]["parallelism"] for job in jobs})


def _measure_alone(site: Site, names: Sequence[str], xid: int) -> float:
    took = []
    for name in names:
        courses, began, _ = site.break_nodes([name], xid)
        courses.await_back(_ALONE_WITHIN_S)
        back = courses.of[name].back
        if back is None:
            raise SystemExit(f"{name}, alone, is not back within {_ALONE_WITHIN_S:g} s: {site.rows()}")
        took.append(back - began)
    print(f"one node alone: {statistics.median(took):.1f} s ({min(took):.1f} to {max(took):.1f})", flush=True)
    return statistics.median(took)


def _measure_storm(site: Site, names: Sequence[str], options: argparse.Namespace, alone_s: float) -> None:
    before = site.cpu_s()
    courses, began, written = site.break_nodes(names, options.xid)
    courses.await_back(options.within)
    ended = time.monotonic()
    used = {name: seconds - before[name] for name, seconds in site.cpu_s().items()}
    print(f"storm of {len(names)} of {options.nodes} nodes, Xid {options.xid}, {options.at_once} at once")
    print(f"  lines written within {written - began:.2f} s")
    for line in (*_shown_times(courses, began), *_shown_ratio(courses, began, options.at_once, alone_s)):
        print(f"  {line}")
    print(f"  places for repairs taken: {occupied(courses, options.at_once, ended):.0%}")
    within = "" if courses.most_at_once <= options.at_once else ": MORE THAN ALLOWED"
    print(f"  under repair at the same time: {courses.most_at_once} at most{within}")
    for line in (*_shown_cpu(used, ended - began, courses), *_shown_rows(site.rows(), courses)):
        print(f"  {line}")


def _shown_times(courses: Courses, began: float) -> Iterator[str]:
    for word in ("tainted", "withheld", "begun", "back"):
        took = sorted(at - began for course in courses.of.values() if (at := getattr(course, word)) is not None)
        if took:
            middle = statistics.median(took)
            yield f"{word}: {len(took)}, first {took[0]:.1f} s, median {middle:.1f} s, last {took[-1]:.1f} s"
    repairs = [course.repair_s for course in courses.of.values() if course.repair_s is not None]
    if repairs:
        yield f"one repair: median {statistics.median(repairs):.1f} s, worst {max(repairs):.1f} s"


def _shown_ratio(courses: Courses, began: float, at_once: int, alone_s: float) -> Iterator[str]:
    back = [course.back for course in courses.of.values() if course.back is not None]
    if not back:
        yield "no node came back"
        return
    allowed = allowed_s(len(back), at_once, alone_s)
    ratio = (max(back) - began) / allowed
    yield f"the ladder allows {allowed:.0f} s for {len(back)} nodes; the last was back after {ratio:.2f} times that"


def _shown_cpu(used: Mapping[str, float], wall_s: float, courses: Courses) -> Iterator[str]:
    nodes = max(1, sum(course.back is not None for course in courses.of.values()))
    for name, seconds in sorted(used.items(), key=lambda item: -item[1]):
        yield f"processor time of {name}: {seconds:.1f} s, {seconds / nodes:.2f} s a node that is back"
    total, cores = sum(used.values()), os.cpu_count() or 1
    average, least_s = total / wall_s, total / cores
    yield f"processor time of all: {total:.0f} s, {average:.2f} cores; {cores} cores need {least_s:.0f} s for it"


def _shown_rows(rows: Sequence[StatusRow], courses: Courses) -> Iterator[str]:
    broken = [row for row in rows if row.node in courses.of]
    for (state, rung), count in sorted(Counter((row.state, row.rung) for row in broken).items()):
        yield f"{count} {state}, {rung}"
    missing = {name for name, course in courses.of.items() if course.back is None}
    yield f"{len(missing)} not back, {len(courses.handed_over)} of them left to a person"
    for row in [row for row in broken if row.node in missing][:10]:
        yield f"  {row.node}: {row.state}, {row.rung}; {row.next}"


def _pci_of_first(host: VirtualHost) -> str:
    return host.gpus()[0].pci_bus_id


def _reaped_cpu_s(pid: int) -> float:
    """Return the processor time of a process's children that have ended: the agents' are the nodes' process's."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")  # proc(5): cutime and cstime


if __name__ == "__main__":
    main()

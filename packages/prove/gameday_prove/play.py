"""Play the lines on the node, watch what follows, and leave nothing of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes.client.exceptions import ApiException

from gameday.cluster.json_api import CONFLICT, NOT_FOUND
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import RUN_LABEL
from gameday.cluster.pods import PodFollower, PodSeen
from gameday.detectors.models import DetectorProfile
from gameday.errors import AbortedError, AdapterError, KubernetesError, LeaseHeldError, RefusedError, StepFailedError
from gameday.history.events import Event
from gameday.history.journal import Journal
from gameday.host.shell_writer import Written, parse_output, writer_command
from gameday.ledger.entries import DeletePod, Header, object_prefix
from gameday.ledger.lease import CLUSTER_LEASE, Leases
from gameday.ledger.ledger import Ledger
from gameday.ledger.undo import undo_entry
from gameday.run.abort import Abort
from gameday.run.node_watch import NodeWatch
from gameday.values.results import Cleanliness
from gameday_prove.events import ProveAlertSeen, ProveEnded, ProveLinePlayed, ProveLineWatched, ProveLooked
from gameday_prove.judge import ALERTS, REPAIR, ProofVerdict, Word, judge, readers
from gameday_prove.lines import record_of, watch_for
from gameday_prove.monitoring import alerts_now, is_about
from gameday_prove.rights import NAMESPACE
from gameday_prove.values import Line, Posture, Surroundings

OURS = "gameday.dev/prove"
"""The label of a proof's namespace; its value is the id."""
_HAS_IMAGE = timedelta(seconds=30)
"""A pod's whole life if its image is there: it runs for two seconds."""
_PULLS_IMAGE = timedelta(minutes=3)
_AFTER_DEADLINE_S = 15.0
_ACCOUNT_WITHIN_S = 10.0
"""Time until a new namespace has its account `default`, without which admission forbids pods in it."""
_SETTLE_S = 2.0
"""Time after the last awaited sign in which a wrong act may still follow."""
_LOOK_EVERY_S = 0.2
_ALERTS_EVERY_S = 2.0
_RULE_LAG_S = 75.0
"""A scrape and an evaluation, each every 30 s as kube-prometheus-stack has it, and half of one in reserve."""
_MOST_FOR_A_RULE_S = 300.0
_GONE_WITHIN_S = 60.0


@dataclass(frozen=True)
class Order:
    """An agreed proof."""

    id: str
    around: Surroundings
    posture: Posture
    lines: tuple[Line, ...]
    image: str
    pulled: bool
    """True if the node has to pull the image first."""

    @property
    def deadline(self) -> timedelta:
        """The life of a pod, which its node ends."""
        return _PULLS_IMAGE if self.pulled else _HAS_IMAGE


def writer_pod(order: Order, line: Line) -> dict[str, Any]:
    """Return the pod that writes one line; it may use nothing but the kernel log."""
    mark = f"<6>gpu-gameday prove {order.id}.{line.number}: the next line is a test, no fault"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{object_prefix(order.id)}line-{line.number}", "labels": {RUN_LABEL: order.id}},
        "spec": {
            "nodeName": order.around.node,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "activeDeadlineSeconds": round(order.deadline.total_seconds()),
            "terminationGracePeriodSeconds": 2,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "line",
                    "image": order.image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": writer_command(mark, [record_of(line)]),
                    "securityContext": {"privileged": True, "runAsUser": 0, "runAsNonRoot": False},
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                }
            ],
        },
    }


class Player:
    """A proof, from its namespace to the end of it."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        order: Order,
        profiles: Sequence[DetectorProfile],
        journal: Journal,
        abort: Abort,
        say: Callable[[str], None],
    ) -> None:
        """Prepare it; nothing is written yet.

        Args:
            kubernetes: The cluster, with our namespace in its profile.
            order: What was agreed on.
            profiles: Profiles of the installed detectors.
            journal: The proof's history.
            abort: The ways to stop it.
            say: Prints a line of progress.
        """
        self._kubernetes, self._order, self._profiles = kubernetes, order, profiles
        self._journal, self._abort, self._say = journal, abort, say
        self._clock = kubernetes.clock
        self._ledger = Ledger(kubernetes, Header.of_this_process(order.id, "prove", self._clock.now(), None))
        self._alerts_before: set[str] = set()
        self._alerts_noted: set[tuple[str, str]] = set()
        self._alerts_asked = 0.0

    def play(self) -> None:
        """Play every line, undo it in every case, and say in the history how clean the cluster is.

        Raises:
            RefusedError: Nothing was written, or only our namespace, which is gone again.
        """
        order = self._order
        self._journal.append(ProveLooked(posture=order.posture, surroundings=order.around, lines=order.lines))
        stopped = ""
        with _namespace(self._kubernetes, order.id, self._journal) as ended:
            try:
                self._play_lines()
            except (AbortedError, StepFailedError, AdapterError) as error:
                stopped = str(error)
            ended.stopped = stopped

    def _play_lines(self) -> None:
        kubernetes, order = self._kubernetes, self._order
        with ExitStack() as stack:
            leases = Leases(kubernetes, order.id, lambda why: self._abort.request("guard", why))
            try:
                leases.acquire(CLUSTER_LEASE)
            except LeaseHeldError as error:
                raise AbortedError("guard", str(error)) from None
            stack.callback(leases.release)
            leases.keep_renewing()
            pods = stack.enter_context(PodFollower(kubernetes, order.id))
            pods.require_synced()
            nodes = NodeWatch(kubernetes, order.id, self._note)
            stack.callback(nodes.stop)
            before = nodes.look_at(order.around.node)
            if before is None:
                raise StepFailedError(f"node {order.around.node} is gone")
            nodes.follow_target(before)
            self._look_at_alerts(baseline=True)
            stack.callback(self._undo, pods)
            for line in order.lines:
                if self._out_of_service(nodes):
                    self._say(f"line {line.number} is not played: the node has left service")
                    continue
                self._play_line(line, pods)
                self._watch(line, nodes)
            if order.posture is Posture.REPAIR:
                self._await_return(nodes)

    def _note(self, event: Event) -> None:
        self._journal.append(event)

    def _play_line(self, line: Line, pods: PodFollower) -> None:
        order, pod = self._order, writer_pod(self._order, line)
        name: str = pod["metadata"]["name"]
        self._abort.check()
        self._ledger.intend(
            id=f"line-{line.number}",
            act=f"create pod {name}, which writes Xid {line.xid} into the kernel log",
            node=order.around.node,
            undo=DeletePod(pod=name),
            expires=self._clock.now() + order.deadline + timedelta(seconds=_AFTER_DEADLINE_S),
        )
        created = self._clock.now()
        self._create(pod)
        ended = self._await_end(name, pods)
        output = self._log_of(name)
        written = parse_output("\n".join(text for _, text in output))
        if not written.wrote:
            raise StepFailedError(
                f"the pod wrote nothing on {order.around.node} with image {order.image}: {_state(ended)}",
                "name an image that has /bin/sh, cat and sleep: --image",
            )
        at = [when for when, text in output if when and text.startswith("wrote ")][-1:]
        moment = min(max(at[0], created), self._clock.now()) if at else created
        self._note_line(line, written, moment)

    def _create(self, pod: dict[str, Any]) -> None:
        """Create the pod, as soon as the new namespace has its default account. Raises KubernetesError."""
        until = self._clock.monotonic() + _ACCOUNT_WITHIN_S
        while True:
            try:
                self._kubernetes.create_pod(pod)
                return
            except KubernetesError as error:
                if "serviceaccount" not in error.cause or self._clock.monotonic() > until:
                    raise
            self._abort.sleep(_LOOK_EVERY_S)

    def _note_line(self, line: Line, written: Written, at: datetime) -> None:
        missing = bool(written.missing)
        self._journal.append(
            ProveLinePlayed(line=line.number, at=at, record=written.wrote[-1], gpu=written.gpu, missing=missing)
        )
        back = "NOT found when read back" if missing else "read back"
        self._say(f"line {line.number}: Xid {line.xid} written for GPU {written.gpu}, {back}")

    def _await_end(self, name: str, pods: PodFollower) -> PodSeen | None:
        """Wait until the pod has ended, for longer than its own deadline. Raises AbortedError."""
        until = self._clock.monotonic() + self._order.deadline.total_seconds() + _AFTER_DEADLINE_S
        while (seen := pods.seen(name)) is None or not seen.ended:
            if self._clock.monotonic() > until or (seen and seen.waiting.startswith(("ErrImage", "ImagePullBackOff"))):
                break
            self._abort.sleep(_LOOK_EVERY_S)
        return seen

    def _log_of(self, name: str) -> list[tuple[datetime | None, str]]:
        """Return the lines of the pod's log with their times by the node's clock; none if it has no log."""
        try:
            with self._kubernetes.explained(f"read the log of pod {name}"):
                answer = self._kubernetes.core.read_namespaced_pod_log(
                    name, NAMESPACE, timestamps=True, limit_bytes=1 << 20, _preload_content=False
                )
                lines = answer.data.decode("utf-8", "replace").splitlines()
        except KubernetesError:
            return []
        return [(_moment(stamp), text) for stamp, _, text in (line.partition(" ") for line in lines)]

    def _watch(self, line: Line, nodes: NodeWatch) -> None:
        """Watch until every awaited sign is there, or the slowest detector has had its time. Raises AbortedError."""
        began, slowest = self._clock.monotonic(), watch_for(self._profiles, line).total_seconds()
        quiet = max((one.quiet_for.total_seconds() for one in self._profiles), default=_SETTLE_S)
        self._say(f"line {line.number}: watching for up to {slowest:.0f} s, longer for an alert")
        settled: float | None = None
        while True:
            self._look_at_alerts()
            spent, verdicts = self._clock.monotonic() - began, self._verdicts(line)
            if spent >= self._longest_watch(line, verdicts):
                break
            if not self._ready(nodes):
                raise AbortedError("guard", f"node {self._order.around.node} is no longer Ready")
            if _all_came(verdicts):
                settled = settled or spent
                if spent >= settled + _SETTLE_S and (self._out_of_service(nodes) or spent >= quiet):
                    break
            self._abort.sleep(_LOOK_EVERY_S)
        self._look_at_alerts(now=True)
        self._journal.append(ProveLineWatched(line=line.number, seconds=self._clock.monotonic() - began))

    def _longest_watch(self, line: Line, verdicts: Sequence[ProofVerdict]) -> float:
        """Return the seconds for the slowest detector, and for a rule once there is something that it reads."""
        slowest, prometheus = watch_for(self._profiles, line).total_seconds(), self._order.around.prometheus
        if prometheus is None or not any(one.who == ALERTS and one.word is Word.MISSED for one in verdicts):
            return slowest
        rules = readers(prometheus.rules, self._profiles, line.xid)
        soonest = min(rule.hold_s + _RULE_LAG_S for rule in rules if not rule.never)
        return max(slowest, min(soonest, _MOST_FOR_A_RULE_S))

    def _verdicts(self, line: Line) -> list[ProofVerdict]:
        return judge(self._journal.history(), {one.name: one for one in self._profiles}).of_line(line.number)

    def _out_of_service(self, nodes: NodeWatch) -> bool:
        now = nodes.now(self._order.around.node)
        before = nodes.before(self._order.around.node)
        return now is None or now.unschedulable or bool(set(now.taints) - set(before.taints))

    def _ready(self, nodes: NodeWatch) -> bool:
        if self._order.posture is Posture.REPAIR:  # a repair may reboot it
            return True
        now = nodes.now(self._order.around.node)
        return now is not None and now.conditions.get("Ready") == "True"

    def _await_return(self, nodes: NodeWatch) -> None:
        """Wait until the node is in service again, for as long as the slowest repair may take."""
        longest = max((one.repairs.hops.longest for one in self._profiles if one.repairs), default=timedelta())
        if not self._out_of_service(nodes) or not longest:
            return
        self._say(f"waiting for the cluster to return the node, up to {longest}")
        until = self._clock.monotonic() + longest.total_seconds()
        while self._out_of_service(nodes) and self._clock.monotonic() < until:
            self._look_at_alerts()
            self._abort.sleep(1.0)

    def _look_at_alerts(self, *, baseline: bool = False, now: bool = False) -> None:
        """Note alerts about the node that were not there before; they are one sign among others."""
        prometheus = self._order.around.prometheus
        if prometheus is None or (self._clock.monotonic() - self._alerts_asked < _ALERTS_EVERY_S and not now):
            return
        self._alerts_asked = self._clock.monotonic()
        try:
            alerts = [one for one in alerts_now(self._kubernetes, prometheus) if is_about(one, self._order.around.node)]
        except AdapterError:
            return
        if baseline:
            self._alerts_before = {str(sorted(one.labels.items())) for one in alerts}
            return
        for one in alerts:
            key = str(sorted(one.labels.items()))
            if key not in self._alerts_before and (key, one.state) not in self._alerts_noted:
                self._alerts_noted.add((key, one.state))
                at = self._clock.now()
                self._journal.append(ProveAlertSeen(alert=one.name, state=one.state, at=at))

    def _undo(self, pods: PodFollower) -> None:
        """Delete our pods, and the ledger once each is seen gone; what fails stays for `--clean`."""
        for entry in self._ledger.open_entries():
            done = undo_entry(self._kubernetes, entry, self._order.id, pods, after_signal=self._abort.by_operator)
            with suppress(AdapterError):  # the namespace goes next, and takes the ledger with it
                self._ledger.settle(entry, done.cleanliness, "flow", done.evidence)


@dataclass
class _End:
    """The end of a proof, as far as it is known in its namespace."""

    stopped: str = ""


@contextmanager
def _namespace(kubernetes: Kubernetes, id: str, journal: Journal) -> Iterator[_End]:
    """Have a namespace of our own for the block; note in the history whether it is gone.

    Raises:
        RefusedError: It cannot be made.
    """
    labels = {OURS: id, "pod-security.kubernetes.io/enforce": "privileged"}
    try:
        with kubernetes.explained(f"create namespace {NAMESPACE}"):
            kubernetes.core.create_namespace({"metadata": {"name": NAMESPACE, "labels": labels}})
    except KubernetesError as error:
        if error.status == CONFLICT:
            raise RefusedError(
                f"namespace {NAMESPACE} is there: another proof runs, or one was killed", "gameday prove --clean"
            ) from None
        raise RefusedError(str(error), "see `gameday prove --rights` for what a proof needs") from None
    end = _End()
    try:
        yield end
    finally:
        cleanliness, evidence = remove_namespace(kubernetes)
        journal.append(ProveEnded(cleanliness=cleanliness, evidence=evidence, stopped=end.stopped))


def remove_namespace(kubernetes: Kubernetes) -> tuple[Cleanliness, tuple[str, ...]]:
    """Delete our namespace with all that is in it, and wait until it is gone.

    Returns:
        How clean the cluster is, and what shows it.
    """
    core, clock = kubernetes.core, kubernetes.clock
    until = clock.monotonic() + _GONE_WITHIN_S
    try:
        with kubernetes.explained(f"delete namespace {NAMESPACE}"):
            try:
                found = core.read_namespace(NAMESPACE)
                if OURS not in (found.metadata.labels or {}):
                    return Cleanliness.UNKNOWN, (f"namespace {NAMESPACE} is not ours: it lacks the label {OURS}",)
                core.delete_namespace(NAMESPACE)
                while clock.monotonic() < until:
                    core.read_namespace(NAMESPACE)
                    clock.sleep(_LOOK_EVERY_S)
            except ApiException as error:
                if error.status == NOT_FOUND:
                    return Cleanliness.CLEAN, (f"namespace {NAMESPACE} is gone, with all that was in it",)
                raise
    except KubernetesError as error:
        return Cleanliness.UNKNOWN, (str(error), f"kubectl delete namespace {NAMESPACE}")
    return Cleanliness.DIRTY, (f"namespace {NAMESPACE} is still ending: kubectl get namespace {NAMESPACE} -o yaml",)


def _all_came(verdicts: Sequence[ProofVerdict]) -> bool:
    """Return True if nothing more is awaited of any detector or rule, by the verdicts on a line."""
    awaited = [one for one in verdicts if one.who != REPAIR]
    # A detector that is blind for a reason which is only suspected may still show something.
    blind = any(one.word is Word.BLIND and one.is_red and one.who != ALERTS for one in awaited)
    return not (blind or any(one.word is Word.MISSED for one in awaited))


def _state(pod: PodSeen | None) -> str:
    if pod is None:
        return "it was never seen"
    return " ".join(filter(None, (pod.phase, pod.reason, pod.waiting, pod.termination))) or "it ended without a word"


def _moment(stamp: str) -> datetime | None:
    """Return a kubelet's time; Python reads six digits of a fraction, and a kubelet writes nine."""
    head, dot, rest = stamp.rstrip("Z").partition(".")
    try:
        return datetime.fromisoformat(head + (dot + rest[:6].ljust(6, "0") if dot else "")).replace(tzinfo=UTC)
    except ValueError:
        return None

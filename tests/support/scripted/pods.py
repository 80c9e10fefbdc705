"""A scheduler, a job controller and a kubelet for every node, in one script: the lives of the cluster's pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gameday.agent.task import InjectTask, RemediateTask, Task, UndoTask
from gameday.cluster.manifests import ROLE_LABEL
from gameday.remediations.registry import remediation_for
from kubesim.apiserver.store import Event, Stored
from kubesim.clock import rfc3339
from kubesim.controllers.job_controller import pod_for
from kubesim.controllers.placement import ClusterUsage, Demand
from kubesim.controllers.requests import pod_requests
from tests.support.scripted import agents
from tests.support.scripted.api_server import InMemoryApiServer
from tests.support.scripted.detector import Detector
from tests.support.scripted.happenings import Happenings
from tests.support.scripted.script import AgentScript, Script
from tests.support.scripted.world import World

Json = dict[str, Any]
# Kubelet's own words.
_DEADLINE = "DeadlineExceeded"
_COMMAND = "probe"
"""Role of the pods that run an owner's command, and end with it."""
_ORPHANED_S = 60.0
"""The controller manager's nodeQuarantineTime and gcCheckPeriod (docs of its podgc): 40 s, and looks every 20 s."""
_GONE_S = 0.05
"""From a container's end to the pod's deletion; our choice."""


@dataclass(frozen=True)
class Life:
    """A pod that a node runs."""

    namespace: str
    name: str
    node: str
    role: str
    task: Task | None
    worked_at: datetime | None = None
    """When the agent had done what it was sent for."""
    is_stopping: bool = False


class Pods:
    """The lives of all pods, by uid."""

    def __init__(
        self,
        script: Script,
        world: World,
        server: InMemoryApiServer,
        happenings: Happenings,
        detector: Detector,
        now: Callable[[], datetime],
    ) -> None:
        self._script = script
        self._world = world
        self._server = server
        self._happenings = happenings
        self._detector = detector
        self._now = now
        self.lives: dict[str, Life] = {}
        for act in (
            self.schedule, self.start, self.work, self.stop, self.end, self.remove, self.make_pods, self.overrun,
            self.end_hold, self.boot, self.collect, self.print_step,
        ):  # fmt: skip
            happenings.act(act)
        server.observe(self.changed)

    def printed(self, uid: str) -> str:
        """Return what a pod has printed."""
        return "".join(f"{line}\n" for line in self._world.printed.get(uid, ()))

    # What the API server brings

    def changed(self, key: str, event: Event) -> None:
        """React to a change of an object."""
        if key == "pods":
            self._pod_changed(event)
        elif key == "jobs.batch" and event.type == "ADDED":
            self._happenings.after(self._script.scheduled_s, self.make_pods, event.new.namespace, event.new.name)
        elif key == "nodes" and event.type == "DELETED":
            self._node_is_gone(event.new.name)
        elif key == "nodes":
            self._schedule_waiting()
            if event.type == "MODIFIED" and event.old and _is_quarantined(event.old) and not _is_quarantined(event.new):
                self._detector.node_is_back(event.new.name)

    def _pod_changed(self, event: Event) -> None:
        pod = event.new.obj
        uid = pod["metadata"]["uid"]
        if event.type == "DELETED":
            self.lives.pop(uid, None)
            self._schedule_waiting()
        elif "deletionTimestamp" in pod["metadata"]:
            if event.old is None or "deletionTimestamp" not in event.old.obj["metadata"]:
                self._stop_deleted(uid, pod)
        elif event.type == "ADDED" and not pod["spec"].get("nodeName"):
            self._happenings.after(self._script.scheduled_s, self.schedule, uid)
        elif pod["spec"].get("nodeName") and (event.old is None or not event.old.obj["spec"].get("nodeName")):
            role = (pod["metadata"].get("labels") or {}).get(ROLE_LABEL, "")
            if pod.get("status", {}).get("phase") != "Running":
                self._happenings.after(self._script.agent(role).starts_s, self.start, uid)

    def _stop_deleted(self, uid: str, pod: Json) -> None:
        life = self.lives.get(uid)
        if life is None or pod["spec"].get("nodeName") in self._world.down:
            # A kubelet that has not begun only takes the pod away; one that is down does it when it is up again.
            if life is None and pod["spec"].get("nodeName") not in self._world.down:
                self._happenings.after(_GONE_S, self.remove, uid)
            return
        self._happenings.after(self._script.latency_s, self.stop, uid, "sigterm", "")

    def _schedule_waiting(self) -> None:
        for stored in self._server.store["pods"].all():
            pod = stored.obj
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                self._happenings.after(self._script.scheduled_s, self.schedule, pod["metadata"]["uid"])

    # Scheduling

    def make_pods(self, namespace: str, name: str) -> None:
        """Create the pods of a job."""
        job = self._server.store.get("jobs.batch", namespace, name)
        if job is not None:
            for _ in range(job.obj["spec"].get("parallelism", 1)):
                pod = pod_for(job.fresh())
                del pod["metadata"]["finalizers"]  # for the books of a job that nobody keeps here
                self._server.administrator("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    def schedule(self, uid: str) -> None:
        """Bind a pod to the node that kube-scheduler would choose, or say why none fits."""
        stored = self._find(uid)
        if stored is None or stored.obj["spec"].get("nodeName") or "deletionTimestamp" in stored.obj["metadata"]:
            return
        usage = ClusterUsage()
        for node in self._server.store["nodes"].all():
            usage.set_node(node.obj)
        for other in self._server.store["pods"].all():
            held = other.obj["spec"].get("nodeName")
            if held and other.obj.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                usage.hold(other.obj["metadata"]["uid"], held, pod_requests(other.obj["spec"]))
        node_name, why_not = usage.choose(Demand(stored.obj["spec"]))
        condition = {"type": "PodScheduled", "status": "True" if node_name else "False"}
        if node_name is None:
            condition |= {"reason": "Unschedulable", "message": why_not}
        status = {**stored.obj.get("status", {}), "conditions": [condition]}
        if node_name is not None or status != stored.obj.get("status"):
            spec = {**stored.obj["spec"], "nodeName": node_name} if node_name else stored.obj["spec"]
            self._put(stored, status, spec)

    # A kubelet

    def start(self, uid: str) -> None:
        """Let a pod's containers run."""
        stored = self._find(uid)
        if stored is None or uid in self.lives or "deletionTimestamp" in stored.obj["metadata"]:
            return
        pod, node = stored.obj, stored.obj["spec"]["nodeName"]
        if node in self._world.down or self._server.store.get("nodes", "", node) is None:
            return
        role = (pod["metadata"].get("labels") or {}).get(ROLE_LABEL, "")
        life = self.lives[uid] = Life(stored.namespace, stored.name, node, role, agents.task_in(pod))
        self._put(stored, _running(pod, self._now(), ready=life.task is None))
        if life.task is not None or role == _COMMAND:
            self._happenings.after(self._agent(life).works_s, self.work, uid)
        self._begin_steps(uid, pod)
        if deadline := pod["spec"].get("activeDeadlineSeconds"):
            self._happenings.after(float(deadline), self.overrun, uid)

    def work(self, uid: str) -> None:
        """Let an agent do what it was sent for: print its notes, put the fault in, become Ready or end."""
        life, stored = self.lives.get(uid), self._find(uid)
        if life is None or stored is None or life.is_stopping:
            return
        script, now = self._agent(life), self._now()
        if life.task is None:
            self.end(uid, "Failed" if script.error else "Succeeded", "", "")
            return
        if script.is_killed and not agents.holds(life.task):
            self.end(uid, "Failed", "", "")
            return
        life = self.lives[uid] = replace(life, worked_at=now)
        if not script.error:
            measured = self._script.measured[self._world.has_fault(life.node)]
            lines = tuple(note.model_dump_json() for note in agents.notes(life.task, script, now, measured))
            self._world.printed[uid] = (*self._world.printed.get(uid, ()), *lines)
        if isinstance(life.task, UndoTask) and script.cleanliness == "clean" and not script.error:
            self._take_out(life.node, life.name.removesuffix("-undo"))
        if not agents.holds(life.task) or script.error:
            self._finish_work(uid, life, script)
            return
        if isinstance(life.task, InjectTask):
            self._world.faults_in.add((life.node, life.name))
            self._detector.fault_is_in(life.node, agents.kernel_line(life.task))
            self._happenings.after(life.task.hold_s, self.end_hold, uid)
        if script.is_killed:
            self._happenings.after(script.works_s, self.end, uid, "Failed", "", "")
        self._put(stored, _running(stored.obj, now, ready=True))

    def _finish_work(self, uid: str, life: Life, script: AgentScript) -> None:
        assert life.task is not None
        if line := agents.kernel_line(life.task):
            self._happenings.after(self._script.line_arrives[0] if self._script.line_arrives else 0.1,
                                   self._detector.line_arrives, life.node, line)  # fmt: skip
        message = agents.result(life.task, script, life.worked_at, "done").model_dump_json()
        if isinstance(life.task, RemediateTask) and remediation_for(life.task.action).takes_node_down:
            self.lives[uid] = replace(life, is_stopping=True)
            self._go_down(life.node, uid, message)
            return
        self.end(uid, "Failed" if script.error else "Succeeded", "", message)
        if isinstance(life.task, RemediateTask) and not script.error:
            self._detector.node_is_repaired(life.node)

    def end_hold(self, uid: str) -> None:
        """End an agent whose hold is over."""
        self.stop(uid, "hold", "")

    def overrun(self, uid: str) -> None:
        """End a pod at its own deadline: the dead-man's switch."""
        self.stop(uid, "sigterm", _DEADLINE)

    def stop(self, uid: str, ended_by: agents.EndedBy, reason: str) -> None:
        """Ask a pod's containers to end; an agent takes out first what it put in."""
        life = self.lives.get(uid)
        if life is None or life.is_stopping or life.node in self._world.down:
            return
        self.lives[uid] = replace(life, is_stopping=True)
        phase, script = "Failed" if reason else "Succeeded", self._agent(life)
        if script.is_killed:
            self.end(uid, "Failed", reason, "")
            return
        message = ""
        if life.task is not None:
            message = agents.result(life.task, script, life.worked_at, ended_by).model_dump_json()
        self._happenings.after(script.undoes_s, self.end, uid, phase, reason, message)

    def end(self, uid: str, phase: str, reason: str, message: str) -> None:
        """Write how a pod ended; what an agent read back as clean is out."""
        life, stored = self.lives.pop(uid, None), self._find(uid)
        if life is None:
            return
        script = self._agent(life)
        if isinstance(life.task, InjectTask) and message and script.cleanliness == "clean":
            self._take_out(life.node, life.name)
        if stored is None:
            return
        self._put(stored, _ended(stored.obj, self._now(), phase, reason, message))
        if "deletionTimestamp" in stored.obj["metadata"]:
            self._happenings.after(_GONE_S, self.remove, uid)

    def remove(self, uid: str) -> None:
        """Take a pod whose containers have ended out of the API."""
        stored = self._find(uid)
        if stored is not None and "deletionTimestamp" in stored.obj["metadata"]:
            self._server.store.delete("pods", stored.namespace, stored.name)

    # Training

    def begin_steps(self) -> None:
        """Let the training that runs already print its steps."""
        for stored in self._server.store["pods"].all():
            if stored.obj["metadata"]["uid"] in self.lives:
                self._begin_steps(stored.obj["metadata"]["uid"], stored.obj)

    def _begin_steps(self, uid: str, pod: Json) -> None:
        if self._script.job and (pod["metadata"].get("labels") or {}).get("app") == "train":
            self._happenings.after(self._script.job.step_s, self.print_step, uid, 1)

    def print_step(self, uid: str, number: int) -> None:
        """Let a pod that trains print a step, stamped as the kubelet stamps it, and begin the next."""
        life, job = self.lives.get(uid), self._script.job
        if life is None or job is None or life.is_stopping:
            return
        self._world.printed[uid] = (*self._world.printed.get(uid, ()), f"{self._now().isoformat()} step {number}")
        pause_s = job.under_fault_s if self._world.has_fault(life.node) else job.step_s
        self._happenings.after(pause_s, self.print_step, uid, number + 1)

    # A node's machine

    def _go_down(self, node: str, uid: str, message: str) -> None:
        """Turn a machine off and on again; the pod that asked for it ends with its promise."""
        self._world.down.add(node)
        self._write_node(node, ready="Unknown")
        self._happenings.after(self._script.reboot_s, self.boot, node, uid, message)

    def boot(self, node: str, uid: str, message: str) -> None:
        """Let a machine be up again, with nothing of what was on it."""
        self._world.down.discard(node)
        for fault in [fault for fault in self._world.faults_in if fault[0] == node]:
            self._take_out(*fault)
        self._write_node(node, ready="True", boot=f"boot-{self._now():%H%M%S%f}")
        for other, life in list(self.lives.items()):
            if other == uid:
                self.end(uid, "Succeeded", "", message)
                self._detector.node_is_repaired(node)
            elif life.node == node and life.task is not None:
                self.end(other, "Failed", "", "")
        for stored in list(self._server.store["pods"].all()):
            pod = stored.obj
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" in pod["metadata"]:
                self.lives.pop(pod["metadata"]["uid"], None)
                self._happenings.after(_GONE_S, self.remove, pod["metadata"]["uid"])

    def _node_is_gone(self, node: str) -> None:
        """Forget a machine with all that was on it."""
        self._world.down.add(node)
        self._world.faults_in = {fault for fault in self._world.faults_in if fault[0] != node}
        self.lives = {uid: life for uid, life in self.lives.items() if life.node != node}
        self._happenings.after(_ORPHANED_S, self.collect, node)

    def collect(self, node: str) -> None:
        """Delete the pods of a node that is gone, as the controller manager does."""
        for stored in list(self._server.store["pods"].all()):
            if stored.obj["spec"].get("nodeName") == node:
                self._server.store.delete("pods", stored.namespace, stored.name)

    def _write_node(self, name: str, *, ready: str, boot: str = "") -> None:
        stored = self._server.store.get("nodes", "", name)
        if stored is None:
            return
        status = stored.obj["status"]
        info = {**status["nodeInfo"], "bootID": boot} if boot else status["nodeInfo"]
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": rfc3339(self._now())}
        others = [one for one in status["conditions"] if one["type"] != "Ready"]
        new = {**status, "nodeInfo": info, "conditions": [*others, condition]}
        self._server.store.put("nodes", {**stored.obj, "metadata": {**stored.obj["metadata"]}, "status": new})

    def _take_out(self, node: str, pod: str) -> None:
        if (node, pod) in self._world.faults_in:
            self._world.faults_in.discard((node, pod))
            self._detector.fault_is_out(node)

    def _agent(self, life: Life) -> AgentScript:
        return self._script.agent(life.role)

    def _find(self, uid: str) -> Stored | None:
        life = self.lives.get(uid)
        if life is not None:
            stored = self._server.store.get("pods", life.namespace, life.name)
            return stored if stored is not None and stored.obj["metadata"]["uid"] == uid else None
        return next((one for one in self._server.store["pods"].all() if one.obj["metadata"]["uid"] == uid), None)

    def _put(self, stored: Stored, status: Json, spec: Json | None = None) -> None:
        pod = stored.obj
        self._server.store.put(
            "pods", {**pod, "metadata": {**pod["metadata"]}, "spec": spec or pod["spec"], "status": status}
        )


def _is_quarantined(node: Stored) -> bool:
    spec = node.obj["spec"]
    return bool(spec.get("taints") or spec.get("unschedulable"))


def _running(pod: Json, now: datetime, *, ready: bool) -> Json:
    state = {"running": {"startedAt": rfc3339(now)}}
    return _status(pod, now, "Running", state, ready=ready)


def _ended(pod: Json, now: datetime, phase: str, reason: str, message: str) -> Json:
    why = {"message": message} if message else {}
    ended = {"exitCode": 0 if phase == "Succeeded" else 1, "finishedAt": rfc3339(now), **why}
    return _status(pod, now, phase, {"terminated": ended}, ready=False) | ({"reason": reason} if reason else {})


def _status(pod: Json, now: datetime, phase: str, state: Json, *, ready: bool) -> Json:
    containers = [
        {
            "name": one["name"],
            "image": one["image"],
            "imageID": one["image"],
            "ready": ready,
            "restartCount": 0,
            "state": state,
        }
        for one in pod["spec"]["containers"]
    ]
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True" if ready else "False"}]
    started = pod.get("status", {}).get("startTime", rfc3339(now))
    return {"phase": phase, "startTime": started, "conditions": conditions, "containerStatuses": containers}

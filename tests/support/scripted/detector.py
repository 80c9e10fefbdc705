"""The reaction to a fault: a line reaches the log store, a detector taints the node, a rule fires, somebody is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from gameday.values.alert_families import fires_until_returned
from kubesim.clock import rfc3339
from tests.support.scripted.api_server import STRATEGIC_PATCH, InMemoryApiServer
from tests.support.scripted.happenings import Happenings
from tests.support.scripted.script import NodeChange, NodeEvent, Script
from tests.support.scripted.world import Alert, Line, World

_MANAGER = "scripted-detector"


class Detector:
    """Everything that watches a cluster for faults, as one script."""

    def __init__(
        self,
        script: Script,
        world: World,
        server: InMemoryApiServer,
        happenings: Happenings,
        now: Callable[[], datetime],
    ) -> None:
        self._script = script
        self._world = world
        self._server = server
        self._happenings = happenings
        self._now = now
        self._tails: list[tuple[str, Callable[[Line], None]]] = []
        for act in (self.line_arrives, self.taint_node, self.fire, self.notify, self.resolve, self.hand_over,
                    self.change_node, self.write_event):  # fmt: skip
            happenings.act(act)

    def fault_is_in(self, node: str, line: str) -> None:
        """Let the cluster react to a fault from now on."""
        script, after = self._script, self._happenings.after
        for seconds in script.line_arrives:
            after(seconds, self.line_arrives, node, line)
        for seconds in script.tainted:
            after(seconds, self.taint_node, node)
        for seconds in script.fires:
            after(seconds, self.fire, node)
        for seconds in script.notified:
            after(seconds, self.notify, node)
        for event in script.events:
            after(event.after_s, self.write_event, node, event)
        self._world.struck_at = self._world.struck_at or self._now()
        self._change(node, "in")

    def fault_is_out(self, node: str) -> None:
        """Let the alerts end that no fault holds up any more."""
        if not self._world.has_fault(node):
            self._world.out_at = self._now()
            self._end_alerts(node)
            self._change(node, "out")

    def node_is_repaired(self, node: str) -> None:
        """Let the marks change that a repair takes away."""
        self._change(node, "repaired")

    def node_is_back(self, node: str) -> None:
        """Let the alerts end that fire for as long as a node is quarantined."""
        self._happenings.after(self._script.resolves_s, self.resolve, node, True)
        self._change(node, "back")

    def _end_alerts(self, node: str) -> None:
        if not self._world.has_fault(node):
            self._happenings.after(self._script.resolves_s, self.resolve, node, False)

    def _change(self, node: str, when: str) -> None:
        for change in self._script.changes:
            if change.when == when:
                self._happenings.after(change.after_s, self.change_node, node, change)

    def change_node(self, node: str, change: NodeChange) -> None:
        """Change a node as somebody else does."""
        path = f"/api/v1/nodes/{node}{'/status' if change.is_status else ''}?fieldManager={change.by}"
        patch = change.patch
        if conditions := patch.get("status", {}).get("conditions"):
            dated = [{"lastTransitionTime": rfc3339(self._now()), **one} for one in conditions]
            patch = {"status": {**patch["status"], "conditions": dated}}
        if self._server.store.get("nodes", "", node) is not None:
            self._server.administrator("PATCH", path, patch, STRATEGIC_PATCH)

    def write_event(self, node: str, event: NodeEvent) -> None:
        """Write an Event about a node."""
        now = rfc3339(self._now())
        body = {
            "metadata": {"generateName": f"{node}."},
            "involvedObject": {"kind": "Node", "name": node},
            "reason": event.reason,
            "type": event.type,
            "message": "as the script says",
            "source": {"component": _MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
        }
        self._server.administrator("POST", "/api/v1/namespaces/default/events", body)

    def line_arrives(self, node: str, text: str) -> None:
        """Put a line into the log store, and before those who tail it a moment later."""
        line = Line(self._now(), node, f"[{self._now().timestamp() % 1e6:12.6f}] {text}")
        self._world.lines.append(line)
        self._happenings.after(self._script.latency_s, self.hand_over, line)

    def hand_over(self, line: Line) -> None:
        """Give a line to those who tail its node."""
        for node, on_line in list(self._tails):
            if node == line.node:
                on_line(line)

    def tail(self, node: str, on_line: Callable[[Line], None]) -> Callable[[], None]:
        """Hand over a node's lines from now on; return a function that ends it."""
        tail = (node, on_line)
        self._tails.append(tail)
        return lambda: self._tails.remove(tail) if tail in self._tails else None

    def taint_node(self, node: str) -> None:
        """Quarantine a node as the script says."""
        stored = self._server.store.get("nodes", "", node)
        if stored is None:
            return
        there = stored.obj["spec"].get("taints") or []
        wanted = [taint.model_dump() for taint in self._script.taints]
        new = [taint for taint in wanted if all(taint["key"] != one["key"] for one in there)]
        spec = {"taints": [*there, *new]} if new else {}
        spec |= {"unschedulable": True} if self._script.cordons else {}
        if spec:
            self._server.administrator("PATCH", f"/api/v1/nodes/{node}?fieldManager={_MANAGER}", {"spec": spec})

    def fire(self, node: str) -> None:
        """Let the scripted alerts fire for a node; one that fires already goes on."""
        firing = {(one.name, one.node) for one in self._world.active()}
        for name, labels in self._script.alerts:
            if (name, node) in firing:
                continue
            of_alert = {"alertname": name, "node": node, "severity": "critical", **labels}
            self._world.alerts.append(Alert(name, node, tuple(sorted(of_alert.items())), self._now()))
        self._end_alerts(node)

    def notify(self, node: str) -> None:
        """Let Alertmanager hold what fires for a node."""
        self._world.change_alerts(lambda one: one.node == node and one.notified is None, notified=self._now())

    def resolve(self, node: str, is_back: bool) -> None:
        """End a node's alerts, where nothing holds them up."""
        if not self._world.has_fault(node):
            self._world.change_alerts(
                lambda one: one.node == node and fires_until_returned(one.name) is is_back, ended=self._now()
            )

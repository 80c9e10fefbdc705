"""Read the load on the API servers: seats by level, the clients' own log, the API canary's samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gameday.agent.task import notes_in
from gameday.errors import AdapterError, KubernetesError
from gameday.history.events import FaultInjected
from gameday.observe.api_server_metrics import NOMINAL_SEATS, SERVER_LABEL
from gameday.run.agents import injector_pod
from gameday.run.run import Run
from gameday.run.targets import chosen_targets
from gameday_control_plane.api_clients.notes import (
    MeasuredNote,
    PodsPlacedNote,
    PodStepNote,
    RequestsNote,
    StageNote,
    StormNote,
)
from gameday_control_plane.events import (
    ApiCanarySampled,
    LoadLogged,
    LoadMeasured,
    LoadStaged,
    NodesAndPodsSeen,
    PodStepsLogged,
)
from gameday_control_plane.expect.control_plane import ControlPlane
from gameday_control_plane.flow_control_objects import FlowControlApi
from gameday_control_plane.tasks import ApiCanaryNote
from gameday_control_plane.values.api_requests import ApiRequest


def nominal_seats(run: Run) -> dict[str, dict[str, int]]:
    """Return the nominal seats of every priority level by API server, as Prometheus last scraped them.

    Raises:
        AdapterError: Prometheus cannot be asked.
    """
    found: dict[str, dict[str, int]] = {}
    # The newest sample within a minute: a server under load misses scrapes but keeps its seats.
    for sample in run.servers.prometheus.query(f"last_over_time({NOMINAL_SEATS.name}[1m])"):
        server, level = sample.labels.get(SERVER_LABEL, ""), sample.labels.get("priority_level", "")
        found.setdefault(server, {})[level] = round(sample.value)
    return found


def api_canary_pod(run: Run, index: int) -> str:
    """Return the name of the API canary's pod for the target with this index."""
    return run.record.object_name("api-canary", index)


def note_load_logs(run: Run) -> None:
    """Note what the clients and the API canary logged, before their pods are deleted; a pod that is gone is skipped.

    In a run that goes to its end the steps have noted it already; this is for a run that was stopped earlier.
    """
    if not run.history().of(FaultInjected):
        return
    for index, target in enumerate(chosen_targets(run.history())):
        try:
            note_load(run, target.node, injector_pod(run, index))
            note_canary_samples(run, target.node, api_canary_pod(run, index))
        except AdapterError as error:
            run.problem(f"the log of the load on {target.node} is lost: {error}")


def note_canary_samples(run: Run, node: str, pod: str) -> None:
    """Note the API canary's samples that are not noted yet. Raises KubernetesError."""
    noted = [event.samples[-1].sent_at for event in run.history().of(ApiCanarySampled) if event.node == node]
    samples = [sample for note in notes_in(run.kubernetes.pod_log(pod), ApiCanaryNote) for sample in note.samples]
    fresh = tuple(sample for sample in samples if not noted or sample.sent_at > noted[-1])
    if fresh:
        run.note(ApiCanarySampled(node=node, samples=fresh))


def note_load(run: Run, node: str, pod: str) -> None:
    """Note, once, the log of the load's clients or the load's own measurements. Raises KubernetesError."""
    logged, measured_before = run.history().of(LoadLogged), run.history().of(LoadMeasured)
    if node in {event.node for event in logged} | {event.node for event in measured_before}:
        return
    log = run.kubernetes.pod_log(pod)
    measured = notes_in(log, MeasuredNote)
    for note in measured:
        run.note(LoadMeasured(node=node, measured=note.measured))
    if not measured:
        requests = tuple(one for note in notes_in(log, RequestsNote) for one in note.requests)
        run.note(LoadLogged(node=node, requests=requests, levels=_levels_of(run, requests)))
    for storm in notes_in(log, StormNote)[:1]:
        stages = tuple(note.stage for note in notes_in(log, StageNote))
        run.note(LoadStaged(node=node, list_bytes=storm.list_bytes, form=storm.form, stages=stages))
    steps = tuple(note.step for note in notes_in(log, PodStepNote))
    if steps:
        placed = [note.placed for note in notes_in(log, PodsPlacedNote)]
        run.note(PodStepsLogged(node=node, steps=steps, placed=placed[-1] if placed else None))


def _levels_of(run: Run, requests: Sequence[ApiRequest]) -> dict[str, str]:
    """Return the names, by UID, of the priority levels that served the requests; empty if they cannot be read."""
    seen = {request.priority_level for request in requests} - {""}
    try:
        names = FlowControlApi(run.kubernetes).level_names() if seen else {}
    except KubernetesError as error:
        run.problem(f"the priority levels of the load are not known by name: {error}")
        return {}
    return {uid: name for uid, name in names.items() if uid in seen}


def note_nodes_and_pods(run: Run, phase: Literal["before", "after"]) -> None:
    """Note every node, and every pod but the game-day's own, if the plan judges them. Raises KubernetesError."""
    containment = ControlPlane.of(run.plan.expect).containment
    if containment is None or not containment.nodes_and_pods_stay:
        return
    own = f"{run.profile.namespace}/"
    pods = {uid: name for uid, name in run.kubernetes.pods_left_alone().items() if not name.startswith(own)}
    run.note(NodesAndPodsSeen(phase=phase, nodes=run.kubernetes.readiness_of_nodes(), pods=pods))

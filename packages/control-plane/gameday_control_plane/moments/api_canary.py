"""The API canary and the load, for steps 1, 4 and 6: start the canary, wait for the load's end, judge both.

The plan's bounds are in `expect.control_plane`, the requests in `agent`, the verdicts in `checks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from gameday.checks.verdict import Status, Verdict
from gameday.errors import RefusedError
from gameday.history.events import SteadyStateChecked
from gameday.ledger.termination_message import termination_message
from gameday.observe.injected_fault import InjectedFault
from gameday.run.agents import AGENT_START_TIMEOUT, await_pod, injector_pod, send_agent
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget, Targets
from gameday.values.nodes import NodeRole
from gameday_control_plane.checks import api_canary, containment, load_ended, nodes_and_pods, reconnect, webhook
from gameday_control_plane.events import ApiCanarySampled, LoadEnded
from gameday_control_plane.expect.control_plane import ControlPlane
from gameday_control_plane.moments.settings import note_flow_control_after
from gameday_control_plane.observe import (
    api_canary_pod,
    note_canary_samples,
    note_load,
    note_load_logs,
    note_nodes_and_pods,
)
from gameday_control_plane.tasks import ApiCanaryTask
from gameday_control_plane.undos import EndApiCanary
from gameday_control_plane.values.api_requests import api_canary_lease

# From the end of the load's own time to the end of its pod, which first deletes thousands of objects.
_LOAD_ENDS_WITHIN = timedelta(seconds=60)
_POLL_S = 1.0

ORDER = 2


def before_fault_on(run: Run, target: ChosenTarget) -> None:
    """Start the API canary on a target from which the API servers are loaded; it runs until the end of the run.

    Raises:
        RefusedError: It cannot send its first requests.
        KubernetesError: Its pod cannot be created.
    """
    if run.plan.fault.runs_on is not NodeRole.API_CLIENT:
        return
    name, longest = api_canary_pod(run, target.index), run.plan.guardrails.max_duration
    task = ApiCanaryTask(run_id=run.id, node=target.node, duration_s=longest.total_seconds())
    send_agent(run, name, task, longest, EndApiCanary(pod=name, lease=api_canary_lease(run.id)))
    pod = await_pod(run, name, "the API canary's first answers", AGENT_START_TIMEOUT, ready=True)
    if pod is None or not pod.ready:
        state = f"{pod.phase} {pod.reason} {pod.termination or ''}".strip() if pod else "never seen"
        raise RefusedError(
            f"the API canary on {target.node} gets no answers: pod {name} is {state[:300]}",
            "kubectl apply -k deploy/control-plane gives it its account and its objects",
        )
    run.note(
        SteadyStateChecked(name="API canary answered", ok=True, detail="every call succeeded once", node=target.node)
    )


def fault_goes_in(run: Run, targets: Targets) -> None:
    """Note every node and pod, if the plan judges that they stay. Raises KubernetesError."""
    if run.plan.fault.runs_on is NodeRole.API_CLIENT:
        run.before_undo.append(note_load_logs)
    note_nodes_and_pods(run, "before")


def during_fault(run: Run, result: StepResult, fault: InjectedFault) -> None:
    """Wait until the load has ended, note what the clients and the canary saw, and judge it.

    Raises:
        AdapterError: A server that has to be asked does not answer.
    """
    if run.plan.fault.runs_on is not NodeRole.API_CLIENT:
        return
    pod = injector_pod(run, fault.target.index)
    hold = fault.time_left(run.plan.fault.hold, run.clock.now()) + _LOAD_ENDS_WITHIN
    ended = await_pod(run, pod, "the load to end", hold, ready=False)
    run.note(LoadEnded(node=fault.node, failed=_failure(run, pod) if ended else "it did not end in time"))
    note_load(run, fault.node, pod)
    note_canary_samples(run, fault.node, api_canary_pod(run, fault.target.index))
    note_flow_control_after(run)
    _mark(result, load_ended.by_history(run.history()))
    _mark(result, api_canary.during_fault(run.plan, run.history()))
    _mark(result, containment.flow_control_verdicts(run.plan, run.history()))
    _mark(result, webhook.by_history(run.plan, run.history()))
    _mark(result, reconnect.by_history(run.plan, run.history()))


def _failure(run: Run, pod: str) -> str:
    """Return why an ended load did not end by itself; empty if it did."""
    said = termination_message(run.pods, pod)
    if said is None:
        return f"its agent {pod} left no result: it was killed"
    if said.ended_by == "sigterm":
        return f"its agent {pod} was ended from outside"
    return "" if said.ok else said.error or f"its agent {pod} reports a failure without a reason"


def qa_begins(run: Run, result: StepResult, target: ChosenTarget) -> None:
    """Wait until the canary has looked at servers without the load for as long as the plan wants, and judge it.

    Raises:
        AdapterError: A server that has to be asked does not answer.
    """
    expected = ControlPlane.of(run.plan.expect).api_canary
    if expected is None:
        return
    until = run.clock.now() + expected.after_for
    pod = api_canary_pod(run, target.index)

    def looked_for_long_enough() -> bool | None:
        if run.clock.now() < until:
            return None  # each reading is of the whole log
        note_canary_samples(run, target.node, pod)
        seen = [event.samples[-1].sent_at for event in run.history().of(ApiCanarySampled) if event.node == target.node]
        return True if seen and seen[-1] >= until else None

    patience = expected.after_for + expected.longest_silence + AGENT_START_TIMEOUT
    if not run.wait("the API canary with the load gone", patience, looked_for_long_enough, every_s=_POLL_S):
        result.mark_unknown("the API canary has no samples with the load gone")
    note_nodes_and_pods(run, "after")
    _mark(result, api_canary.after_fault(run.plan, run.history()))
    _mark(result, nodes_and_pods.by_history(run.plan, run.history()))


def _mark(result: StepResult, verdicts: Iterable[Verdict]) -> None:
    for verdict in verdicts:
        if verdict.status is Status.BROKEN:
            result.mark_broken(f"{verdict.expectation}: {verdict.measured or verdict.why}")
        elif verdict.status is Status.UNKNOWN:
            result.mark_unknown(f"{verdict.expectation}: {verdict.why}")

"""The plan's probes, for steps 1, 2, 4 and 5: ask them once, ask them again and again, and wait for answers.

The plan's keys and the verdicts are in gameday/expect/probes/, the questions in gameday/observe/probes.py. A job
changes the cluster and so has an intent and an undo; it is therefore sent in the run's own thread, in the steps that
wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from gameday.agent.task import GpuPodsNote
from gameday.checks.verdict import Status, Verdict
from gameday.cluster.manifests import probe_job
from gameday.cluster.pods import PodSeen
from gameday.errors import AdapterError, RefusedError
from gameday.expect.probes import ExpectedProbe, JobProbe
from gameday.expect.probes.judge import after_fault, answers_of, during_fault, longest_silence
from gameday.history.events import FaultInjected, ProbeAnswered, SteadyStateChecked
from gameday.ledger.entries import DeleteJob
from gameday.observe.probes import Answer, ProbeWatch, answer_event, ask
from gameday.run.probes import probe_order
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import Targets

ORDER = 7
_POLL_S = 0.2
# From the end of a job's own time, when the kubelet ends its pod, to its end in the API.
_JOB_MARGIN = timedelta(seconds=5)


def before_fault(run: Run, targets: Targets, gpu_pods: Mapping[str, Sequence[GpuPodsNote]]) -> None:
    """Ask every probe once, before anything is broken.

    Raises:
        RefusedError: A probe that must hold before the fault does not, or cannot be read; or one that must come to hold
            already holds, and so would prove nothing.
    """
    nodes = [target.node for target in targets]
    for probe in run.plan.expect.probes:
        answered = _ask_once(run, probe, nodes)
        good = answered.holds if probe.holds_before else _is_not_yet(probe, answered)
        ok = True if good else (None if answered.holds is None else False)
        run.note(SteadyStateChecked(name=f"probe {probe.name}", ok=ok, detail=answered.detail))
        if good:
            continue
        if answered.holds:
            raise RefusedError(
                f"probe {probe.name} holds already before the fault, and would prove nothing: {answered.detail}",
                "make its limits stricter, or write stays_for in place of within",
            )
        does = "cannot be read" if answered.holds is None else "does not hold"
        raise RefusedError(
            f"probe {probe.name} {does} before the fault: {answered.detail}",
            f"mend what expect.probes {probe.name} asks, or change it in the plan",
        )


def _is_not_yet(probe: ExpectedProbe, answered: ProbeAnswered) -> bool:
    """Return True if the answer does not hold, or if the query's series may come only with the fault."""
    return answered.holds is False or (answered.holds is None and probe.promql is not None)


def fault_goes_in(run: Run, targets: Targets) -> None:
    """Ask every query, request and command again and again, until the end of the run."""
    nodes = [target.node for target in targets]
    for probe in run.plan.expect.probes:
        if not probe.job:
            run.background.callback(ProbeWatch(run, probe, nodes).stop)


def contained(run: Run, result: StepResult) -> None:
    """Wait until every `within` and `stays_for` can be judged, and take the verdicts over into the step."""
    written = [fault.written_at for fault in run.history().of(FaultInjected)]
    for probe in run.plan.expect.probes:
        if probe.within:
            _await(run, probe, max(written), probe.within, wanted=True)
        if probe.stays_for:
            _await(run, probe, min(written), probe.stays_for, wanted=False)
        _take_over(result, during_fault(probe, run.history()))


def recovered(run: Run, result: StepResult) -> None:
    """Wait until every probe with `returns_within` holds again, and take the verdicts over into the step."""
    for probe in run.plan.expect.probes:
        if probe.returns_within:
            _await(run, probe, run.clock.now(), probe.returns_within, wanted=True)
            _take_over(result, after_fault(probe, run.history()))


def _await(run: Run, probe: ExpectedProbe, since: datetime, bound: timedelta, *, wanted: bool) -> None:
    """Wait for the answer that decides: a `wanted` one, or one to a question asked after the bound."""
    end = since + bound

    def decided() -> ProbeAnswered | None:
        asked = [one for _, one in answers_of(probe, run.history()) if one.asked_at >= since]
        return next((one for one in asked if one.holds is wanted or one.asked_at >= end), None)

    if not probe.job:
        timeout = end - run.clock.now() + longest_silence(probe)
        run.wait(f"probe {probe.name}", timeout, decided, every_s=_POLL_S)
        return
    nodes = [fault.target.node for fault in run.history().of(FaultInjected)]
    while decided() is None:
        _ask_once(run, probe, nodes)
        run.wait(f"the next job of probe {probe.name}", probe.every, decided, every_s=_POLL_S)


def _take_over(result: StepResult, verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        what = f"{verdict.expectation}: {verdict.why}"
        if verdict.status is Status.BROKEN:
            result.mark_broken(what)
        elif verdict.status is Status.UNKNOWN:
            result.mark_unknown(what)


def _ask_once(run: Run, probe: ExpectedProbe, nodes: Sequence[str]) -> ProbeAnswered:
    if probe.job is None:
        answered = ask(run, probe, nodes)
    else:
        began = run.clock.now()
        try:
            found = _run_job(run, probe, probe.job, nodes)
        except AdapterError as error:
            found = Answer(None, error.cause)
        answered = answer_event(probe, began, run.clock.now(), found)
    run.note(answered)
    return answered


def _run_job(run: Run, probe: ExpectedProbe, job: JobProbe, nodes: Sequence[str]) -> Answer:
    """Send one job and wait for its end. Raises AdapterError."""
    asked, template = len(answers_of(probe, run.history())), run.gpu_pod_template
    name = run.record.object_name(f"probe-{probe.name}-{asked}")
    order = probe_order(job, nodes, template)
    entry = run.intend(
        f"probe-{probe.name}-{asked}", f"create job {name}", DeleteJob(job=name), None, job.ends_within + _JOB_MARGIN
    )
    run.kubernetes.create_job(probe_job(name, run_id=run.id, job=order, template=template))

    def pod() -> PodSeen | None:
        return next((pod for pod in run.pods.present() if pod.owner_job == name), None)

    def ended() -> Answer | None:
        seen = pod()
        # The end of its container may show before the pod's phase says how it ended.
        if seen is None or seen.phase not in ("Succeeded", "Failed"):
            return None
        took = f"on {seen.node} after {(run.clock.now() - began).total_seconds():.1f} s"
        if seen.phase == "Succeeded":
            return Answer(True, f"succeeded {took}")
        return Answer(False, f"failed {took}{f': {seen.reason}' if seen.reason else ''}")

    began = run.clock.now()
    found = run.wait(f"job {name} to end", job.ends_within + _JOB_MARGIN, ended, every_s=_POLL_S)
    last = pod()
    run.undo(entry)
    if found:
        return found
    why = (last.why_not_running if last else None) or "no pod of it was seen to end"
    return Answer(False if last and last.phase == "Running" else None, f"did not end: {why}")

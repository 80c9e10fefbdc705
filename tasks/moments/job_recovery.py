"""A job's own recovery, for steps 1 and 6: follow its steps, and wait until it has resumed.

The plan's keys and the verdicts are in gameday/expect/job/, the watch is gameday/observe/job_steps.py. The wait begins
when the nodes are back: only then may the job have a place again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from gameday.agent.task import GpuPodsNote
from gameday.checks.verdict import Status, Verdict
from gameday.errors import RefusedError
from gameday.expect.job.recovery import recovery, verdicts
from gameday.observe.job_steps import JobWatch
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget, Targets

ORDER = 8
_POLL_S = 0.5
# Longest time from a line in the log to the look that sees it.
_LATEST_SIGHT = timedelta(seconds=6)


def before_fault(run: Run, targets: Targets, gpu_pods: Mapping[str, Sequence[GpuPodsNote]]) -> None:
    """Follow the steps of the plan's job from now on.

    Args:
        run: The run.
        targets: Its targets.
        gpu_pods: By node: the pods that have its GPUs open, if the plan's fault must slow down the job.

    Raises:
        RefusedError: No pod of the job on a target prints a step.
        KubernetesError: Its pods or logs cannot be read.
    """
    expected = run.plan.expect.job
    if expected is None:
        return
    nodes = [target.node for target in targets]
    watch = JobWatch(run, expected, nodes)
    watch.start()
    run.background.callback(watch.stop)

    def seen() -> bool | None:
        return (watch.has_steps if expected.slows_below is None else watch.has_pace) or None

    # A job that has just begun soon prints its first steps.
    run.wait("the job's first steps", run.plan.baseline.window, seen, every_s=_POLL_S)
    if not watch.has_steps:
        raise RefusedError(
            f"no pod with the labels of expect.job in {expected.namespace} on {', '.join(nodes)} prints a step",
            "change expect.job, or choose targets on which the job runs",
        )
    for target in targets:
        _note_gpu_of_others(run, target, watch.pods_on(target.node), gpu_pods.get(target.node, ()))


def _note_gpu_of_others(
    run: Run, target: ChosenTarget, job: Mapping[str, str], gpu_pods: Sequence[GpuPodsNote]
) -> None:
    """Note a problem if the job's pods use other GPUs than the one that is to slow the job down.

    This is not a refusal: another pod may hold up the followed one.
    """
    used = [note.gpu for note in gpu_pods if not job.keys().isdisjoint(note.pods)]
    if used and target.gpu not in used:
        pods, gpus = ", ".join(sorted(job.values())), ", ".join(map(str, used))
        run.problem(
            f"{pods} of expect.job on {target.node} uses GPU {gpus}, and the fault goes to GPU "
            f"{target.gpu}: only a job whose other pods use that one slows down",
            f"fault.gpu: {used[0]} in the plan",
        )


def returned(run: Run, result: StepResult) -> None:
    """Wait until the job resumes, and take the verdicts over into the step."""
    expected = run.plan.expect.job
    if expected is None:
        return

    def judged() -> list[Verdict] | None:
        found = verdicts(expected, run.history())
        return None if any(one.status is Status.UNKNOWN for one in found) else found

    now = recovery(run.history())
    last = now.stopped[1].last_at if now and now.stopped else run.clock.now()
    timeout = last + expected.resumes_within + _LATEST_SIGHT - run.clock.now()
    run.wait("the job to go on", timeout, judged, every_s=_POLL_S)
    for one in verdicts(expected, run.history()):
        if one.status is Status.BROKEN:
            result.mark_broken(f"{one.expectation}: {one.why or one.measured}")
        elif one.status is Status.UNKNOWN:
            result.mark_unknown(f"{one.expectation}: {one.why}")

"""The sampler: an agent that reads NVML on a target more often than Prometheus scrapes dcgm-exporter."""

from __future__ import annotations

from gameday.agent.task import SampledNote, notes_in
from gameday.errors import AdapterError
from gameday.ledger.entries import DeletePod, Entry
from gameday.ledger.termination_message import termination_message
from gameday.run.agents import agent_act, sample_task, samples_nvml, send_agent
from gameday.run.run import Run
from gameday.run.targets import ChosenTarget


def start_sampler(run: Run, target: ChosenTarget) -> None:
    """Start the sampler on a target, unless the plan forbids it, without waiting for it.

    Raises:
        KubernetesError: Its pod cannot be created.
        AbortedError: Somebody asked the run to stop.
    """
    if samples_nvml(run.plan):
        name = run.record.object_name("sample", target.index)
        send_agent(run, name, sample_task(run, target), run.plan.guardrails.max_duration)


def end_samplers(run: Run) -> None:
    """End all samplers and keep what they saw, because a reset would fail while one of them reads."""
    for entry in run.ledger.open_entries():
        if _is_sampler(entry):
            keep_samples(run, entry)
            run.undo(entry)


def keep_samples(run: Run, entry: Entry) -> None:
    """Read the log of a sampler's pod that is about to be deleted; do nothing for any other entry.

    A log that cannot be read, or is empty, becomes a problem in the history, not an error.
    """
    if not _is_sampler(entry) or not isinstance(entry.undo, DeletePod) or entry.node is None:
        return
    pod = entry.undo.pod
    if run.nvml.has(pod):
        return
    try:
        notes = notes_in(run.kubernetes.pod_log(pod), SampledNote)
    except AdapterError as error:
        run.problem(f"the agent's NVML samples of {entry.node} are lost: {error}")
        return
    if not notes:
        ended = termination_message(run.pods, pod)
        why = ended.error if ended and ended.error else f"pod {pod} noted nothing"
        run.problem(f"the agent did not sample NVML on {entry.node}: {why}")
    run.nvml.add(entry.node, pod, notes)


def _is_sampler(entry: Entry) -> bool:
    return entry.act == agent_act("sample", entry.node or "")

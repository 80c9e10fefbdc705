"""An all-reduce over several nodes, sent and awaited: one pod for each node, and all are deleted again.

The plan's bound is gameday/expect/canary/, the orders gameday/run/all_reduce.py, the measurement in the pods
gameday/agent/all_reduce.py. tasks/moments/canary.py decides when to measure, and judges.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack

from gameday.agent.task import AllReduceNote, RendezvousNote, notes_in
from gameday.errors import AdapterError, StepFailedError
from gameday.expect.canary import ExpectedAllReduce
from gameday.ledger.termination_message import termination_message
from gameday.run.agents import AGENT_START_TIMEOUT, await_pod, send_agent
from gameday.run.all_reduce import ALL_REDUCE_TIMEOUT, all_reduce_task
from gameday.run.canary import CanaryPhase
from gameday.run.run import Run
from gameday.run.targets import ChosenTarget

_SECRET_BYTES = 32


def measure_all_reduce(
    run: Run,
    expected: ExpectedAllReduce,
    target: ChosenTarget,
    peers: tuple[str, ...],
    phase: CanaryPhase,
    size: int,
) -> AllReduceNote:
    """Measure once, and delete every pod again; an error of the cluster or an agent becomes the note's detail.

    Args:
        run: The run.
        expected: The plan's all-reduce.
        target: The node that is measured.
        peers: The other nodes.
        phase: Before, during or after the fault.
        size: Bytes of a round; 0: rank 0 finds it.
    """
    try:
        with ExitStack() as pods:
            return _measured(run, expected, target, peers, phase, size, pods)
    except (AdapterError, StepFailedError) as error:
        return AllReduceNote(value=None, detail=str(error))


def _measured(
    run: Run,
    expected: ExpectedAllReduce,
    target: ChosenTarget,
    peers: tuple[str, ...],
    phase: CanaryPhase,
    size: int,
    pods: ExitStack,
) -> AllReduceNote:
    """Send rank 0, then the others with its address, and return its note.

    Raises AdapterError and StepFailedError.
    """
    nodes, secret = (target.node, *peers), secrets.token_hex(_SECRET_BYTES)
    lead = run.record.object_name(f"all-reduce-{phase}", target.index)
    task = all_reduce_task(run, expected, nodes, 0, phase, secret, size)
    pods.callback(run.undo, send_agent(run, lead, task, ALL_REDUCE_TIMEOUT))
    seen = await_pod(run, lead, f"all-reduce pod {lead} Ready", AGENT_START_TIMEOUT, ready=True)
    waits = next(iter(notes_in(run.kubernetes.pod_log(lead), RendezvousNote)), None) if seen else None
    if waits is not None and seen is not None and not seen.ended:
        for rank in range(1, len(nodes)):
            name = run.record.object_name(f"all-reduce-{phase}-rank-{rank}", target.index)
            follower = all_reduce_task(run, expected, nodes, rank, phase, secret, size, waits)
            pods.callback(run.undo, send_agent(run, name, follower, ALL_REDUCE_TIMEOUT))
        await_pod(run, lead, f"all-reduce pod {lead} to end", ALL_REDUCE_TIMEOUT, ready=False)
    outcome = termination_message(run.pods, lead)
    notes = notes_in(run.kubernetes.pod_log(lead), AllReduceNote)
    if notes:
        return notes[0]
    why = outcome.error if outcome else f"pod {lead} on {target.node} left no result"
    return AllReduceNote(value=None, detail=why or "the all-reduce printed no result")

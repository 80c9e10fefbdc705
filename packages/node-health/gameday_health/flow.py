"""Work off one node's open episode: drain, rungs of the ladder, QA, then return or hand-over to a person.

The episode's record in the cluster is the truth. If a flow run dies, another one goes on from the record. Cancelling
a flow run stops the repair, and the node stays out of service.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from typing import Self

from prefect import flow, get_run_logger, runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import State
from prefect.context import TagsContext
from prefect.states import Cancelled, Completed, Crashed, Failed

from gameday.cluster.profile import load_profile
from gameday.errors import AdapterError, ProfileError
from gameday.exit_codes import ExitCode
from gameday.flows.judged_state import judged_state
from gameday.flows.server_turns import TURNS
from gameday_health.episodes import DEFAULT_TAINT
from gameday_health.episodes.model import State as EpisodeState
from gameday_health.episodes.work import EpisodeWork, Settings
from gameday_health.model import Taint
from gameday_health.policy_files import load_policy
from gameday_health.task import remediate

_ASK_EVERY_S = 2.0


ENDS = frozenset(str(state) for state in EpisodeState if state.is_end)
"""Results of flow runs that ended their episode; any other one broke off."""


@flow(name="remediate-node", flow_run_name="{node}", persist_result=False, validate_parameters=True)
def remediate_node(
    node: str, profile: str | None = None, policy: str = "default", taint: str = DEFAULT_TAINT
) -> State[str]:
    """Repair a node that the node-health controller quarantined, and return it if QA passes.

    Args:
        node: The node; the repairer has opened its episode.
        profile: Cluster profile's path, or block:NAME; none: GAMEDAY_* of the environment.
        policy: Health policy's name or path; its section `repair` counts.
        taint: The node-health controller's taint.
    """
    with ExitStack() as stack:
        stack.enter_context(TURNS.set_aside())
        cancellation = stack.enter_context(Cancellation())
        try:
            settings = Settings(load_profile(profile), load_policy(policy).policy.repair, Taint.parse(taint))
            work = stack.enter_context(EpisodeWork(settings, node, cancellation.why))
        except (AdapterError, ProfileError) as error:
            return judged_state(ExitCode.REFUSED, str(error), str(error))
        # We hold the claim: if Prefect still shows another flow run of this episode as running, its process is gone.
        # In a thread, so that a server that does not answer delays nothing.
        own = runtime.flow_run.id
        threading.Thread(target=_close_dead_runs, args=(work.episode.id, own), name="dead runs", daemon=True).start()
        # Tasks inherit tags, and for each set of tags Prefect keeps a thread and a client until the process ends (3.8,
        # ConcurrencySlotAcquisitionWithLeaseService). The episode's id is a tag, so the steps get none.
        stack.enter_context(TagsContext(current_tags=set()))
        while (step := work.next_step()) is not None:
            get_run_logger().info("%s", remediate(work, step))
        ended = work.episode
    finished = {EpisodeState.RETURNED: Completed, EpisodeState.CANCELLED: Cancelled}.get(ended.state, Failed)
    return finished(message=f"{str(ended.state).replace('-', ' ').capitalize()}: {ended.why}", data=str(ended.state))


class Cancellation:
    """Check every two seconds, in a thread of its own, whether a person cancels this flow run.

    A server that does not answer delays nothing: the repair goes on without it.
    """

    def __init__(self) -> None:
        self._flow_run = runtime.flow_run.id
        self._stop = threading.Event()
        self._why = ""

    def __enter__(self) -> Self:
        threading.Thread(target=self._ask, name="cancellation", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def why(self) -> str:
        """Return why the repair has to stop; empty while it may go on."""
        return self._why

    def _ask(self) -> None:
        # Keep one client while it works: making one reads every certificate authority, 17 ms of processor time.
        while not self._stop.is_set():
            with suppress(Exception), get_client(sync_client=True) as client:
                while not self._stop.wait(_ASK_EVERY_S):
                    state = client.read_flow_run(self._flow_run).state
                    if state and state.is_cancelling():
                        self._why = "a person cancelled the flow run"
                        return
            self._stop.wait(_ASK_EVERY_S)


def _close_dead_runs(episode: str, own: str | None) -> None:
    """Mark every other unfinished flow run of the episode as crashed."""
    states = ["RUNNING", "PENDING", "CANCELLING"]
    unfinished = FlowRunFilter.model_validate({"tags": {"all_": [episode]}, "state": {"type": {"any_": states}}})
    with suppress(Exception), get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=unfinished):
            if str(run.id) != own:
                crashed: State[None] = Crashed(message="its process is gone; another flow run goes on with the episode")
                client.set_flow_run_state(run.id, crashed, force=True)

"""The restart of a lab's API servers without the load, between two pauses in which their memory settles."""

from __future__ import annotations

from datetime import timedelta

from gameday.cluster.lab_control import restart_api_servers
from gameday.errors import ControlError, StepFailedError
from gameday.history.events import ApiServersRestarted
from gameday.run.run import Run
from gameday.run.targets import Targets

ORDER = 0
_POLL_S = 0.5


def fault_goes_in(run: Run, targets: Targets) -> None:
    """Refuse a plan that restarts API servers outside of a lab, before anything is changed.

    Raises:
        StepFailedError: The cluster is not a lab.
    """
    if run.plan.recover.restart_api_servers and run.profile.lab_control is None:
        raise StepFailedError(
            "recover.restart_api_servers restarts API servers, and this cluster is no lab",
            f"gameday rehearse {run.plan.name}",
        )


def fault_is_out(run: Run) -> None:
    """Restart the API servers if the plan asks for it, and let their memory settle before and after.

    Raises:
        StepFailedError: The lab does not restart them.
        StopRunError: The run was stopped.
    """
    asked, lab = run.plan.recover.restart_api_servers, run.profile.lab_control
    if asked is None or lab is None:
        return
    _settle(run, "before the restart", asked.settle)
    asked_at = run.clock.now()
    try:
        restart_api_servers(lab)
    except ControlError as error:
        raise StepFailedError(f"the lab does not restart its API servers: {error}", "gameday lab status") from None
    run.note(ApiServersRestarted(asked_at=asked_at, ready_at=run.clock.now()))
    _settle(run, "after the restart", asked.settle)


def _settle(run: Run, when: str, length: timedelta) -> None:
    until = run.clock.now() + length
    run.wait(
        f"the API servers' memory to settle {when}",
        length + timedelta(seconds=1),
        lambda: True if run.clock.now() >= until else None,
        every_s=_POLL_S,
    )

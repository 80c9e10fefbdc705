"""The steps of a node's repair: drain, attempts of the ladder's rungs, QA, return, or hand-over to a person."""

from __future__ import annotations

from gameday.tasks import step_task
from gameday_health.episodes.acts import carry_out
from gameday_health.episodes.status import describe
from gameday_health.episodes.transitions import Step
from gameday_health.episodes.work import EpisodeWork


@step_task(name="remediation step")
def _carry_out(work: EpisodeWork, step: Step) -> str:
    return carry_out(work, step)


def remediate(work: EpisodeWork, step: Step) -> str:
    """Carry out a step as a task run of its own name; return in words how it went.

    Raises:
        LeaseLostError: Another process may be working on the episode.
        KubernetesError: The API server refuses or does not answer.
    """
    done: str = _carry_out.with_options(name=describe(step))(work, step)
    return done

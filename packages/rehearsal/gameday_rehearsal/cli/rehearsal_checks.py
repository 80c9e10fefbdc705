"""Refuse, before anything is started, a rehearsal that its plan or this machine cannot carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode

if TYPE_CHECKING:
    from gameday.plan.models import Plan

_BYTES_OF_A_NODE = 1 << 20
"""Memory for each of thousands of nodes: a rehearsal with 5,000 of eight GPUs takes 5 GB (docs/measured.md)."""


def nodes_at(plan: Plan, scale: str) -> int:
    """Return the least number of nodes that a scale of the plan takes.

    Raises:
        CommandError: This machine has too little memory for the scale.
        HostError: The amount of free memory cannot be read.
    """
    from gameday.host.memory import why_too_large

    asked = plan.scales[scale]
    if why := why_too_large(asked.memory):
        raise CommandError(f"--scale {scale} of {plan.name} does not fit this machine: {why}", ExitCode.REFUSED)
    return asked.nodes or 1


def check_memory(nodes: int) -> None:
    """Refuse a cluster of thousands of nodes that does not fit this machine's memory.

    Raises:
        CommandError: There is too little memory.
        HostError: The amount of free memory cannot be read.
    """
    from gameday.host.memory import why_too_large
    from gameday_rehearsal.scrape_pace import LARGE

    if nodes > LARGE and (why := why_too_large(nodes * _BYTES_OF_A_NODE)):
        raise CommandError(f"--nodes {nodes} does not fit this machine: {why}; take fewer nodes", ExitCode.REFUSED)


def check_release(plan: Plan) -> None:
    """Refuse a plan with API servers of a release that is not built. Raises CommandError."""
    from gameday.errors import ProgramMissingError
    from gameday_rehearsal.lab.programs import find_api_server

    if release := plan.rehearsal.api_server_release:
        try:
            find_api_server(release)
        except ProgramMissingError as error:
            raise CommandError(str(error), ExitCode.REFUSED) from None

"""The way from a fault to a program of the lab's control plane; it holds no fault.

Only a lab has it: a program of its virtual nodes passes these orders on to the lab's control socket. The lab ends a
pause itself, even if the game-day and its agent are dead.
"""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from gameday.errors import HostError
from gameday.host.base import Host

LAB_PROGRAM = "gameday-lab"
"""Name of the virtual nodes' program."""
_ANSWERS_WITHIN_S = 35.0
"""A little longer than the program waits for the lab's control socket."""


class ComponentState(BaseModel):
    """A program of the lab's control plane: its process id (None: it is not running), and whether it is paused."""

    pid: int | None
    paused: bool


def look(host: Host, component: str) -> ComponentState:
    """Return the state of a component. Raises HostError."""
    return _ask(host, "look", component)


def pause(host: Host, component: str, seconds: float) -> ComponentState:
    """Stop a component (SIGSTOP); the lab lets it go on after this many seconds. Raises HostError."""
    return _ask(host, "pause", component, f"{seconds:g}")


def resume(host: Host, component: str) -> ComponentState:
    """Let a component go on (SIGCONT). Raises HostError."""
    return _ask(host, "resume", component)


def restart(host: Host, component: str) -> ComponentState:
    """End a component, after 2 s by force, and start it again at once. Raises HostError."""
    return _ask(host, "restart", component)


def _ask(host: Host, *words: str) -> ComponentState:
    done = host.run([LAB_PROGRAM, *words], _ANSWERS_WITHIN_S)
    if done.exit_status != 0:
        raise HostError(
            f"the lab does not {' '.join(words[:2])}: {done.stderr.strip()[:300] or f'exit status {done.exit_status}'}"
        )
    try:
        return ComponentState.model_validate_json(done.stdout)
    except ValidationError:
        raise HostError(f"{LAB_PROGRAM} printed no state: {done.stdout[:100]!r}") from None

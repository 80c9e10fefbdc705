"""The guest of a rehearsal: the state and the output of a real detector's programs, from the rehearsal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import AwareDatetime

from gameday.cluster.http import Answer, HttpServer
from gameday.cluster.profile import Endpoint, GuestAddress

CLUSTER_INSTANCE = "cluster"
"""The name of a guest's program that watches the whole cluster."""
_TIMEOUT_S = 5.0
_NEXT = "X-Next"


class GuestProgram(Answer):
    """A program of the guest: a node's, or the cluster's."""

    state: Literal["running", "down", "waiting"]
    """`down`: its node is down. `waiting`: it ended by itself, and will be started again."""
    started: AwareDatetime | None = None
    ended_by_itself: int = 0
    last_exit: str | None = None
    flooded: bool = False
    log: str = ""


class _Guests(Answer):
    instances: Mapping[str, GuestProgram]


@dataclass(frozen=True)
class OutputLine:
    """A line of a guest's output, as the rehearsal read it."""

    at: datetime
    text: str


class Guest:
    """The guest at an address, to be closed."""

    def __init__(self, address: GuestAddress) -> None:
        self.address = address
        server, _, self._path = address.url.rpartition("/")
        self._http = HttpServer(Endpoint(url=server, timeout_s=_TIMEOUT_S))

    def close(self) -> None:
        """Close all connections to the server."""
        self._http.close()

    def programs(self) -> Mapping[str, GuestProgram]:
        """Return the guest's programs by the node that each watches, or `cluster`. Raises AdapterError."""
        return self._http.get_as(_Guests, self._path, call="GET guests").instances

    def programs_of(self, nodes: Collection[str]) -> dict[str, GuestProgram]:
        """Return the programs that watch one of these nodes. Raises AdapterError."""
        return {name: one for name, one in self.programs().items() if name in (*nodes, CLUSTER_INSTANCE)}

    def output(self, instance: str, start: int) -> tuple[str, int]:
        """Return a page of a program's output from a byte on, and the first byte of the next page.

        Raises AdapterError.
        """
        page = self._http.answer(f"{self._path}/{instance}/output", {"from": start}, call="GET guest output")
        asked_next = page.headers.get(_NEXT, "")
        text = page.content.decode("utf-8", errors="replace")
        return text, int(asked_next) if asked_next.isdecimal() else start + len(page.content)

    def last_line(self, instance: str) -> str:
        """Return a program's last line; empty if it wrote none. Raises AdapterError."""
        last, start = "", 0
        while True:
            text, behind = self.output(instance, start)
            last = next((line for line in reversed(text.splitlines()) if line.strip()), last)
            if behind <= start:
                return last
            start = behind

    def troubles(self, nodes: Collection[str]) -> Iterator[str]:
        """Yield, for each node that the guest does not watch, why not, with the guest's last line.

        Raises AdapterError.
        """
        programs = self.programs_of(nodes)
        for node in nodes:
            name = node if node in programs else CLUSTER_INSTANCE
            program = programs.get(name)
            if program is None:
                yield f"the guest {self.address.name} has no program for {node}"
            elif program.state != "running":
                why = f"its last end: {program.last_exit}" if program.last_exit else f"it is {program.state}"
                said = self.last_line(name)
                words = f"; its last line: {said}" if said else "; it wrote nothing"
                yield f"the guest {self.address.name} does not run on {node} ({why}{words})"


def stamped(line: str, otherwise: datetime) -> OutputLine:
    """Return a line of output with the time that the rehearsal put in front, or with `otherwise` if there is none."""
    stamp, _, text = line.partition(" ")
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return OutputLine(otherwise, line)
    return OutputLine(at if at.tzinfo else at.replace(tzinfo=UTC), text)

"""A node with a wrong /etc/nccl.conf, as a bad image or a configuration roll-out leaves it."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import ClassVar, Literal

from gameday.errors import HostError
from gameday.faults.base import Claim, Evidence, Fault, Layer
from gameday.faults.nccl import NcclParameters
from gameday.host.base import Host
from gameday.host.privileges import DAEMONS, HOST_FILES, PodSecurity, combined
from gameday.plan.fault import FaultParameters

PATH = "/etc/nccl.conf"
_TIMEOUT_S = 10.0
_BEGIN, _END = "# gameday begins\n", "# gameday ends\n"
"""They contain no `=`, because older NCCLs take any line with one for a variable."""
_UNDECODED = "\ufffd"
_MOST_BYTES = 2000
"""The content is kept in the agent's termination message, which holds 4096 bytes in all."""


class NcclConfParameters(NcclParameters):
    type: Literal["nccl_conf"] = "nccl_conf"


class NcclConfFault(Fault[NcclConfParameters]):
    """Puts NCCL variables at the head of the node's /etc/nccl.conf, and takes them out again.

    NCCL keeps the first value that it reads of a variable. The rest of the file stays the same, byte for byte, with
    changes that somebody else makes meanwhile; a file that did not exist is removed again.
    """

    parameters: ClassVar[type[FaultParameters]] = NcclConfParameters
    layer: ClassVar[Layer] = Layer.NETWORK
    security: ClassVar[PodSecurity] = combined((HOST_FILES, DAEMONS))
    summary: ClassVar[str] = "Puts wrong NCCL variables into the node's /etc/nccl.conf"
    does_not_reach: ClassVar[str] = (
        "jobs that run already; jobs with the variable in their own environment; containers that do not mount the "
        "node's /etc/nccl.conf, as most do not; kernel log, NVML, DCGM"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "the canary's bus bandwidth",
        "bandwidth preflights, such as NVSentinel's, if they are switched on",
        "no other detector",
    )

    def claims(self, parameters: NcclConfParameters) -> tuple[Claim, ...]:
        return (Claim(PATH),)

    def warnings(self, parameters: NcclConfParameters) -> tuple[str, ...]:
        return (f"every NCCL job that starts on the node and reads its {PATH} gets the variables too",)

    def prior_state(self, parameters: NcclConfParameters, gpu: int, host: Host) -> dict[str, str]:
        before = _content(host)
        if before is None:
            return {"before": "absent"}
        if _BEGIN in before:
            raise HostError(f"{PATH} still has the lines of another game-day: `gameday reap`, or take them out by hand")
        if _UNDECODED in before:
            raise HostError(f"{PATH} is not UTF-8 text, so it could not be restored exactly")
        if len(before.encode()) > _MOST_BYTES:
            raise HostError(f"{PATH} is longer than {_MOST_BYTES} bytes, too long to be kept until it is given back")
        return {"before": _digest(before), "content": before}

    def inject(self, parameters: NcclConfParameters, gpu: int, host: Host) -> Evidence:
        undo_state = self.prior_state(parameters, gpu, host)
        before = _content(host) or ""
        ours = _BEGIN + "".join(f"{name}={value}\n" for name, value in parameters.variables.items()) + _END
        written_at = datetime.now(UTC)
        host.write_file(PATH, ours + before)
        if _content(host) != ours + before:
            raise HostError(f"{PATH} was written, but differs on reading back")
        lines = (
            f"before: {PATH} {undo_state['before']}",
            f"put at its head: {'; '.join(ours.splitlines()[1:-1])}",
            f"after: {_digest(ours + before)}",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=undo_state)

    def undo(self, parameters: NcclConfParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        now = _content(host)
        if _was_emptied(now, undo_state):
            host.write_file(PATH, undo_state["content"])
            return Evidence(lines=(f"{PATH} was empty, because writing it was cut short: now {undo_state['before']}",))
        if now is None or _BEGIN not in now:
            return Evidence(lines=(f"{PATH} has no lines of ours",))
        head, _, rest = now.partition(_BEGIN)
        _, ended, tail = rest.partition(_END)
        if not ended:
            raise HostError(
                f"{PATH} has the beginning of our lines but not their end: somebody edits it; take them out"
            )
        left = head + tail
        if left or undo_state.get("before", "absent") != "absent":
            host.write_file(PATH, left)
            return Evidence(lines=(f"our lines taken out of {PATH}: now {_digest(left)}",))
        done = host.run(("rm", "-f", "--", PATH), _TIMEOUT_S)
        if done.exit_status:
            raise HostError(f"rm {PATH}: exit {done.exit_status}: {done.stderr.strip()[:200]}")
        return Evidence(lines=(f"{PATH} removed, as it was not there before",))

    def verify_undone(self, parameters: NcclConfParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        now = _content(host)
        return (now is None or _BEGIN not in now) and not _was_emptied(now, undo_state)


def _was_emptied(now: str | None, undo_state: dict[str, str]) -> bool:
    """Return True if an agent was killed between truncating the file and writing it."""
    return now == "" and bool(undo_state.get("content"))


def _content(host: Host) -> str | None:
    """Return the file's text; None if there is no such file. Raises HostError."""
    exists = host.run(("test", "-e", PATH), _TIMEOUT_S)
    if exists.exit_status not in (0, 1):
        raise HostError(f"test -e {PATH}: exit {exists.exit_status}: {exists.stderr.strip()[:200]}")
    return host.read_file(PATH) if exists.exit_status == 0 else None


def _digest(text: str) -> str:
    return f"{len(text.encode())} bytes, SHA-256 {hashlib.sha256(text.encode()).hexdigest()}"

"""Every error that gameday raises, as one tree.

    GamedayError
    ├── DocumentError               a YAML file (plan, detector profile, notes) cannot be used
    ├── ProfileError                a cluster profile cannot be used
    ├── NotesError                  people's notes about a run cannot be used
    ├── HostError                   a node's kernel log, program, file or NVML could not be reached
    │   ├── NoCrictlError           pods cannot be found on the node
    │   ├── HostBusyError           the host cannot answer now, and may later: an undo tries again
    │   └── MachineDownError        the virtual machine is off
    ├── TaskError                   an agent cannot read its task
    ├── AdapterError                a server of the cluster could not be asked
    │   ├── KubernetesError         the API server refused or did not answer
    │   └── WatchRefusedError       the API server does not allow a watch
    ├── LeaseError
    │   ├── LeaseHeldError          another run holds the lease
    │   ├── LeaseLostError          the run may no longer be the only one
    │   └── SeasonGoneError         the season that should cover the run holds no lease
    ├── StopRunError                ends a run before its last step; the undo and the report still happen
    │   ├── RefusedError            nothing was changed
    │   ├── StepFailedError         a step could not do its work
    │   └── AbortedError            a guardrail or a person stopped the run
    ├── PostMortemError
    │   ├── WindowError             the window cannot be used
    │   ├── UnknownNodeError        no server knows the node
    │   ├── CollectedAlreadyError   the window was collected before
    │   └── NothingReadError        no server could be read
    ├── PublishError                reports cannot be copied to where they should go
    ├── CommandError                ends a command with a message and an exit code
    ├── IncompleteInstallationError a file of the project is missing
    └── RehearsalError
        ├── StartError              the rehearsal or the lab did not start
        ├── SeedError               the fresh API server refused its first objects
        ├── ChildError              a process did not start, or died
        ├── FolderHeldError         a living cluster holds the folder
        ├── ProgramMissingError     a program is not installed
        ├── ControlError            the lab did not do what it was asked
        ├── PodRejectedError        the virtual kubelet does not admit the pod
        ├── PodConfigError          the virtual kubelet cannot start the container
        ├── ClaimError              the virtual kubelet cannot prepare a pod's ResourceClaim
        ├── TlsFolderError          the virtual kubelet's certificates cannot be used
        ├── LogQLError              the log store cannot read a query
        └── TooManyStreamsError     the log store holds too many streams

A message says what is wrong, where, and what to do next. Text from outside is made printable and shortened first, and
no message holds a secret.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from gameday.exit_codes import ExitCode
from gameday.text import printable

_PROBLEMS_MAX = 20
"""The most problems of one file that are shown; a file that is not a plan at all has hundreds."""


class GamedayError(Exception):
    """Base of every error that gameday raises."""


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    """A thing to correct in a YAML file."""

    file: str
    line: int | None
    """The line, counted from 1; None if the file could not be read at all."""
    column: int | None
    """The column, counted from 1; None if the file could not be read at all."""
    where: str
    """Dotted path of the key, e.g. `expect.alerts[0].within`; empty for the whole file."""
    value: str | None
    """The offending value as `gameday.text.shown` shows it; None if there is none, for example when a key is
    missing."""
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        place = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        head = ": ".join(part for part in (printable(self.file) + place, self.where, printable(self.message)) if part)
        rows = [head]
        if self.value is not None:
            rows.append(f"    value: {self.value}")
        if self.suggestion:
            rows.append(f"    suggestion: {printable(self.suggestion)}")
        return "\n".join(rows)


class DocumentError(GamedayError):
    """A YAML file cannot be used. `problems` is never empty and is in the order of the file."""

    def __init__(self, problems: Iterable[DocumentProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))
        super().__init__(self.problems)

    def __str__(self) -> str:
        rows = [str(problem) for problem in self.problems[:_PROBLEMS_MAX]]
        if more := len(self.problems) - len(rows):
            rows.append(f"… and {more} more")
        return "\n".join(rows)


class ProfileError(GamedayError):
    """A cluster profile cannot be used; the message names the file, the key and what to do."""

    code = ExitCode.USAGE


class NotesError(GamedayError):
    """notes.yaml cannot be used; the message names the file, the line and what to do."""


class HostError(GamedayError):
    """A host refused or could not be reached; the message names the path or program and the cause."""


class NoCrictlError(HostError):
    """Pods cannot be found on this node."""


class HostBusyError(HostError):
    """The host cannot answer now, and may later: an undo tries again until its deadline."""


class LinkError(HostError):
    """An interface lets no connection through: it is down, or nothing behind it answers."""


class MachineDownError(HostError):
    """The virtual machine is off."""


class TaskError(GamedayError):
    """An agent cannot read its task; the message says where and why, and does not quote the input."""


class AdapterError(GamedayError):
    """A server could not be asked, or did not answer usefully.

    `url` is without credentials, query and fragment. `status` is the HTTP status if there was one.
    """

    def __init__(self, url: str, cause: str, hint: str = "", status: int | None = None) -> None:
        super().__init__(f"{url}: {cause}" + (f"; {hint}" if hint else ""))
        self.url = url
        self.cause = cause
        self.hint = hint
        self.status = status


class KubernetesError(AdapterError):
    """A request that the API server refused or did not answer."""


class WatchRefusedError(AdapterError):
    """The API server does not allow this watch; asking again changes nothing."""


class LeaseError(GamedayError):
    """Base of the errors about leases."""


class LeaseHeldError(LeaseError):
    """Another run holds the lease; `holder` is its run id."""

    def __init__(self, lease: str, holder: str, renewed: datetime | None, duration: timedelta) -> None:
        since = f", renewed {renewed:%H:%M:%S} UTC, good for {duration.total_seconds():g} s" if renewed else ""
        super().__init__(f"lease {lease} is held by run {holder}{since}")
        self.lease = lease
        self.holder = holder
        self.renewed = renewed
        self.duration = duration


class LeaseLostError(LeaseError):
    """The run may no longer be the only one; the message says why."""


class SeasonGoneError(LeaseError):
    """The season does not hold the lease that should cover a run."""


class StopRunError(GamedayError):
    """Ends the run before its last step; the undo and the report still happen."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


class RefusedError(StopRunError):
    """Nothing was changed, and nothing will be: exit code 5."""


class StepFailedError(StopRunError):
    """A step could not do its work, so the later steps would prove nothing."""


class AbortedError(StopRunError):
    """A guardrail or a person stopped the run."""

    def __init__(self, by: Literal["operator", "guard"], why: str) -> None:
        super().__init__(why)
        self.by = by


class ForeignPauseError(GamedayError):
    """Somebody else has sent one of the GPU operator's operands off a node; a reset would disturb that work."""


class PostMortemError(GamedayError):
    """Base of the errors about post-mortems."""


class WindowError(PostMortemError):
    """The window cannot be used; the message says how to write one."""


class UnknownNodeError(PostMortemError):
    """No server knows the node; most likely its name is misspelt."""


class CollectedAlreadyError(PostMortemError):
    """The window was collected before. Servers forget: reading it again would replace the evidence by less."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} holds this window as it was collected: `{shlex.join(['gameday', 'post-mortem', str(folder)])}` "
            "renders it again; to collect it a second time, name another folder with --reports"
        )


class NothingReadError(PostMortemError):
    """No server could be read, so the report would be empty."""


class PublishError(GamedayError):
    """Reports cannot be copied there; the message says why and never holds a credential."""


class CommandError(GamedayError):
    """Ends a command with an exit code and a message that says what to do."""

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.code = code


class IncompleteInstallationError(GamedayError):
    """A file that belongs to the project is missing; the message says where it was looked for and what to do."""


class RehearsalError(GamedayError):
    """Base of the errors of the rehearsal and the lab."""


class StartError(RehearsalError):
    """The rehearsal or the lab could not be started; the message says which part, why, and where its log is."""

    code = ExitCode.REFUSED


class SeedError(RehearsalError):
    """The fresh API server refused the objects that every rehearsal begins with; the message quotes it."""


class ChildError(RehearsalError):
    """A process did not start or died; the message names it, its exit status and its log's last line."""


class MemoryShortError(RehearsalError):
    """The machine has too little memory left for a virtual cluster; the message says how much, and what to do."""


class FolderHeldError(RehearsalError):
    """A living rehearsal or lab holds the folder; `pid` is its process, 0 in the instant before it is recorded."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"held by process {pid}")
        self.pid = pid


class ProgramMissingError(RehearsalError):
    """A program is neither on PATH nor in the tool folder; the message says how to install it here."""


class ControlError(RehearsalError):
    """A running lab could not be asked, or refused; the message says why, and what it can be asked."""


class PodRejectedError(RehearsalError):
    """The virtual kubelet does not admit a pod, with the reason and message of a real one."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class PodConfigError(RehearsalError):
    """The virtual kubelet cannot start a container: only a whole cluster could resolve what it asks for."""


class ClaimError(RehearsalError):
    """The virtual kubelet can never prepare a ResourceClaim of a pod."""


class TlsFolderError(RehearsalError):
    """The virtual kubelet's certificates cannot be used."""


class LogQLError(RehearsalError):
    """The log store cannot read a query; the message is as Loki's."""


class TooManyStreamsError(RehearsalError):
    """The log store holds as many streams as it may."""

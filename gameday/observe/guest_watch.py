"""Watch a rehearsal's guest during a run: whether its programs run, what they say, and what they write elsewhere."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from pathlib import Path

from gameday.clock import Repetition
from gameday.cluster.guests import CLUSTER_INSTANCE, Guest, GuestProgram, OutputLine, stamped
from gameday.cluster.profile import GuestAddress
from gameday.errors import AdapterError, RefusedError
from gameday.history.events import FaultInjected, GuestNamed, GuestSpoke, GuestState
from gameday.history.events.guests import GUEST_FOLDER
from gameday.observe.bystanders import watch_bystanders
from gameday.plain_file import open_to_append, refuse_link
from gameday.run.run import Run
from gameday.run.targets import Targets
from gameday.text import printable, without_secrets
from gameday.values.nodes import NodeRole

_EVERY_S = 2.0
_STARTS_WITHIN = timedelta(seconds=10)
"""Time within which a node that has just been rebooted has its guest back."""
_ENDS_WITHIN_S = 10.0
_MOST_KEPT_BYTES = 1024 * 1024
# Characters of a line that are matched and kept, because a foreign program's lines have no limit.
_LONGEST_LINE = 4096
_MOST_WORDS = 1000
_HINT = "`gameday rehearsal up --guest` starts it alone; its output is in the folder guests/"
_LACKS = "; the embedded cluster has no CRDs and few API groups: where it asks for others, use `--cluster lab`"
_LEFT_OUT = b"(more was written, and is left out)\n"


def watch_guest(run: Run, targets: Targets) -> None:
    """Refuse if the guest does not watch every target; else follow it until the end of the run.

    Does nothing on a cluster without a guest, and for a fault that leaves its node whole.

    Raises:
        RefusedError: A target has no running program of the guest; the message has its last line of output.
        AdapterError: The rehearsal does not answer.
    """
    address = run.profile.guest
    if address is None or run.plan.fault.runs_on is NodeRole.API_CLIENT:
        return
    nodes = tuple(target.node for target in targets)
    why = guest_trouble(address, nodes)
    if why and not run.wait(why, _STARTS_WITHIN, lambda: not guest_trouble(address, nodes) or None, every_s=0.5):
        raise RefusedError(why, _HINT + (_LACKS if run.profile.lab_control is None else ""))
    run.note(GuestNamed(name=address.name, version=address.version, says=address.says or ""))
    watch = GuestWatch(run, address, nodes)
    run.background.callback(watch.stop)
    watch.start()
    watch_bystanders(run, nodes)


def guest_trouble(address: GuestAddress, nodes: Collection[str]) -> str:
    """Return why the guest does not watch all of these nodes, in words; empty if it does. Raises AdapterError."""
    guest = Guest(address)
    try:
        return printable("; ".join(without_secrets(why) for why in guest.troubles(nodes)), 1000)
    finally:
        guest.close()


@dataclass
class _Program:
    """A program of the guest, with its last state and its output so far."""

    seen: GuestProgram | None = None
    read_to: int = 0
    torn: str = ""
    """The beginning of a line that has not been read to its end."""
    kept_bytes: int = 0
    words: list[OutputLine] = field(default_factory=list)
    """The lines that match the guest's `says`."""


class GuestWatch:
    """Looks at the guest every two seconds, beside the run."""

    def __init__(self, run: Run, address: GuestAddress, nodes: Collection[str]) -> None:
        self._run = run
        self._guest = Guest(address)
        self._says = re.compile(address.says) if address.says else None
        self._nodes = tuple(nodes)
        self._programs: dict[str, _Program] = {}
        self._spoke_of: set[str] = set()
        self._answers = True
        self._repetition: Repetition | None = None

    def start(self) -> None:
        """Look once, and go on looking in the background."""
        self.look()
        self._repetition = self._run.clock.repeat("guest", self._look_again, _EVERY_S)

    def stop(self) -> None:
        """End the watch with a last look."""
        if self._repetition:
            self._repetition.stop(_ENDS_WITHIN_S)
        self.look()
        self._guest.close()

    def _look_again(self) -> float:
        self.look()
        return _EVERY_S

    def look(self) -> None:
        """Note what has changed since the last look."""
        try:
            programs = self._guest.programs_of(self._nodes)
            for instance, now in programs.items():
                known = self._programs.setdefault(instance, _Program())
                self._note_state(instance, known.seen, now)
                known.seen = now
                self._read_output(instance, known)
        except AdapterError as error:
            if self._answers:
                self._note_all("not answering", str(error))
            self._answers = False
            return
        if not self._answers:
            self._answers = True
            for instance, known in self._programs.items():
                self._note_state(instance, None, known.seen)
        self._note_words()

    def _note_state(self, instance: str, before: GuestProgram | None, now: GuestProgram | None) -> None:
        if now is None:
            return
        node, at = _node(instance), self._run.clock.now()
        if before and now.ended_by_itself > before.ended_by_itself:
            self._run.note(GuestState(node=node, change="ended by itself", at=at, detail=now.last_exit or ""))
        if now.flooded and not (before and before.flooded):
            self._run.note(GuestState(node=node, change="flooded", at=at))
        if before and (before.state, before.started) == (now.state, now.started):
            return
        if now.state == "running" and not now.flooded:
            self._run.note(GuestState(node=node, change="running", at=now.started or at))
        elif now.state == "down":
            self._run.note(GuestState(node=node, change="down", at=at, detail="its node is down"))
        elif now.state == "waiting" and before is None:
            self._run.note(GuestState(node=node, change="ended by itself", at=at, detail=now.last_exit or ""))

    def _note_all(self, change: str, detail: str) -> None:
        for instance in self._programs or dict.fromkeys(self._nodes):
            event = {"node": _node(instance), "change": change, "at": self._run.clock.now(), "detail": detail}
            self._run.note(GuestState.model_validate(event))

    def _read_output(self, instance: str, known: _Program) -> None:
        """Read what was written since the last look, page by page, because a flood is sixteen megabytes."""
        for lines in self._new_lines(instance, known):
            self._keep(instance, known, lines)
            if self._says:
                words = [line for line in lines if self._says.search(line.text)]
                known.words += words[: _MOST_WORDS - len(known.words)]

    def _new_lines(self, instance: str, known: _Program) -> Iterator[list[OutputLine]]:
        """Yield the whole lines of each new page, without those from before the run."""
        while True:
            page, behind = self._guest.output(instance, known.read_to)
            if behind <= known.read_to:
                return
            known.read_to = behind
            *whole, known.torn = (known.torn + page).split("\n")
            known.torn = known.torn[: 2 * _LONGEST_LINE]
            now = self._run.clock.now()
            lines = [stamped(text[:_LONGEST_LINE], now) for text in whole]
            yield [line for line in lines if line.at >= self._run.record.started]

    def _keep(self, instance: str, known: _Program, lines: list[OutputLine]) -> None:
        """Append the lines to the run's own file, up to its limit."""
        room = _MOST_KEPT_BYTES - known.kept_bytes
        if not lines or room <= 0:
            return
        written = [
            f"{one.at.isoformat(timespec='milliseconds')} {without_secrets(one.text)}\n".encode() for one in lines
        ]
        sizes = list(accumulate(map(len, written)))
        fit = bisect_right(sizes, room - len(_LEFT_OUT))
        kept = b"".join(written[:fit]) + (_LEFT_OUT if fit < len(written) else b"")
        known.kept_bytes += len(kept) if fit == len(written) else room
        file = self._run.record.folder / GUEST_FOLDER / f"{Path(instance).name}.log"
        with suppress(OSError):  # a full disk shows in the history first
            file.parent.mkdir(exist_ok=True)
            refuse_link(file.parent)
            with open_to_append(file) as out:
                out.write(kept)

    def _note_words(self) -> None:
        """Note the guest's first word about each target since its fault; a cluster-wide program has to name it."""
        if not self._says or self._spoke_of >= set(self._nodes):
            return
        history = self._run.history()
        for node in self._nodes:
            fault = next(iter(history.about(FaultInjected, node)), None)
            if fault is None or node in self._spoke_of:
                continue
            words = [one for name in (node, CLUSTER_INSTANCE) for one in self._words_about(name, node)]
            said = min((one for one in words if one.at >= fault[1].written_at), key=lambda one: one.at, default=None)
            if said:
                self._spoke_of.add(node)
                line = printable(without_secrets(said.text))
                self._run.note(GuestSpoke(node=node, line=line, at=said.at))

    def _words_about(self, instance: str, node: str) -> list[OutputLine]:
        words = self._programs[instance].words if instance in self._programs else []
        return words if instance == node else [one for one in words if _names(one.text, node)]


def _node(instance: str) -> str | None:
    return None if instance == CLUSTER_INSTANCE else instance


def _names(text: str, node: str) -> bool:
    """Return True if the text names this node, and not one with a name that only begins alike."""
    return re.search(rf"(?<![A-Za-z0-9_.-]){re.escape(node)}(?![A-Za-z0-9_-])", text) is not None

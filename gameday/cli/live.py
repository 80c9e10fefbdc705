"""Show a run as it happens, from nothing but its history file: the same view for a run of any process."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gameday.history.events import (
    Aborted,
    AlertSeen,
    AllocatableSeen,
    ConditionSeen,
    CordonSeen,
    FaultInjected,
    FaultUndone,
    NodeReplaced,
    NodeReturned,
    Problem,
    Record,
    RecoveryDisturbed,
    Refused,
    Remediated,
    RepairHopSeen,
    SteadyStateChecked,
    StepEnded,
    StepStarted,
    TaintSeen,
    TargetsChosen,
    WaitStarted,
)
from gameday.history.journal import HistoryTail
from gameday.text import printable
from gameday.values.results import Step, StepOutcome

_REFRESH_S = 0.2
_STYLES = {
    StepOutcome.DONE: "green",
    StepOutcome.BROKEN: "red",
    StepOutcome.UNKNOWN: "yellow",
    StepOutcome.ABORTED: "yellow",
    StepOutcome.NOT_REACHED: "dim",
    StepOutcome.NOT_ASKED: "dim",
}


class BackgroundView(ABC):
    """A view in a thread of its own for the length of a block."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self.follow, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        self._thread.join()

    @abstractmethod
    def follow(self) -> None:
        """Show what comes until `stopped`, and then what came last."""


class LiveView(BackgroundView):
    """Follows history.jsonl; a table of the steps on a terminal, a line per event elsewhere."""

    def __init__(self, history: Path, console: Console) -> None:
        super().__init__()
        self._history = HistoryTail(history)
        self._console = console
        self._first: Record | None = None
        self._started: dict[Step, tuple[Record, StepStarted]] = {}
        self._ended: dict[Step, tuple[Record, StepEnded]] = {}
        self._waiting: tuple[Record, WaitStarted] | None = None
        self._effects: list[Record] = []
        """Signals that were seen before the agent said that the fault is in: printed after it."""

    def follow(self) -> None:
        if not self._console.is_terminal:
            while not self.stopped.wait(_REFRESH_S):
                self._read()
            self._read()
            self._release(None)
            return
        with Live(self._table(), console=self._console, auto_refresh=False, transient=False) as live:
            while not self.stopped.wait(_REFRESH_S):
                self._read()
                live.update(self._table(), refresh=True)
            self._read()
            self._release(None)
            self._waiting = None
            live.update(self._table(), refresh=True)

    def _read(self) -> None:
        for record in self._history.added():
            self._take(record)

    def _take(self, record: Record) -> None:
        self._first = self._first or record
        match record.event:
            case StepStarted() as event:
                self._started[event.step] = (record, event)
            case StepEnded() as event:
                self._ended[event.step] = (record, event)
                self._waiting = None
            case WaitStarted() as event:
                self._waiting = (record, event)
            case AlertSeen() | TaintSeen() | ConditionSeen() | CordonSeen() | AllocatableSeen() if self._is_injecting:
                self._effects.append(record)
                return
        if isinstance(record.event, StepEnded):
            self._release(None)
        self._print(record)
        if isinstance(record.event, FaultInjected):
            self._release(record.event.target.node)

    @property
    def _is_injecting(self) -> bool:
        return Step.INJECT in self._started and Step.INJECT not in self._ended

    def _release(self, node: str | None) -> None:
        """Print the effects that were held back; those of one node, where it is given, and of no node at all."""
        held, self._effects = self._effects, []
        for record in held:
            if node is None or getattr(record.event, "node", None) in (node, None, ""):
                self._print(record)
            else:
                self._effects.append(record)

    def _print(self, record: Record) -> None:
        line = _line(record)
        if isinstance(record.event, WaitStarted) and record.event.step in self._ended:
            # The table shows what running steps wait for.
            line = Text(printable(f"waits for {record.event.what}"), style="yellow")
        if line is None:
            return
        stamp = Text(f"{self._offset_s(record):6.1f} s  ", style="dim")
        if not self._console.is_terminal:
            self._console.print(stamp + line, soft_wrap=True, highlight=False)
            return
        row = Table.grid()
        row.add_column(no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(stamp, line)
        self._console.print(row, highlight=False)

    def _offset_s(self, record: Record) -> float:
        """Return the seconds from the first record to when it happened: a fault is in before the agent can say so."""
        at, event = record.at, record.event
        if isinstance(event, FaultInjected):
            begun = self._started[Step.INJECT][0].at if Step.INJECT in self._started else at
            at = min(at, max(begun, event.written_at))  # the node's clock may be wrong
        return (at - (self._first or record).at).total_seconds()

    def _table(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("step", "", "elapsed", "waits for", "deadline"):
            table.add_column(
                column,
                header_style="dim",
                justify="right" if column in ("elapsed", "deadline") else "left",
                overflow="fold",
            )
        for step in Step:
            table.add_row(*self._row(step))
        return Group(Text(), table)

    def _row(self, step: Step) -> tuple[RenderableType, ...]:
        started, ended = self._started.get(step), self._ended.get(step)
        if ended:
            seconds = ended[0].monotonic - started[0].monotonic if started else None
            style = _STYLES[ended[1].outcome]
            elapsed = f"{seconds:.1f} s" if seconds is not None else ""
            return Text(step), Text(ended[1].outcome, style=style), elapsed, Text(""), Text("")
        if not started:
            return Text(step, style="dim"), "", "", "", ""
        waiting, deadline = Text(""), ""
        if self._waiting and self._waiting[1].step == step:
            record, event = self._waiting
            waiting = Text(printable(event.what))
            deadline = f"{max(0.0, event.deadline_s - (time.monotonic() - record.monotonic)):.0f} s"
        return (
            Text(step, style="bold"),
            Text("running", style="cyan"),
            f"{time.monotonic() - started[0].monotonic:.1f} s",
            waiting,
            deadline,
        )


def _line(record: Record) -> Text | None:  # noqa: C901, PLR0911, PLR0912 - one line per kind of event, flat
    """Return the line of an event that deserves one; None for the rest."""
    match record.event:
        case TargetsChosen(targets=targets):
            return Text("target " + ", ".join(map(str, targets)))
        case SteadyStateChecked(seconds=float() as seconds, node=node):
            return Text(f"log path of {node} alive, {seconds:.1f} s from kernel log to log store")
        case FaultInjected(fault=fault, target=target, layer=layer):
            return Text(f"fault {fault} is in on {target}, layer {layer}", style="bold")
        case RecoveryDisturbed(fault=fault, target=target, written_at=datetime()):
            return Text(f"fault {fault} is in on {target.node} while it is repaired", style="bold")
        case AlertSeen(state="firing", receivers=(_, *_)):
            return None  # printed before; noted again when Alertmanager named the receivers
        case AlertSeen(alert=alert, state=state, node=node, expected=expected, at_baseline=False):
            return Text(
                f"alert {alert} {state}" + (f" for {node}" if node else "") + ("" if expected else ", not expected")
            )
        case TaintSeen(node=node, taint=taint, present=present, manager=manager):
            return Text(
                f"taint {taint} {'on' if present else 'gone from'} {node}"
                + (f", by {manager}" if manager and present else "")
            )
        case ConditionSeen(node=node, condition=condition, status=status, reason=reason):
            why = f" ({printable(reason)})" if reason else ""
            return Text(f"condition {printable(condition)} of {node} is {status or 'gone'}{why}")
        case AllocatableSeen(node=node, gpus=gpus, before=before):
            return Text(f"{node} offers {gpus or 0} GPUs, and had {before or 0}")
        case CordonSeen(node=node, cordoned=cordoned):
            return Text(f"{node} {'cordoned' if cordoned else 'uncordoned'}")
        case Remediated(node=node, action=action, ok=ok, seconds=seconds):
            return Text(f"{action} of {node} {'done' if ok else 'failed'} after {seconds:.1f} s")
        case RepairHopSeen(hop=hop, node=node, by=by, took_s=took_s, since=since, repair=repair):
            kind = f" by {repair}" if repair else ""
            return Text(f"{node}: {hop}{kind}, by {printable(by)}, {took_s:.1f} s after {since}", style="bold")
        case NodeReplaced(node=node, successor=successor):
            return Text(f"{successor} takes the place of {node}", style="bold")
        case NodeReturned(node=node):
            return Text(f"{node} passed QA and is back in service", style="bold")
        case FaultUndone(cleanliness=cleanliness, intent=intent) if cleanliness != "clean":
            return Text(f"{intent}: {cleanliness}", style="red")
        case Problem(what=what, hint=hint):
            return Text(printable(what + (f" ({hint})" if hint else "")), style="yellow")
        case Refused(why=why, hint=hint):
            return Text(printable(f"refused: {why}" + (f"; {hint}" if hint else "")), style="red")
        case Aborted(by=by, why=why):
            return Text(printable(f"aborted by {by}: {why}; undoing"), style="yellow")
        case StepEnded(step=step, outcome=outcome, why=why) if outcome is not StepOutcome.NOT_REACHED:
            return Text(f"{step}: {outcome}" + (f": {printable(why)}" if why else ""), style=_STYLES[outcome])
    return None

"""Show a season live, from its runs' histories: a line for each run that begins, breaks something or ends."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gameday.checks.outcome import RunOutcome, RunResult
from gameday.cli.progress import how_far
from gameday.history.background import BackgroundView
from gameday.history.events import FaultInjected, Refused, RunStarted, TargetsChosen
from gameday.history.journal import HistoryTail
from gameday.plain_file import read_plain
from gameday.report.narration import narrate
from gameday.runs.comparison_page import result_of_member
from gameday.runs.comparison_record import ComparisonRecord
from gameday.runs.run_list import ARMS_FILE
from gameday.runs.season_record import APPROVAL_FILE, Assignment, SeasonRecord
from gameday.text import printable
from gameday.values.results import Cleanliness

_LOOKS_EVERY_S = 0.5
_STYLES = {"passed": "green", "failed": "red", "aborted": "yellow", "refused": "yellow", "unknown": "yellow"}


class SeasonView(BackgroundView):
    """Follows the folders of the season's runs, which are named after the season."""

    def __init__(self, reports: Path, season: str, console: Console, own: Path) -> None:
        """Follow the runs; `own` is the folder of the season's record, or of the comparison that is played as one."""
        super().__init__()
        self._reports = reports
        self._season = season
        self._console = console
        self._began = time.monotonic()
        self._approval = HistoryTail(own / APPROVAL_FILE)
        self._histories: dict[Path, HistoryTail] = {}
        self._names: dict[Path, str] = {}
        self._ended: set[Path] = set()
        self._own = own
        self._places: tuple[Assignment, ...] = ()
        """Empty until the record of the season or comparison exists."""

    def follow(self) -> None:
        for _ in self.looks(_LOOKS_EVERY_S):
            self._look()

    def _look(self) -> None:
        with suppress(OSError):  # most seasons have nothing to ask
            for record in self._approval.added():
                if said := narrate(record.event):
                    self._say(self._reports / self._season, Text(printable(said.text)))
        beside, compared = f"{self._season}-*", f"{self._season}-*/{self._season}-*"
        for folder in sorted([*self._reports.glob(beside), *self._reports.glob(compared)], key=lambda path: path.name):
            if folder in self._ended:
                continue
            self._read(folder)
            self._read_end(folder)

    def _read(self, folder: Path) -> None:
        history = self._histories.setdefault(folder, HistoryTail(folder / "history.jsonl"))
        try:
            records = history.added()
        except OSError:
            return
        for record in records:
            match record.event:
                case RunStarted(plan_name=name):
                    self._names[folder] = name
                case TargetsChosen(targets=targets):
                    self._say(folder, Text("begins on " + ", ".join(target.node for target in targets)))
                case FaultInjected(target=target):
                    self._say(folder, Text(f"the fault went in on {target.node}"))
                case Refused(why=why):
                    self._say(folder, Text(f"refused: {printable(why)}", style="yellow"))

    def _read_end(self, folder: Path) -> None:
        """Show the end of a run, from report.json: the second to last thing that a run writes.

        A comparison's game-day ends as its arm may; its page says that, too.
        """
        try:
            result = RunResult.model_validate(json.loads(read_plain(folder / "report.json"))["result"])
            if (folder.parent / ARMS_FILE).is_file():
                result = result_of_member(folder.parent, folder.name)
        except (OSError, ValueError, KeyError, TypeError):
            return
        self._ended.add(folder)
        outcome = result.outcome
        line = Text(outcome, style=f"bold {_STYLES.get(outcome, '')}")
        if result.cleanliness is not Cleanliness.CLEAN:
            line.append(f", cluster {result.cleanliness}", style="red")
        if outcome not in (RunOutcome.PASSED, RunOutcome.REFUSED):
            line.append(f": {printable(result.why)}", style="not bold")
        line.append(f"  {self._progress()}", style="not bold dim")
        self._say(folder, line)

    def _progress(self) -> str:
        """Return how far the season is, and when it will end, by its own pace or by the times that it drew."""
        if not self._places:
            with suppress(OSError, ValueError):
                compared = (self._own / ARMS_FILE).is_file()
                self._places = (
                    ComparisonRecord.load(self._own).runs if compared else SeasonRecord.load(self._own).places
                )
        done, total, passed_s = len(self._ended), len(self._places), time.monotonic() - self._began
        if not total:
            return ""
        left_s = passed_s / done * (total - done)
        if last := self._places[-1].drawn:
            left_s = max(last.at_s - passed_s, 0)
        return how_far(done, total, left_s)

    def _say(self, folder: Path, line: Text) -> None:
        head = (f"{time.monotonic() - self._began:6.1f} s  ", "dim")
        name = self._names.get(folder, folder.name)
        self._console.print(Text.assemble(head, (f"{name:<32} ", "cyan"), line), soft_wrap=True, highlight=False)

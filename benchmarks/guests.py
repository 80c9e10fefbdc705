"""The time, memory and processor time that a guest adds to a rehearsal, beside the same one that nobody watches.

Each round plays a game-day without a fault once with no detector and once with each guest, by turns. Prints medians,
and how many times the figure without a guest each is. A guest's own memory and processor time are those of all
processes below its launchers, of all nodes together.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import Part, Watched
from gameday.exit_codes import ExitCode
from gameday.history.journal import read_history
from gameday_rehearsal.guests.load import load_guest

_NOBODY = "no detector"
_PLAN = "nothing-happens"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guests", nargs="+", metavar="FILE", help="guests' files, such as examples/guests/gpud.yaml")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=8)
    options = parser.parse_args()
    watching = {_NOBODY: ["--detector", "off"]}
    watching |= {load_guest(file).guest.name: ["--guest", file] for file in options.guests}
    figures: dict[str, dict[str, list[float]]] = {}
    for _ in range(options.runs):
        for name, arguments in watching.items():
            for figure, value in _one_run(arguments, options.nodes).items():
                figures.setdefault(figure, {}).setdefault(name, []).append(value)
    print(f"{'':<34}" + "".join(f"{name:>32}" for name in watching))
    for figure, columns in figures.items():
        medians = [statistics.median(values) for values in columns.values()]
        print(f"{figure:<34}" + "".join(f"{_cell(value, medians[0]):>32}" for value in medians))


def _cell(value: float, without: float) -> str:
    return f"{value:.2f}" + (f"  x {value / without:.2f}" if without else "")


def _one_run(watching: Sequence[str], nodes: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as reports:
        argv = [sys.executable, "-m", "gameday.cli", "rehearse", _PLAN, "--reports", reports, "--nodes", str(nodes)]
        started = time.monotonic()
        process = subprocess.Popen([*argv, *watching], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        watched = Watched(process.pid)
        output, _ = process.communicate()
        wall = time.monotonic() - started
        watched.stop()
        # That nobody watches sets off an alert after a minute, and fails the game-day; it is measured all the same.
        if process.returncode not in (ExitCode.PASSED, ExitCode.FAILED):
            sys.exit(f"the rehearsal with {' '.join(watching)} ended with {process.returncode}:\n{output}")
        first = read_history(next(Path(reports).glob("*/history.jsonl"))).records[0].monotonic
    cost = watched.cost
    of_guest = cost.peak_memory.get(Part.GUESTS, 0) / 1e6
    return {
        "wall (s)": wall,
        "before the first event (s)": first - started,
        "all other processes (MB)": cost.peak_memory[Part.OTHERS] / 1e6,
        "guest, all nodes (MB)": of_guest,
        "guest, by node (MB)": of_guest / nodes,
        "guest, share of a core (%)": 100 * cost.cpu_s(Part.GUESTS) / wall,
    }


if __name__ == "__main__":
    main()

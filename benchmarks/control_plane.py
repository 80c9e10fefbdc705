"""The plans under plans/control-plane: their time, what a load costs by itself, how figures repeat, scheduling.

    python -m benchmarks.control_plane wall [PLAN ...]         # wall time, and all processes' CPU and memory, by plan
    python -m benchmarks.control_plane cost [PLAN ...]         # the load's own clients beside the API servers
    python -m benchmarks.control_plane repeat [--runs 5]       # k of apiserver-list-storm, half-life of apiserver-skew
    python -m benchmarks.control_plane scheduler               # pods bound in a second, beside upstream's figures

Each plays on a lab of its own, one after the other; the machine should be idle. `--keep DIR` keeps the game-days;
`--reports DIR` reads such, and plays nothing.

* k is the growth of API servers' memory for each byte of concurrent LISTs (gameday.checks.memory_slope), of arm table.
* The half-life is the time from the order to start two more API servers until the skew index less 1 is half of its
  most, twice running. It holds the time in which they start, and comes in steps of 5 s.
* `cost` has what a load says of its own clients; `wall` sees every process, the agents' start included, twice a second.
  A dash is not measured: the memory of steady clients and of informers, and all of a load that runs in its agent.
* `scheduler` plays scheduling-dra with pods created as fast as one client can, in three steps up to 3/4 of the GPUs of
  `--nodes`. Where pods are bound as fast as they come, the scheduler may be faster than the figure, and a line says so.
* The spread is the largest value less the smallest, by the median; CV the standard deviation by the mean.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from benchmarks import played
from benchmarks.processes import Part, PartsCost, Watched
from gameday.plan.catalogue import control_plane_plans
from gameday.report.run_folder import RunFolder

_MIB = 2**20
_CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class Figures:
    """Figures that should be the same in each game-day of an arm."""

    plan: str
    arm: str
    names: tuple[str, ...]


REPEATED = {
    "list-storm": Figures(
        "apiserver-list-storm",
        "table",
        ("k: memory by bytes of concurrent LISTs", "k of the heap in use", "R² of the line through the peaks"),
    ),
    "skew": Figures(
        "apiserver-skew",
        "goaway",
        ("skew: half-life", "skew: half-life by the model", "skew: time to fall below 1.3"),
    ),
}


@dataclass(frozen=True)
class Play:
    """A rehearsal that was played."""

    exit_code: int
    seconds: float
    """Wall time of the whole command, the cluster's start and end included."""
    began_at: datetime
    processes: PartsCost


def play(plan: Path, reports: Path, *options: str) -> Play:
    """Play a plan; its output is in rehearse.log beside the game-days.

    Args:
        plan: The plan's file.
        reports: A folder for its game-days alone.
        options: More options of `gameday rehearse`.
    """
    reports.mkdir(parents=True)
    argv = [sys.executable, "-m", "gameday.cli", "rehearse", str(plan), "--reports", str(reports), *options]
    print(f"{datetime.now(UTC):%H:%M:%S} load {os.getloadavg()[0]:.2f}: {reports.name}", file=sys.stderr, flush=True)
    with (reports / "rehearse.log").open("wb") as log:
        began_at, began = datetime.now(UTC), time.monotonic()
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        watched = Watched(process.pid)
        try:
            process.wait()
        finally:
            process.terminate()  # after Ctrl-C: it takes its cluster down with it
            process.wait()
            watched.stop()
    done = Play(process.returncode, time.monotonic() - began, began_at, watched.cost)
    print(f"{datetime.now(UTC):%H:%M:%S} exit {done.exit_code} after {done.seconds:.0f} s", file=sys.stderr, flush=True)
    return done


def wall(plans: Sequence[Path], folder: Path) -> None:
    """Print each plan's times, and the cost of its processes over the whole of that time."""
    table = _table("plan", "exit", "wall s", "cluster's start s", "arms", "repetitions", "game-day s")
    for part in Part:
        table.add_column(f"{part}: CPU s")
        table.add_column("MiB")
    table.add_column("clients: of machine's CPU")
    for plan in plans:
        done = play(plan, folder / plan.stem)
        runs = played.game_days(folder / plan.stem)
        arms, repetitions = played.repetitions(folder / plan.stem)
        # The first game-day begins when the cluster is there.
        start = (runs[0].history.records[0].at - done.began_at).total_seconds() if runs else None
        median = statistics.median(map(played.seconds_of, runs)) if runs else None
        cells = [plan.stem, str(done.exit_code), f"{done.seconds:.1f}", _text(start, ".1f")]
        cells += [str(arms), str(repetitions), _text(median, ".1f")]
        for part in Part:
            cells += [f"{done.processes.cpu_s(part):.1f}", _mib(done.processes.peak_memory.get(part))]
        table.add_row(*cells, f"{done.processes.cpu_s(Part.CLIENTS) / done.seconds / _CORES:.1%}")
    _print(table)


def cost(runs: Sequence[RunFolder]) -> None:
    """Print what each game-day's load cost by itself beside the API servers, over the time of the load."""
    table = _table("game-day", "load s", "clients: cores", "API servers: cores", "ratio", "of machine")
    for column in ("clients: MiB", "API servers: MiB", "ratio", "game-day: cores", "game-day: MiB"):
        table.add_column(column)
    for run in runs:
        found = played.load_cost(run)
        if found is None:
            table.add_row(played.name_of(run), "no load")
            continue
        clients, servers, own = found.clients, found.api_servers, found.game_day
        table.add_row(
            found.name,
            f"{found.seconds:.0f}",
            _text(clients.cores, ".3f"),
            _text(servers.cores, ".3f"),
            _text(played.ratio(clients.cores, servers.cores), ".2f"),
            _text(played.ratio(clients.cores, _CORES), ".1%"),
            _mib(clients.memory),
            _mib(servers.memory),
            _text(played.ratio(clients.memory, servers.memory), ".2f"),
            _text(own.cores, ".3f"),
            _mib(own.memory),
        )
    _print(table)


def repeat(runs: Sequence[RunFolder], names: Sequence[str]) -> None:
    """Print the values of figures that should repeat, with their spread."""
    for name in names:
        wanted = REPEATED[name]
        plan = f"{wanted.plan}-{wanted.arm}"
        print(f"{plan}: {sum(played.name_of(run) == plan for run in runs)} game-days")
        for figure in wanted.names:
            found = played.repeated(runs, plan, figure)
            values = " ".join(f"{value:.3g}" for value in found.values)
            if not found.values:
                print(f"  {figure:<42} in none")
                continue
            print(f"  {figure:<42} median {found.median:.3g}, spread {found.spread:.1%}, ", end="")
            print(f"CV {_text(found.variation, '.1%')}, of {len(found.values)}: {values}")


def scheduler(runs: Sequence[RunFolder]) -> None:
    """Print pods bound in a second by arm, and how many times upstream's published figures that is."""
    for run in runs:
        found = played.throughput(run)
        if found is None:
            print(f"{played.name_of(run)}: no step of pods was bound")
            continue
        print(f"{found.name}: {found.binds_per_s:.1f} pods/s in the last step, ", end="")
        print(f"{found.binds_per_s_of_all:.1f} in all, {found.pods} pods; ", end="")
        print(f"SLI p50 {_text(found.p50_s, '.3f')} s, p99 {_text(found.p99_s, '.3f')} s")
        limit = (
            "their creation is the limit, and not the scheduler" if found.is_held_back else "the scheduler is the limit"
        )
        print(f"    created at about {found.created_per_s:.0f}/s, by plan {found.planned_per_s:g}/s: {limit}")
        for published in played.PUBLISHED[found.allocation]:
            most, least = found.binds_per_s / published.least, found.binds_per_s / published.most
            print(f"    {_range(least, most, '.2f')} times {_range(published.least, published.most, 'g')}/s", end="")
            print(f": {published.what}")
        if not played.PUBLISHED[found.allocation]:
            print("    no figure of upstream's to set beside it")


def crowded(plan: Path, nodes: int, folder: Path) -> Path:
    """Write the plan with pods created as fast as it allows, in three steps up to 3/4 of all GPUs; return its file."""
    content = yaml.safe_load(plan.read_bytes())
    content["fault"] |= {"rate": 1000, "patience": 600, "steps": [nodes * 2] * 3, "hold": "15m"}
    content["guardrails"]["max_duration"] = "25m"
    written = folder / plan.name
    written.write_text(yaml.safe_dump(content, sort_keys=False))
    return written


def _table(*columns: str) -> Table:
    return Table(*columns, box=MARKDOWN)


def _print(table: Table) -> None:
    """Print a table as Markdown, at its own width."""
    Console(width=400).print(table)


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _range(least: float, most: float, form: str) -> str:
    return " to ".join(dict.fromkeys(format(value, form) for value in (least, most)))


def _mib(value: float | None) -> str:
    return _text(played.ratio(value, _MIB), ".0f")


def _plans(names: Sequence[str]) -> list[Path]:
    """Return the files of the named plans, or all of them. Ends with a word about a name that none has."""
    found = control_plane_plans()
    if unknown := sorted(set(names) - set(found)):
        sys.exit(f"no plan {', '.join(unknown)} under plans/control-plane; there are: {', '.join(found)}")
    return [found[name] for name in names or found]


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gameday-control-plane-") as made:
        folder = keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("wall", "cost", "repeat", "scheduler"):
        own = commands.add_parser(command)
        own.add_argument("--keep", type=Path, help="new folder for the game-days that are played")
        if command != "wall":
            own.add_argument("--reports", type=Path, help="folder of game-days; nothing is played")
        if command in ("wall", "cost"):
            own.add_argument("plans", nargs="*", metavar="PLAN", help="file's name without .yaml; all if none is named")
        if command == "repeat":
            own.add_argument("--figures", nargs="+", choices=REPEATED, default=list(REPEATED), help="default: both")
            own.add_argument("--runs", type=int, default=5)
        if command == "scheduler":
            own.add_argument("--nodes", type=int, default=100, help="of eight GPUs")
    return parser.parse_args()


def main() -> None:
    options = _options()
    with _folder(options.keep) as folder:
        if options.command == "wall":
            wall(_plans(options.plans), folder)
            return
        if options.reports is None:
            _play_for(options, folder)
        runs = played.game_days(options.reports or folder)
        if not runs:
            sys.exit(f"no game-day in {options.reports or folder}: rehearse.log, which --keep keeps, has the reason")
        match options.command:
            case "cost":
                cost(runs)
            case "repeat":
                repeat(runs, options.figures)
            case "scheduler":
                scheduler(runs)


def _play_for(options: argparse.Namespace, folder: Path) -> None:
    """Play what a command reads."""
    match options.command:
        case "cost":
            for plan in _plans(options.plans):
                play(plan, folder / plan.stem)
        case "repeat":
            for run in range(options.runs):
                for name in options.figures:
                    wanted = REPEATED[name]
                    play(_plans([wanted.plan])[0], folder / f"{name}-{run + 1}", "--arm", wanted.arm)
        case "scheduler":
            plan = crowded(_plans(["scheduling-dra"])[0], options.nodes, folder)
            play(plan, folder / "played", "--nodes", str(options.nodes))


if __name__ == "__main__":
    main()

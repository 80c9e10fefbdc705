"""The cost of a game-day to API servers of clusters of different sizes: requests, bytes, our own CPU time and memory.

The budget is our own: at most 40 requests and 1 MB for a one-node game-day,
and no more than 1.2 times its own cost at 100 nodes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gameday.history.events import ApiCost, OwnCost
from gameday.history.journal import History, read_history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    for nodes in parser.parse_args().nodes:
        _measure(nodes)


def _measure(nodes: int) -> None:
    with tempfile.TemporaryDirectory() as reports:
        argv = [sys.executable, "-m", "gameday.cli", "rehearse", "--reports", reports, "--nodes", str(nodes)]
        started = time.monotonic()
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        history = read_history(next(Path(reports).glob("*/history.jsonl")))
    print(f"{nodes} nodes: exit {done.returncode}, {time.monotonic() - started:.0f} s with the cluster's start")
    for cost in history.of(ApiCost):
        print(f"  {cost.server:<13} {cost.requests:5} requests {cost.bytes_received:10} B in {cost.bytes_sent:9} B out")
        if cost.server == "kubernetes":
            for call, count in sorted(cost.by_call.items(), key=lambda item: -item[1]):
                print(f"      {count:4}  {call}")
    _print_own(history)


def _print_own(history: History) -> None:
    """The length is from the first event to the last: without the cluster's start, and without the report."""
    length_s = history.records[-1].monotonic - history.records[0].monotonic
    if own := history.last(OwnCost):
        memory = own.peak_rss_bytes / 1e6
        print(f"  length {length_s:.1f} s; own {own.cpu_s:.1f} s of processor, {memory:.0f} MB at most")


if __name__ == "__main__":
    main()

"""Play all schedules and print the figures: `python -m tests.undo_schedules [--plans NAME …]`."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.support.memory_folder import memory_folder
from tests.undo_schedules.instants import plans
from tests.undo_schedules.schedules import Tally, play_all


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.undo_schedules", description=__doc__)
    parser.add_argument("--plans", nargs="+", metavar="NAME", default=list(plans()), help="only these plans")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    arguments = parser.parse_args(argv)
    began, total = time.monotonic(), Tally()
    with ProcessPoolExecutor(arguments.jobs, initializer=gc.freeze) as pool:
        for plan, tally in zip(arguments.plans, pool.map(_play, arguments.plans), strict=True):
            total.add(tally)
            print(f"{plan:40s} {tally.schedules:6d} schedules, {tally.states:6d} states, {len(tally.wrong)} wrong")
    for schedule, wrong in total.wrong.items():
        print(f"{schedule}: {'; '.join(wrong)}")
    took = time.monotonic() - began
    print(f"{total.schedules} schedules, {total.states} played, {len(total.wrong)} wrong, {took:.0f} s")
    return 1 if total.wrong else 0


def _play(plan: str) -> Tally:
    with memory_folder() as folder:
        return play_all(plan, folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

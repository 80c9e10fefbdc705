"""`python -m tests.torture`: game-days that are killed, cancelled, put to sleep and robbed of their servers.

Prints the count of runs and of leaks; exit 1 on a leak or on anything else
that should not be, each with the command that plays it again.
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import shlex
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.torture.lanes import Lane, arena
from tests.torture.matrix import Combination, chosen, everything
from tests.torture.play import Playing, Result, heal


def main() -> int:
    arguments = _arguments()
    # What nohup makes us ignore, the runs must not: a handler is not handed down, an ignored signal is.
    signal.signal(signal.SIGHUP, lambda *_: None)
    for which in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores the first
        signal.signal(which, signal.default_int_handler)
    combinations = arguments.play or (everything() if arguments.all else chosen(arguments.seed, arguments.runs))
    with tempfile.TemporaryDirectory(prefix="torture-") as scratch:
        folder = (arguments.folder or Path(scratch)).resolve()
        started = time.monotonic()
        with arena(folder, min(arguments.lanes, len(combinations))) as lanes:
            results = _play_all(lanes, combinations)
        took = time.monotonic() - started
    return _judge(results, len(combinations), took, arguments.seed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which combinations, and in which order")
    parser.add_argument("--runs", type=int, default=40, help="how many of them")
    parser.add_argument("--all", action="store_true", help="every combination: hours")
    parser.add_argument("--lanes", type=int, default=3, help="game-days side by side")
    parser.add_argument("--play", type=Combination.parse, nargs="+", metavar="PLAN/BLOW/PLACE", help="these alone")
    parser.add_argument("--folder", type=Path, help="keep everything that was written here")
    return parser.parse_args()


def _play_all(lanes: list[Lane], combinations: list[Combination]) -> list[Result]:
    todo: queue.SimpleQueue[tuple[int, Combination]] = queue.SimpleQueue()
    for number, combination in enumerate(combinations):
        todo.put((number, combination))
    results: list[Result] = []
    ended, over = threading.Semaphore(0), threading.Event()

    def work(lane: Lane) -> None:
        """A server that a lane started again dies with the lane's thread, which so outlasts the other lanes' work."""
        try:
            _play_on(lane, todo, results, len(combinations))
        finally:
            ended.release()
            over.wait()

    for lane in lanes:
        threading.Thread(target=work, args=(lane,), name=lane.name, daemon=True).start()
    still = len(lanes)
    try:
        while still:
            ended.acquire()
            still -= 1
    except KeyboardInterrupt:
        print("no more runs; those under way come to their end (Ctrl-C again does not wait)", flush=True)
        with contextlib.suppress(queue.Empty):
            while True:
                todo.get_nowait()
        for _ in range(still):
            ended.acquire()
    over.set()
    return results


def _play_on(lane: Lane, todo: queue.SimpleQueue[tuple[int, Combination]], results: list[Result], of: int) -> None:
    """Play on this lane until nothing is left to play."""
    while True:
        try:
            number, combination = todo.get_nowait()
        except queue.Empty:
            return
        playing = Playing(lane, combination, number)
        try:
            result = playing.play()
        except Exception as error:  # the harness' own error is reported like any other, and costs one run
            result = playing.result
            result.trouble.append(f"{type(error).__name__}: {error}")
        results.append(result)
        _say(len(results), of, result)
        if not result.good:
            heal(lane)


def _say(number: int, of: int, result: Result) -> None:
    word = "LEAK" if result.leaks else "TROUBLE" if result.trouble else "clean"
    ended = "killed" if result.exit_code is None else f"exit {result.exit_code}"
    print(
        f"{number:4}/{of}  {word:7}  {result.seconds:5.1f} s  {ended:8}  {result.reaped} reaped  {result.combination}",
        flush=True,
    )
    for line in (*result.leaks, *result.trouble):
        print(f"           {line}", flush=True)


def _judge(results: list[Result], wanted: int, took: float, seed: int) -> int:
    leaks = [result for result in results if result.leaks]
    troubled = [result for result in results if result.trouble and not result.leaks]
    plans = {result.combination.plan for result in results}
    blows = {result.combination.blow for result in results}
    print(
        f"\n{len(results)} of {wanted} runs in {took / 60:.1f} minutes, seed {seed}: {len(plans)} faults, "
        f"{len(blows)} blows, {len({result.combination.place for result in results})} places"
    )
    print(f"{len(leaks)} leaks, {len(troubled)} other troubles")
    for result in (*leaks, *troubled):
        again = shlex.join(["--play", str(result.combination)])
        print(f"  make torture ARGS={shlex.quote(again)}")
    return 0 if len(results) == wanted and not leaks and not troubled else 1


if __name__ == "__main__":
    sys.exit(main())

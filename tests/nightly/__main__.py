"""`make nightly`: every suite that there is, round after round, and the passes of each test over all of them.

Each round's JUnit files stay in the folder. Called again after it was killed, it goes on with the suite that it was at.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.nightly import left, page
from tests.nightly.play import play
from tests.nightly.record import WANTED_PERCENT, Round, begin, durations, following, record, rounds
from tests.nightly.suites import ROOT, SUITES, Suite
from tests.support.quarantine import Quarantined, is_listed, quarantined

INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None, suites: Sequence[Suite] = SUITES) -> int:
    """Return 0 where every test passed, 1 where one failed that is not in quarantine, 130 after a Ctrl-C."""
    options = _options(arguments, suites)
    listed = quarantined()
    for which in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores the first, and so would the suites
        signal.signal(which, signal.default_int_handler)
    left.adopt_orphans()
    chosen = [suite for suite in suites if not options.suite or suite.name in options.suite]
    cannot = {suite.name: why for suite in chosen if (why := suite.why_not())}
    for name, why in cannot.items():
        _say(f"{name} cannot be played here: {why}")
    todo = [suite for suite in chosen if suite.name not in cannot]
    if not todo:
        _say("nothing was played")
        return 1
    deadline = time.monotonic() + options.hours * 3600 if options.hours is not None else None
    status = 0
    try:
        for suite, round_ in _left(options.folder, todo, options.rounds, deadline):
            _play(suite, round_)
    except KeyboardInterrupt:
        _say("stopped; called again it goes on with this suite")
        status = INTERRUPTED
    kept = record(options.folder, listed)
    page.write(options.folder, kept, cannot)
    for test in kept.below:
        _say(f"below {WANTED_PERCENT} %: {test.id}: {test.passed} of {test.passed + test.failed}")
    _say(f"the page: {options.folder / page.PAGE}")
    return status or _judge(_failed(options.folder), listed)


def _options(arguments: Sequence[str] | None, suites: Sequence[Suite]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make nightly", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how often every suite is played")
    parser.add_argument("--hours", type=float, help="begin no suite after so many hours")
    parser.add_argument("--folder", type=Path, default=ROOT / "reports" / "nightly", help="where everything is kept")
    parser.add_argument(
        "--suite", action="append", choices=[suite.name for suite in suites], help="this one alone; may be repeated"
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


def _left(folder: Path, todo: Sequence[Suite], count: int, deadline: float | None) -> Iterator[tuple[Suite, Round]]:
    """Yield what is still to be played, and say before each what comes after it."""
    round_ = begin(folder, [suite.name for suite in todo], count)
    while True:
        missing = [suite for suite in todo if not round_.was_played(suite.name)]
        for index, suite in enumerate(missing):
            rounds_left = round_.last - round_.number
            after = missing[index + 1 :]
            if deadline is not None and time.monotonic() > deadline:
                _say(f"no suite is begun any more; left of round {round_.number}: {_names(missing[index:])}")
                return
            estimate = _estimate(durations(folder), [suite, *after, *todo * rounds_left])
            _say(f"round {round_.number} of {round_.last}: {suite.name}; then {_names(after)}; {estimate}")
            yield suite, round_
        if round_.number >= round_.last:
            return
        round_ = following(folder, round_.number + 1, round_.last)


def _play(suite: Suite, round_: Round) -> None:
    began = time.monotonic()
    outcomes = play(suite, round_, Path.home() / ".prefect")
    counts = {True: "passed", False: "failed", None: "skipped"}
    said = [f"{n} {word}" for what, word in counts.items() if (n := sum(one.passed is what for one in outcomes))]
    _say(f"  {suite.name}: {', '.join(said)} in {_minutes(time.monotonic() - began)}")


def _failed(folder: Path) -> dict[str, str]:
    """Return the failed tests of the rounds that were asked for together with the newest one."""
    known = rounds(folder)
    asked = [one for one in known if one.last == known[-1].last]
    return {out.test: out.why for one in asked for out in one.outcomes() if out.passed is False}


def _judge(failed: Mapping[str, str], listed: Sequence[Quarantined]) -> int:
    """Name what fails the nightly: tests, but for those in quarantine, and a quarantine that lasts too long."""
    wrong = [f"failed: {test}: {why}" for test, why in failed.items() if not is_listed(test, listed)]
    wrong += [
        f"in quarantine since {one.since}, longer than a week: mend or delete {one.test}"
        for one in listed
        if one.is_overdue(datetime.now(UTC).date())
    ]
    for line in wrong:
        _say(line)
    for test in failed:
        if is_listed(test, listed):
            _say(f"failed in quarantine: {test}")
    return int(bool(wrong))


def _estimate(known: Mapping[str, float], suites: Sequence[Suite]) -> str:
    """Return how long the suites will take by what they took."""
    unknown = {suite.name for suite in suites if suite.name not in known}
    sum_s = sum(known.get(suite.name, 0.0) for suite in suites)
    others = f" without those never played yet, {', '.join(sorted(unknown))}" if unknown else ""
    return f"{_minutes(sum_s)} left{others}"


def _names(suites: Sequence[Suite]) -> str:
    return ", ".join(suite.name for suite in suites) or "nothing"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

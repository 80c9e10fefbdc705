"""`python -m gameday.api_clients.follow`: a process with one client that follows many objects.

The first line on standard input is a FollowOrder; the client begins at the second line, and ends with standard input:
its agent is dead, or ends it. Every line on standard output is a FollowerLine.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

from gameday.api_clients.follower import Follower, FollowerLine, FollowOrder


def main() -> int:
    """Follow until standard input ends, and return the exit status."""
    follower = Follower(FollowOrder.model_validate_json(sys.stdin.readline()), _say)
    _say(FollowerLine(ready=True))
    sys.stdin.readline()
    thread = threading.Thread(target=follower.run)
    thread.start()
    while sys.stdin.readline():
        pass
    follower.end()
    thread.join()
    _say(FollowerLine(ended=follower.traffic))
    return 0


def _say(line: FollowerLine) -> None:
    with suppress(BrokenPipeError):  # the agent is gone, and the client ends with standard input
        print(line.model_dump_json(exclude_defaults=True), flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m gameday_control_plane.api_clients.follow`: a process with one client that follows many objects.

The first line on standard input is a FollowOrder; the client begins at the second line, and ends when standard input
does, because its agent has died or ends it. Every line on standard output is a FollowerLine.
"""

from __future__ import annotations

import sys

from gameday_control_plane.api_clients.follower import Follower, FollowerLine, FollowOrder
from gameday_control_plane.api_clients.serve import run_until_input_ends, say


def main() -> int:
    """Follow until standard input ends, and return the exit status."""
    follower = Follower(FollowOrder.model_validate_json(sys.stdin.readline()), say)
    return run_until_input_ends(follower, FollowerLine(ready=True), lambda: FollowerLine(ended=follower.traffic))


if __name__ == "__main__":
    sys.exit(main())

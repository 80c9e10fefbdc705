"""`python -m tests.torture.skewed HOURS HOSTNAME run …`: `gameday` on a machine of another name whose clock is wrong.

No clock of this machine is touched: the process gets another time wherever
the locks ask for one. Monotonic clocks run as everywhere.
"""

from __future__ import annotations

import platform
import sys
from datetime import datetime, timedelta
from typing import Any

from gameday import cli
from gameday.clock import Clock
from gameday.ledger.lease import Leases


def main() -> int:
    hours, hostname, *arguments = sys.argv[1:]

    class Wrong(Clock):
        def now(self) -> datetime:
            return super().now() + timedelta(hours=float(hours))

    begin = Leases.__init__

    def begin_wrong(leases: Leases, *arguments: Any, **options: Any) -> None:
        begin(leases, *arguments, **options)
        leases._clock = Wrong()

    Leases.__init__ = begin_wrong  # type: ignore[method-assign]
    platform.node = lambda: hostname
    return int(cli.run(arguments))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.torture.skewed HOURS HOSTNAME run …`: `gameday` on a machine of another name whose clock is wrong.

No clock of this machine is touched: the process gets another time wherever
the locks ask for one. Monotonic clocks run as everywhere.
"""

from __future__ import annotations

import platform
import sys
from datetime import datetime, timedelta, tzinfo

from gameday import cli
from gameday.ledger import lease


def main() -> int:
    hours, hostname, *arguments = sys.argv[1:]

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(hours=float(hours))

    vars(lease)["datetime"] = Wrong
    platform.node = lambda: hostname
    return int(cli.run(arguments))


if __name__ == "__main__":
    sys.exit(main())

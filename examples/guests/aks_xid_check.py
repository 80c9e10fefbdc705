#!/usr/bin/env python3
"""A check for node-problem-detector: new Xids of AKS' list in the node's kernel log.

The list, the two hours and the rule "only what is newer than at the last check" are AKS' (docs/guests.md). KERNEL_LOG
names a file in rsyslog's traditional format, LAST_SEEN a file that keeps the time of the newest line reported.
Exit status: 0 nothing new, 1 Xids found.
"""

import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

XIDS = {48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120}
RECENT = timedelta(hours=2)
LINE = re.compile(r"(?P<at>\w{3} +\d+ [\d:]{8}) .*Xid.*: (?P<code>\d+),")


def main() -> int:
    """Print the new Xids; return the exit status."""
    last_seen = Path(os.environ["LAST_SEEN"])
    seen = datetime.fromisoformat(last_seen.read_text()) if last_seen.exists() else datetime.min.replace(tzinfo=UTC)
    now = datetime.now(UTC)
    with Path(os.environ["KERNEL_LOG"]).open(encoding="utf-8", errors="replace") as log:
        matches = [match for match in map(LINE.match, log) if match and int(match["code"]) in XIDS]
    found = {int(match["code"]): at for match in matches if max(seen, now - RECENT) < (at := when(match["at"], now))}
    if not found:
        print("no new Xid")
        return 0
    last_seen.write_text(max(found.values()).isoformat())
    print("Xids found:", ", ".join(map(str, sorted(found))))
    return 1


def when(stamp: str, now: datetime) -> datetime:
    """Return a stamp's time. A stamp has no year: if it would be in the future, it is from the year before."""
    at = datetime.strptime(f"{now.year} {stamp}", "%Y %b %d %H:%M:%S").astimezone()
    return at if at <= now + timedelta(days=1) else at.replace(year=at.year - 1)


if __name__ == "__main__":
    sys.exit(main())

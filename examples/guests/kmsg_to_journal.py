#!/usr/bin/env python3
"""Print a node's kernel log in the journal's export format, for systemd-journal-remote: KMSG.

Like journald, it takes the first word of a user's line for an identifier if the word ends in a colon, and cuts it off
(docs/sources.md, Who reads which line).
"""

import re
import socket
import sys
import time
from pathlib import Path

RECORD_BYTES = 8192
IDENTIFIER = re.compile(r"(?P<name>[^\s:]{1,64}): *")


def main() -> None:
    """Print every record until the log ends."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    host = socket.gethostname()
    _print(boot, host, 6, "kernel", "the journal begins")  # NVSentinel begins after the journal's last entry
    with Path(sys.argv[1]).open("rb", buffering=0) as log:
        while record := log.read(RECORD_BYTES):
            head, _, text = record.decode("utf-8", "replace").rstrip("\n").partition(";")
            priority = int(head.split(",")[0])
            word = IDENTIFIER.match(text) if priority >> 3 else None
            name = word["name"] if word else "kernel"
            _print(boot, host, priority & 7, name, text[word.end() :] if word else text)


def _print(boot: str, host: str, severity: int, name: str, message: str) -> None:
    fields = {
        "__REALTIME_TIMESTAMP": time.time_ns() // 1000,
        "__MONOTONIC_TIMESTAMP": time.monotonic_ns() // 1000,
        "_BOOT_ID": boot,
        "_HOSTNAME": host,
        "_TRANSPORT": "kernel",
        "PRIORITY": severity,
        "SYSLOG_IDENTIFIER": name,
        "MESSAGE": message,
    }
    print("".join(f"{key}={value}\n" for key, value in fields.items()), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Copy a node's kernel log into several pipes, for a detector with parts that each open it: SOURCE COPY...

One read is one record, as with /dev/kmsg, and so is one write: the copies are pipes in packet mode (O_DIRECT).
"""

import fcntl
import os
import sys
from pathlib import Path

RECORD_BYTES = 8192
PIPE_BYTES = 1 << 20  # a packet takes a page, so 256 records wait for a reader that has not come yet


def main() -> None:
    """Copy until the source ends."""
    source, *copies = map(Path, sys.argv[1:])
    pipes = [made(copy) for copy in copies]
    with source.open("rb", buffering=0) as log:
        while record := log.read(RECORD_BYTES):
            for pipe in pipes:
                os.write(pipe, record)


def made(copy: Path) -> int:
    """Make a pipe and open it, for reading too, because nobody else may have opened it yet."""
    copy.unlink(missing_ok=True)
    os.mkfifo(copy, 0o600)
    pipe = os.open(copy, os.O_RDWR)
    fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_DIRECT)
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return pipe


if __name__ == "__main__":
    main()

"""Judge the histories of many killed runs at once, in processes of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from gameday.runs.run_row import is_judged, judged_run

_LEAST_BYTES = 40_000_000
"""Bytes of histories above which a process of its own pays: it starts in a second, which judges 25 to 40 MB."""
_MOST_PROCESSES = 4
"""A run of 500 nodes takes 300 MB while it is judged."""


def judge_ahead(folders: Sequence[Path]) -> None:
    """Judge the runs that no page has judged, and leave each result in the run's folder for `judged_run`.

    A run that cannot be judged is left to `judged_run`, which says why. Few or small histories are left to it as well.

    Args:
        folders: Folders of runs without a report.
    """
    histories = {folder: folder / "history.jsonl" for folder in folders}
    waiting = [folder for folder, history in histories.items() if history.is_file() and not is_judged(folder)]
    if len(waiting) < 2 or sum(histories[folder].stat().st_size for folder in waiting) < _LEAST_BYTES:
        return
    count = min(len(waiting), os.cpu_count() or 1, _MOST_PROCESSES)
    # Not forked: a digest in Prefect's worker has threads, and a fork would copy what they hold.
    with ProcessPoolExecutor(count, get_context("spawn"), _leave_ctrl_c_to_parent) as pool:
        try:
            for _ in pool.map(_judge, waiting):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _leave_ctrl_c_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _judge(folder: Path) -> None:
    with suppress(Exception):
        judged_run(folder)

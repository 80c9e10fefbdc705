"""Where reports go when they leave this machine, and how long they stay on it.

A place is whatever fsspec can write: a folder, S3, GCS, Azure, SFTP. Which of
these are installed, and with what credentials, is the machine's affair.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec

from gameday.archive.catalog import Shelf, ShelvedRun
from gameday.errors import PublishError
from gameday.report.notes import nobody_wrote
from gameday.values.results import Cleanliness

_AGAIN = "What lies here is whole: `gameday export RUN --publish-to` tries again"
_TAIL_BYTES = 64 * 1024
"""A run_ended record has a hundred bytes and is the last of its history."""


def publish(folder: Path, url: str) -> str:
    """Copy a run's folder under `url` and return the URL of its copy; raises PublishError.

    Copying again replaces the copy; another run of the same name that lies
    there already is not replaced.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return _copy(folder, files, url.rstrip("/") + "/" + folder.name)


def publish_pages(reports: Path, names: Sequence[str], url: str) -> str:
    """Copy pages of the reports folder itself (digest, index) beside the published runs; raises PublishError."""
    return _copy(reports, [reports / name for name in names], url.rstrip("/"))


def _copy(folder: Path, files: Sequence[Path], url: str) -> str:
    try:
        system, root = fsspec.url_to_fs(url)  # type: ignore[no-untyped-call]
        _refuse_another(system, root, folder)
        for path in files:
            target = f"{root}/{path.relative_to(folder).as_posix()}"
            system.makedirs(target.rpartition("/")[0], exist_ok=True)
            system.pipe_file(target, path.read_bytes())
    except PublishError:
        raise
    except ImportError as error:
        raise PublishError(f"{url}: {error}. {_AGAIN}") from None
    except Exception as error:  # every storage has errors of its own; some print the request with its signature
        raise PublishError(
            f"{url} cannot be written ({type(error).__name__}): is it there, and who may write? {_AGAIN}"
        ) from None
    return str(system.unstrip_protocol(root))


def _refuse_another(system: Any, root: str, folder: Path) -> None:
    """A run's name is the second it began; two clusters may share a bucket."""
    try:
        with (folder / "history.jsonl").open("rb") as file:
            ours = file.readline()
    except OSError:
        return
    there = f"{root}/history.jsonl"
    if system.exists(there) and not system.cat_file(there, 0, len(ours)) == ours:
        raise PublishError(f"{root} holds another run of this name; publish each cluster under a URL of its own")


@dataclass(frozen=True)
class Verdict:
    """Whether a run's folder may go, and the rule that says so."""

    run: ShelvedRun
    goes: bool
    why: str


def retention(shelf: Shelf, keep: int, newer_than: timedelta, now: datetime) -> tuple[Verdict, ...]:
    """What a clean-up would do with each run, newest first. Incidents are people's work and never part of it.

    A run stays while it is among the newest `keep` of its plan on its cluster or
    began within `newer_than`; whatever its age, while it is evidence of an unclean
    cluster, its history was never closed (it may be running), or people wrote
    into its notes.
    """
    seen: Counter[tuple[str, str]] = Counter()
    verdicts = []
    for run in shelf.runs:
        series = run.summary.plan, run.summary.cluster_id
        seen[series] += 1
        verdicts.append(_judge(run, seen[series], keep, now - newer_than))
    return tuple(verdicts)


def _judge(run: ShelvedRun, place: int, keep: int, oldest: datetime) -> Verdict:
    stays = next(_reasons_to_stay(run, place, keep, oldest), "")
    return Verdict(run, not stays, stays or f"older, and not among the newest {keep} of its plan on its cluster")


def _reasons_to_stay(run: ShelvedRun, place: int, keep: int, oldest: datetime) -> Iterator[str]:
    """Those that cost a look into the folder last."""
    if run.summary.cleanliness is not Cleanliness.CLEAN:
        yield f"evidence: the cluster was left {run.summary.cleanliness}"
    if run.folder.name != run.summary.run_id:
        yield "somebody named the folder: it is no longer the run's own"
    if place <= keep:
        yield f"among the newest {keep} of its plan on its cluster"
    if run.summary.started >= oldest:
        yield "new enough"
    if not nobody_wrote(run.folder):
        yield "people wrote about it"
    if not _closed(run.folder / "history.jsonl"):
        yield "its history was never closed"


def _closed(history: Path) -> bool:
    try:
        with history.open("rb") as file:
            file.seek(max(0, history.stat().st_size - _TAIL_BYTES))
            return b'"kind":"run_ended"' in file.read()
    except OSError:
        return False


def remove(verdicts: Sequence[Verdict]) -> None:
    """Delete the folders that may go; raises OSError."""
    for verdict in verdicts:
        if verdict.goes:
            shutil.rmtree(verdict.run.folder)

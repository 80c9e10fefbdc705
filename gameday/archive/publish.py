"""Copy reports to wherever fsspec can write: a folder, S3, GCS, Azure, SFTP.

The machine decides which of these are installed, and with what credentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec

from gameday.arms.record import ARMS_FILE, ComparisonRecord
from gameday.errors import PublishError
from gameday.league.record import LEAGUE_FILE, parse_record
from gameday.plain_file import NO_PLACE, not_written, open_plain, read_plain

_RETRY_HINT = "The local copy is complete: `gameday export FOLDER --publish-to` tries again"


def publish(folder: Path, url: str) -> str:
    """Copy a run's folder, or a comparison's or a league's with its game-days, to a place under `url`.

    A second call replaces the copy. A game-day of a comparison or a league goes into the copy of that folder, where the
    links of its page lead.

    Returns:
        The URL of the copy.

    Raises:
        PublishError: The place cannot be written, or holds another run, comparison or league of the same name; or the
            folder holds a symbolic link.
    """
    folder = folder.resolve()
    found = sorted(folder.rglob("*"))
    if link := next((path for path in found if path.is_symlink()), None):
        raise PublishError(f"{link} is a symbolic link, whose target is not published: put a copy in its place")
    return _copy(
        folder,
        [path for path in found if path.is_file()],
        "/".join((url.rstrip("/"), *folders_around(folder), folder.name)),
    )


def folders_around(folder: Path) -> tuple[str, ...]:
    """Return the folders of the comparison, or of the league and its detector, that a game-day's folder is in."""
    beside, league = folder.parent, folder.parent.parent
    if (beside / ARMS_FILE).is_file():
        return (beside.name,)
    return (league.name, beside.name) if (league / LEAGUE_FILE).is_file() else ()


def publish_pages(reports: Path, names: Sequence[str], url: str) -> str:
    """Copy pages of the reports folder itself (digest, index) beside the published runs.

    Returns:
        The URL of the folder they are in.

    Raises:
        PublishError: The place cannot be written.
    """
    return _copy(reports, [reports / name for name in names], url.rstrip("/"))


def _copy(folder: Path, files: Sequence[Path], url: str) -> str:
    try:
        system, root = fsspec.url_to_fs(url)  # type: ignore[no-untyped-call]
        _refuse_other_run(system, root, folder)
        _refuse_other_group(system, root, folder)
        for path in files:
            target = f"{root}/{path.relative_to(folder).as_posix()}"
            system.makedirs(target.rpartition("/")[0], exist_ok=True)
            system.pipe_file(target, read_plain(path))
    except PublishError:
        raise
    except ImportError as error:
        raise PublishError(f"{url}: {error}. {_RETRY_HINT}") from None
    except Exception as error:  # every storage has errors of its own; some print the request with its signature
        if isinstance(error, OSError) and error.errno in NO_PLACE:
            raise PublishError(f"{url}: {not_written(error, 'its disk')}. {_RETRY_HINT}") from None
        raise PublishError(
            f"{url} cannot be written ({type(error).__name__}): does it exist, and may this user write there? "
            f"{_RETRY_HINT}"
        ) from None
    return str(system.unstrip_protocol(root))


def _refuse_other_run(system: Any, root: str, folder: Path) -> None:
    """Refuse to replace another run: a run is named after the second it began, and two clusters may share a bucket."""
    try:
        with open_plain(folder / "history.jsonl") as file:
            ours = file.readline()
    except OSError:
        return
    theirs = f"{root}/history.jsonl"
    if system.exists(theirs) and not system.cat_file(theirs, 0, len(ours)) == ours:
        raise PublishError(f"{root} holds another run of this name; publish each cluster under a URL of its own")


def _refuse_other_group(system: Any, root: str, folder: Path) -> None:
    """Refuse to replace another comparison or league, which may have the same name for the same reason."""
    for file, (what, identity) in _IDENTITIES.items():
        theirs = f"{root}/{file}"
        if not (folder / file).is_file() or not system.exists(theirs):
            continue
        if identity(read_plain(folder / file)) != identity(system.cat_file(theirs)):
            raise PublishError(f"{root} holds another {what} of this name; publish each cluster under a URL of its own")


def _identity_of_comparison(content: bytes) -> tuple[str, datetime]:
    record = ComparisonRecord.model_validate_json(content)
    return record.cluster, record.started


def _identity_of_league(content: bytes) -> tuple[str, datetime]:
    record = parse_record(content)
    return record.source, record.started


_IDENTITIES = {
    ARMS_FILE: ("comparison", _identity_of_comparison),
    LEAGUE_FILE: ("league", _identity_of_league),
}

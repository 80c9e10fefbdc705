"""Copy reports to wherever fsspec can write: a folder, S3, GCS, Azure, SFTP.

The machine decides which of these are installed, and with what credentials.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec

from gameday.errors import PublishError
from gameday.plain_file import NO_PLACE, not_written, open_plain, read_plain
from gameday.runs.run_list import ARMS_FILE

_RETRY_HINT = "The local copy is complete: `gameday export FOLDER --publish-to` tries again"


def publish(folder: Path, url: str) -> str:
    """Copy a run's folder, or a comparison's with its game-days, to a place under `url`.

    A second call replaces the copy. A game-day of a comparison goes into the copy of that folder, where the links of
    its page lead.

    Returns:
        The URL of the copy.

    Raises:
        PublishError: The place cannot be written, or holds another run or comparison of the same name; or the folder
            holds a symbolic link.
    """
    folder = folder.resolve()
    found = sorted(folder.rglob("*"))
    if link := next((path for path in found if path.is_symlink()), None):
        raise PublishError(f"{link} is a symbolic link, and its target is not published: put a copy in its place")
    where = "/".join((url.rstrip("/"), *filter(None, (comparison_around(folder),)), folder.name))
    return _copy(folder, [path for path in found if path.is_file()], where)


def comparison_around(folder: Path) -> str:
    """Return the name of the comparison's folder that a game-day's folder is in; empty if it is in none."""
    return folder.parent.name if (folder.parent / ARMS_FILE).is_file() else ""


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
        _refuse_other_comparison(system, root, folder)
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


def _refuse_other_comparison(system: Any, root: str, folder: Path) -> None:
    """Refuse to replace another comparison, which may have the same name for the same reason."""
    theirs = f"{root}/{ARMS_FILE}"
    if not (folder / ARMS_FILE).is_file() or not system.exists(theirs):
        return
    ours, other = (json.loads(content) for content in (read_plain(folder / ARMS_FILE), system.cat_file(theirs)))
    if any(ours[key] != other[key] for key in ("cluster", "started")):
        raise PublishError(f"{root} holds another comparison of this name; publish each cluster under a URL of its own")

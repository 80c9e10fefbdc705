"""Artifacts in the Prefect UI. They are optional: a step's own work is done by then, even without Prefect's server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from gameday.report.markdown import escaped

SERVED_FOLDER_VARIABLE = "GAMEDAY_SERVED_PAGES_FOLDER"
"""Folder with the pages that `gameday up` serves; set in its worker's environment."""
SERVED_URL_VARIABLE = "GAMEDAY_SERVED_PAGES_URL"
"""The base URL of these pages."""


@contextmanager
def where_prefect_answers() -> Iterator[None]:
    """Continue without the block's artifacts if Prefect's server does not answer at two attempts.

    Prefect's own six attempts take 75 s for each artifact, while a person waits for the result.
    """
    with suppress(httpx.HTTPError), temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1}):
        yield


def served_url(page: Path) -> str | None:
    """Return the URL at which the worker's `gameday up` serves a page; None if it does not, or there is none."""
    base, folder = os.environ.get(SERVED_URL_VARIABLE), os.environ.get(SERVED_FOLDER_VARIABLE)
    if not base or not folder or not page.is_relative_to(folder):
        return None
    return base + quote(page.relative_to(folder).as_posix())


def show_page(key: str, words: str, url: str, why: str) -> None:
    """Show a page in the Prefect UI, if there is one: as a link if a browser can open it, and its text as Markdown.

    A browser opens no `file://` link from a web page, so a file's path is written below the text. If `gameday up`
    serves the file, the link leads there.

    Args:
        key: The artifact's key.
        words: Markdown with escaped values.
        url: The page's URL.
        why: One line for lists of artifacts.
    """
    if not PREFECT_API_URL.value():  # `gameday reap` by hand
        return
    parts = urlsplit(url)
    file = Path(url2pathname(parts.path)) if parts.scheme == "file" else None
    link = served_url(file) if file else url if parts.scheme in ("http", "https") else None
    place = f"{file} on the worker's machine" if file else url
    opens = f"[Open the whole page]({link})\n\n" if link else ""
    where = "" if link == url else f"\n\nThe whole page: {escaped(place)}"
    show_markdown(key, opens + words + where, why)


def show_markdown(key: str, markdown: str, why: str) -> None:
    """Show Markdown as an artifact of the flow run; Prefect's page shows those of its tasks below the fold.

    Args:
        key: The artifact's key.
        markdown: Its text, with every value escaped.
        why: One line for lists of artifacts.
    """
    context = FlowRunContext.get()
    run = context.flow_run.id if context and context.flow_run else None
    shown = ArtifactCreate(key=key, type="markdown", data=markdown, description=why, flow_run_id=run)
    with where_prefect_answers(), get_client(sync_client=True) as client:
        client.create_artifact(shown)

"""Artifacts in the Prefect UI, which are optional: a step's own work is done by then, also without Prefect's server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from gameday.report.markdown import escaped


@contextmanager
def where_prefect_answers() -> Iterator[None]:
    """Go on without the artifacts of the block where Prefect's server does not answer at two attempts.

    Prefect's own six attempts take 75 s for each artifact, while a person waits for the result.
    """
    with suppress(httpx.HTTPError), temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1}):
        yield


def show_page(key: str, words: str, url: str, why: str) -> None:
    """Show a page in the Prefect UI: its words as Markdown, and a link where a browser can open the page.

    A browser opens no `file://` link from a web page, so a file's path is written below the words.

    Args:
        key: The artifact's key.
        words: Markdown, whose values are escaped.
        url: The page's URL.
        why: One line for lists of artifacts.
    """
    parts = urlsplit(url)
    opens = parts.scheme in ("http", "https")
    place = f"{url2pathname(parts.path)} on the worker's machine" if parts.scheme == "file" else url
    where = "" if opens else f"\n\nThe whole page: {escaped(place)}"
    with where_prefect_answers():
        create_markdown_artifact(key=key, markdown=words + where, description=why)
        if opens:
            create_link_artifact(key=f"{key}-page", link=url, link_text="the whole page")

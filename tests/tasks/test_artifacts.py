"""Pages in the Prefect UI: words always, and a link only where a browser can open it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

import gameday.tasks.artifacts
from gameday.tasks.artifacts import SERVED_FOLDER_VARIABLE, SERVED_URL_VARIABLE, served_url, show_page


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The artifacts by their keys, where a server is named."""
    artifacts: dict[str, str] = {}
    monkeypatch.setattr(
        gameday.tasks.artifacts, "show_markdown", lambda key, markdown, why: artifacts.update({key: markdown})
    )
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        yield artifacts


def test_without_a_server_there_is_no_page_to_show(made: dict[str, str]) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        show_page("digest", "All held.", "https://reports.example/digest.html", "All held.")
    assert made == {}


def test_a_page_on_the_web_has_words_and_a_link(made: dict[str, str]) -> None:
    show_page("digest", "All *held*.", "https://reports.example/digest.html", "All held.")
    assert made == {"digest": "[Open the whole page](https://reports.example/digest.html)\n\nAll *held*."}


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("file:///srv/game%20days/a_b.html", r"/srv/game days/a\_b.html on the worker's machine"),
        ("s3://bucket/digest.html", "s3://bucket/digest.html"),
    ],
)
def test_a_page_that_no_browser_opens_has_its_place_in_words(url: str, place: str, made: dict[str, str]) -> None:
    show_page("digest", "All held.", url, "All held.")
    assert made == {"digest": f"All held.\n\nThe whole page: {place}"}


def test_a_page_below_the_served_folder_has_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path("/srv/reports/r 1/report.html")
    assert served_url(page) is None
    monkeypatch.setenv(SERVED_URL_VARIABLE, "http://127.0.0.1:8000/")
    monkeypatch.setenv(SERVED_FOLDER_VARIABLE, "/srv/reports")
    assert served_url(page) == "http://127.0.0.1:8000/r%201/report.html"
    assert served_url(Path("/srv/other/report.html")) is None


def test_a_page_that_is_served_has_its_place_and_a_link(made: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVED_URL_VARIABLE, "http://127.0.0.1:8000/")
    monkeypatch.setenv(SERVED_FOLDER_VARIABLE, "/srv")
    show_page("digest", "All held.", "file:///srv/digest.html", "All held.")
    assert made["digest"].startswith("[Open the whole page](http://127.0.0.1:8000/digest.html)\n\nAll held.")
    assert made["digest"].endswith("The whole page: /srv/digest.html on the worker's machine")

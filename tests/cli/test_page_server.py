"""The server of a reports folder's pages: pages only, of this folder only, to this machine only, for its block."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gameday.cli.page_server import served_pages
from gameday.errors import StartError


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    run = tmp_path / "reports" / "run 1"
    run.mkdir(parents=True)
    (run / "report.html").write_text("<p>passed</p>")
    (run / "history.jsonl").write_text("{}")
    (tmp_path / "outside.html").write_text("secret")
    (run / "link.html").symlink_to(tmp_path / "outside.html")
    return tmp_path / "reports"


@pytest.fixture
def base(reports: Path) -> Iterator[str]:
    with served_pages(reports) as url:
        yield url


def test_a_page_opens_while_the_block_lasts(reports: Path) -> None:
    with served_pages(reports) as url:
        answer = httpx.get(f"{url}run%201/report.html")
        assert (answer.status_code, answer.text) == (200, "<p>passed</p>")
        assert answer.headers["Content-Type"] == "text/html"
        assert url.startswith("http://127.0.0.1:")
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


@pytest.mark.parametrize(
    "path", ["", "run%201/", "run%201", "run%201/history.jsonl", "run%201/link.html", "%2e%2e/outside.html", "no.html"]
)
def test_nothing_else_is_served(path: str, base: str) -> None:
    answer = httpx.get(base + path)
    assert (answer.status_code, "secret" in answer.text) == (404, False)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(method: str, base: str, reports: Path) -> None:
    assert httpx.request(method, f"{base}run%201/report.html", content=b"x").status_code == 501
    assert (reports / "run 1" / "report.html").read_text() == "<p>passed</p>"


def test_a_foreign_name_for_this_machine_reads_nothing(base: str) -> None:
    assert httpx.get(f"{base}run%201/report.html", headers={"Host": "evil.example"}).status_code == 404


def test_a_folder_that_comes_later_is_served(tmp_path: Path) -> None:
    with served_pages(tmp_path / "later") as url:
        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "digest.html").write_text("weekly")
        assert httpx.get(f"{url}digest.html").text == "weekly"


def test_where_no_port_can_be_had_nothing_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.cli.page_server._LOOPBACK", "192.0.2.1")  # RFC 5737: an address of no machine
    with pytest.raises(StartError, match="no port"), served_pages(tmp_path):
        pytest.fail("serves")

"""The embedded server says what the real one said when the goldens were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubesim.apiserver.conftest import Server as Process
from tests.kubesim.conformance import differences, golden
from tests.kubesim.conformance.exchange import Server
from tests.kubesim.conformance.play import play
from tests.kubesim.conformance.scripts import all_scripts

SCRIPTS = all_scripts()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    process = Process(tmp_path_factory.mktemp("embedded"))

    def forget() -> None:
        process.end()
        process.start()

    yield Server(process.url, process.folder / "admin.kubeconfig", forget)
    process.end()


@pytest.mark.parametrize("name", SCRIPTS)
def test_says_what_the_real_server_says(server: Server, name: str) -> None:
    found = differences.compare(golden.read(name), play(server, name, SCRIPTS[name]))
    listed = [entry for entry in differences.listed() if entry.script == name]
    new = [str(one) for one in found if not any(entry.covers(name, one) for entry in listed)]
    mended = [entry for entry in listed if not any(entry.covers(name, one) for one in found)]
    assert not new, f"{len(new)} differences that differences.yaml does not list:\n" + "\n".join(new)
    assert not mended, f"mended: delete from differences.yaml: {mended}"


def test_what_is_recorded_is_what_was_said(server: Server, tmp_path: Path) -> None:
    found = play(server, "recorded", SCRIPTS["methods"])
    golden.write("recorded", found, tmp_path)
    assert differences.compare(golden.read("recorded", tmp_path), found) == []


def test_goldens_and_listed_differences_belong_to_scripts() -> None:
    assert {path.stem for path in golden.GOLDEN.glob("*.jsonl")} == {*SCRIPTS}
    assert {entry.script for entry in differences.listed()} <= {*SCRIPTS}


def test_every_listed_difference_has_a_reason() -> None:
    assert all(len(entry.why.split()) >= 3 for entry in differences.listed())


def test_the_page_shows_the_listed_differences() -> None:
    run = "run: python -m tests.kubesim.conformance.differences"
    assert Path(differences.PAGE).read_text(encoding="utf-8") == differences.page_with_table(), run

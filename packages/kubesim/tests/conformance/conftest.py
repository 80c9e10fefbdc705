from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.kubesim.conformance.exchange import Server
from tests.kubesim.conformance.play import play
from tests.kubesim.conformance.scripts import all_scripts
from tests.kubesim.processes import ApiServer

Play = Callable[[str], list[dict[str, Any]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", default=False, help="record the real server's answers anew (test_lab.py)"
    )


@pytest.fixture(scope="session")
def kubesim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the scripts alone, since some of them restart it."""
    process = ApiServer(tmp_path_factory.mktemp("conformance"))

    def forget() -> None:
        process.end()
        process.start()

    yield Server(process.url, process.folder / "admin.kubeconfig", forget)
    assert process.end() == 0


@pytest.fixture(scope="session")
def played(kubesim: Server) -> Play:
    """Plays a script against kubesim, once in a session: its namespace is there afterwards."""
    scripts = all_scripts()
    return cache(lambda name: play(kubesim, name, scripts[name]))

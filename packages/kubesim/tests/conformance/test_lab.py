"""The real server answers as it was recorded: the recordings are true, and the scripts can be repeated.

pytest tests/kubesim/conformance/test_lab.py -m lab --record    # record anew
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubesim.conformance import differences, golden
from tests.kubesim.conformance.exchange import Server
from tests.kubesim.conformance.play import play
from tests.kubesim.conformance.real import real_server
from tests.kubesim.conformance.scripts import all_scripts
from tests.rehearsal.lab.plane import need_programs

SCRIPTS = all_scripts()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_programs()
    with real_server(tmp_path_factory.mktemp("real")) as running:
        yield running


@pytest.mark.lab
@pytest.mark.parametrize("name", SCRIPTS)
def test_says_what_the_golden_says(server: Server, name: str, pytestconfig: pytest.Config) -> None:
    found = play(server, name, SCRIPTS[name])
    if pytestconfig.getoption("--record"):
        golden.write(name, found)
    differing = [str(one) for one in differences.compare(golden.read(name), found)]
    assert not differing, "\n".join(differing)

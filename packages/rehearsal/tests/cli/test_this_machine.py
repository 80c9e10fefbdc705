"""`gameday rehearse --this-machine` before anything is started: wrong options, and a machine that is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday import cli
from gameday.exit_codes import ExitCode
from gameday.host.base import GpuSample
from gameday_rehearsal.cli.this_machine import _alone
from gameday_rehearsal.this_machine import sight
from gameday_rehearsal.this_machine.sight import Sight

GPU = GpuSample(index=0, uuid="GPU-1", name="H200", pci_bus_id="0000:4e:00", persistence_mode=True, ecc_mode=True)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine be one with a mock GPU, on which everything may be done."""
    monkeypatch.setattr(sight, "look", lambda: Sight((GPU,), False, False, (), ("a real GPU",)))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--this-machine", "--nodes", "4"], ExitCode.USAGE, "--nodes is about virtual nodes"),
        (["--this-machine", "--guest", "detector"], ExitCode.USAGE, "--guest is about virtual nodes"),
        (["--this-machine", "--may", "all"], ExitCode.USAGE, "--may change,reset"),
        (["--may", "change"], ExitCode.USAGE, "add --this-machine"),
        (["node-reboot", "--this-machine"], ExitCode.REFUSED, "with the machine"),
        (["no-such-plan", "--this-machine"], ExitCode.USAGE, "no shipped plan of this name"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(
    words: list[str], code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["rehearse", *words]) == code
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("machine")
def test_two_game_days_do_not_share_a_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with _alone():
        assert cli.run(["rehearse", "--this-machine", "--reports", str(tmp_path)]) == ExitCode.REFUSED
    assert "another game-day is being played on this machine" in " ".join(capsys.readouterr().err.split())
    with _alone():
        pass


def test_a_machine_without_what_it_needs_is_refused_with_all_reasons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sight, "look", lambda: Sight((), False, False, ("no GPU", "no kernel log"), ()))
    assert cli.run(["rehearse", "--this-machine"]) == ExitCode.REFUSED
    assert "no GPU; no kernel log" in capsys.readouterr().err

"""`gameday coverage` before its first run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from gameday.cli import coverage, run
from gameday.exit_codes import ExitCode
from gameday_rehearsal.cli.embedded_cluster import Embedded
from tests.detectors.profiles import PLAN, PROFILE

Capture = pytest.CaptureFixture[str]
SERVERS = "".join(f"{name}: {{url: 'http://127.0.0.1:9'}}\n" for name in ("prometheus", "alertmanager", "loki"))


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    """The season of a plan that names a detector profile of the team's own, on a cluster whose profile has it."""
    detectors = tmp_path / "detectors"
    detectors.mkdir()
    (detectors / "ours.yaml").write_text(PROFILE)
    (tmp_path / "plan.yaml").write_text(PLAN.replace("detector: ours.yaml", "detector: ours"))
    (tmp_path / "profile.yaml").write_text(f"{SERVERS}detector_profiles: ['{detectors}']\n")
    given = ["--profile", str(tmp_path / "profile.yaml"), "--reports", str(tmp_path / "reports")]
    return ["coverage", str(tmp_path / "plan.yaml"), *given]


@pytest.mark.slow
def test_plans_may_use_the_detector_profiles_of_the_cluster(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "play_season", lambda *_: ExitCode.PASSED)
    assert run(argv) == ExitCode.PASSED


def test_an_unusable_profile_is_reported_before_its_plans(argv: list[str], tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "profile.yaml").write_text("prometeus: {}\n")
    assert run(argv) == ExitCode.USAGE
    assert "did you mean prometheus?" in capsys.readouterr().err


def test_a_guest_watches_virtual_nodes_only(argv: list[str], capsys: Capture) -> None:
    assert run([*argv, "--guest", "true"]) == ExitCode.USAGE
    assert "add --rehearse" in capsys.readouterr().err


@pytest.mark.parametrize(("asked", "release"), [([], "newer"), (["--exporter", "3.3.5"], "3.3.5")])
def test_a_seasons_page_names_the_exporters_release(
    asked: list[str], release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    started: list[str] = []

    @contextmanager
    def embedded(*_: object, exporter: str, **__: object) -> Iterator[Embedded]:
        started.append(exporter)
        yield Embedded(SimpleNamespace(profile=None))

    def play(out: object, season: object, profile: object, command: str, trigger: str) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr("gameday_rehearsal.cli.virtual_clusters.start_embedded", embedded)
    monkeypatch.setattr("gameday.cli.coverage.play_season", play)
    assert run(["coverage", "dcgm-recovery-action", "--rehearse", *asked]) == 0
    assert started == [release]
    assert f"--exporter {release}" in commands[0]


def test_the_exporter_of_real_nodes_cannot_be_chosen(capsys: Capture) -> None:
    assert run(["coverage", "--exporter", "newer"]) == ExitCode.USAGE
    assert "--exporter chooses what virtual nodes export: add --rehearse" in capsys.readouterr().err

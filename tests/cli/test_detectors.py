"""`gameday detectors`, and what `gameday validate` says of a profile and of a plan that names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cli import run
from gameday.exit_codes import ExitCode
from tests.detectors.profiles import PLAN, PROFILE, written


def test_the_list_names_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detectors"]) == ExitCode.PASSED
    said = capsys.readouterr().out
    assert all(name in said for name in ("nvsentinel", "konduktor", "device-plugin", "NVSentinel with quarantine"))


def test_a_teams_folder_is_listed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "ours.yaml", PROFILE, "", "")
    assert run(["detectors", "--detectors", str(tmp_path)]) == ExitCode.PASSED
    assert "Our own detector" in capsys.readouterr().out


def test_show_prints_a_detectors_actions_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detectors", "show", "konduktor"]) == ExitCode.PASSED
    said = capsys.readouterr().out
    assert "taint trainy.konduktor.ai/faulty=true:NoSchedule within 20s, typically 5s" in said
    assert "cannot see it: It reads kernel logs only" in said
    assert "docs/sources.md, Konduktor" in said


def test_show_says_what_was_seen_and_what_only_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = "source: our runbook, 2\n", "source: our runbook, 2\n    evidence: seen\n    seen_on: 2026-11-24\n"
    file = written(tmp_path / "ours.yaml", PROFILE + "    evidence: read\n", *rules)
    assert run(["detectors", "show", str(file)]) == ExitCode.PASSED
    said = capsys.readouterr().out
    assert "    our runbook, 1\n" in said
    assert "    seen here on 2026-11-24; our runbook, 2\n" in said
    assert "    read only; our runbook, 3\n" in said


def test_show_suggests_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detectors", "show", "konductor"]) == ExitCode.USAGE
    assert "did you mean konduktor?" in capsys.readouterr().err


def test_validate_takes_a_profile_for_what_its_kind_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = written(tmp_path / "ours.yaml", PROFILE, "", "")
    assert run(["validate", str(good)]) == ExitCode.PASSED
    bad = written(tmp_path / "ours.yaml", PROFILE, "xid: [79]", "xid: ['79']")
    assert run(["validate", str(bad)]) == ExitCode.USAGE
    assert "ours.yaml:11:18: rules[0].when.xid[0]" in capsys.readouterr().err


def test_validate_finds_a_plans_detector_in_a_teams_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profiles").mkdir()
    written(tmp_path / "profiles" / "ours.yaml", PROFILE, "", "")
    plan = written(tmp_path / "plan.yaml", PLAN, "detector: ours.yaml", "detector: ours")
    assert run(["validate", str(plan)]) == ExitCode.USAGE
    assert "no detector profile of this name" in capsys.readouterr().err
    assert run(["validate", str(plan), "--detectors", str(tmp_path / "profiles")]) == ExitCode.PASSED


def test_rehearse_refuses_a_detector_nobody_knows_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rehearse", "--detector", "nvsentinal"]) == ExitCode.USAGE
    assert "did you mean nvsentinel?" in capsys.readouterr().err

"""`gameday validate`, `plans`, `schema`: what they print, where, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gameday.cli import run
from gameday.exit_codes import ExitCode
from gameday.plan.catalogue import package_plans
from tests.plan.plans import GOOD, changed

GOOD_HEAD = "apiVersion: gameday/v1\nname: a-plan\ntitle: A plan\nhypothesis: Somebody notices.\n"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD, encoding="utf-8")
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(changed("within: 15s\n  taints", "within: 15\n  taints"), encoding="utf-8")
    return path


def test_a_good_plan_is_one_line_on_stdout(good: Path, capsys: Capture) -> None:
    assert run(["validate", str(good)]) == ExitCode.PASSED
    out, err = capsys.readouterr()
    assert out == f"ok  {good}  a-plan\n"
    assert err == ""


@pytest.mark.slow
def test_every_shipped_plan_is_valid_at_each_of_its_scales(capsys: Capture) -> None:
    plans = sorted(str(path) for path in (*Path("plans").rglob("*.yaml"), *package_plans().values()))
    assert run(["validate", *plans]) == ExitCode.PASSED
    assert capsys.readouterr().out.count("ok  ") == len(plans) > 80


def test_a_bad_plan_ends_64_and_does_not_keep_the_others_from_being_read(
    good: Path, bad: Path, capsys: Capture
) -> None:
    assert run(["validate", str(bad), str(good), "no-such-plan"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == f"ok  {good}  a-plan\n"
    assert err.splitlines()[:3] == [
        f"{bad}:14:15: expect.alerts[0].within: a duration is written with its unit, like 60s, 5m or 1m30s",
        "    value: 15",
        "    suggestion: write `15s`",
    ]
    assert "no-such-plan: there is no such file, and no shipped plan of this name" in err


def test_a_plan_whose_fault_harms_its_detector_is_good_and_warned_of(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "good.yaml"
    fault = "{type: sxid, sxid: 20034, pci: 0000:c1:00}"
    path.write_text(f"{GOOD_HEAD}detector: nvsentinel\nfault: {fault}\nexpect: {{}}\n", encoding="utf-8")
    assert run(["validate", str(path)]) == ExitCode.PASSED
    out, err = capsys.readouterr()
    assert out == f"ok  {path}  a-plan\n"
    assert err.startswith(f"warning: {path}: detector nvsentinel: Its syslog-health-monitor never gets past")
    assert "/var/lib/nvsentinel/gpu_metadata.json" in err


def test_square_brackets_are_no_markup(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "[red]x.yaml"
    path.write_text(GOOD, encoding="utf-8")
    run(["validate", str(path)])
    assert "[red]x.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(("no_color", "coloured"), [("1", False), ("", True)])
def test_colour_only_where_it_is_wanted(
    good: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    run(["validate", str(good)])
    assert ("\x1b[32m" in capsys.readouterr().out) is coloured


def test_schema_goes_to_stdout_or_a_file(tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "s.json"
    assert run(["schema"]) == run(["schema", "-o", str(target)]) == ExitCode.PASSED
    out = capsys.readouterr().out
    assert target.read_text(encoding="utf-8") == out
    assert json.loads(out)["title"] == "Plan"


def test_schema_says_why_it_cannot_write(tmp_path: Path, capsys: Capture) -> None:
    assert run(["schema", "-o", str(tmp_path / "no" / "s.json")]) == ExitCode.USAGE
    assert "s.json: no such file or directory" in capsys.readouterr().err


def test_validate_lists_the_arms_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "compare-remediations"]) == ExitCode.PASSED
    assert "arm reboot: recover.remediation: reboot" in capsys.readouterr().out


SERVERS = "".join(f"{name}: {{url: 'http://127.0.0.1:9'}}\n" for name in ("prometheus", "alertmanager", "loki"))


def test_a_cluster_profile_is_checked_as_one(tmp_path: Path, capsys: Capture) -> None:
    good, bad = tmp_path / "cluster.yaml", tmp_path / "bad.yaml"
    good.write_text(f"name: prod\n{SERVERS}")
    bad.write_text(f"name: prod\n{SERVERS.replace('prometheus', 'prometeus')}guardrails: {{max_nodes: many}}\n")
    assert run(["validate", str(good), str(bad)]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == f"ok  {good}  prod\n"
    assert f"{bad}: prometeus: no such key; did you mean prometheus?" in err
    assert "guardrails.max_nodes" in err
    assert "hypothesis" not in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name: mine\nrules: []\n", "begin it with `kind: HealthPolicy` or `kind: DetectorProfile`"),
        ("id: season-1\ntrigger: manual\nplaces: []\n", "this is the record of a season"),
    ],
)
def test_a_file_that_is_no_plan_is_told_what_it_is(content: str, said: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.yaml").write_text(content)
    assert run(["validate", str(tmp_path / "x.yaml")]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert said in err
    assert "hypothesis" not in err

"""The lab's options on `gameday lab up`, `gameday rehearse` and `gameday rehearsal up`, and a plan's own settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cli import run
from gameday.cluster.lab_control import Verb
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plan.rehearsal import Balance, LabComponent, RehearsalSettings
from gameday_rehearsal.cli.lab import _VERBS
from gameday_rehearsal.cli.lab_options import LabOptions
from gameday_rehearsal.lab.settings import STOCK
from tests.plan.plans import GOOD

Capture = pytest.CaptureFixture[str]


def test_no_option_is_the_stock_lab() -> None:
    assert LabOptions().settings() == STOCK
    assert list(LabOptions().words()) == []


def test_options_become_settings_and_words_again() -> None:
    options = LabOptions(
        3,
        "leastconn",
        ["goaway-chance=0.02", "v=2"],
        "1GiB",
        ["kube-apiserver:GOGC=50"],
        1000,
        2000,
        ["kube-apiserver-3"],
        dra=True,
    )
    settings = options.settings()
    assert (settings.api_servers, settings.balance) == (3, Balance.LEAST_CONNECTIONS)
    assert settings.flags == {LabComponent.API_SERVER: {"goaway-chance": "0.02", "v": "2"}}
    assert settings.environment == {LabComponent.API_SERVER: {"GOGC": "50"}}
    assert (settings.controller_manager_qps, settings.scheduler_qps) == (1000, 2000)
    assert (settings.api_server_memory, settings.hold) == (2**30, ("kube-apiserver-3",))
    assert " ".join(options.words()) == (
        "--apiservers 3 --balance leastconn --apiserver-flag goaway-chance=0.02 --apiserver-flag v=2"
        " --apiserver-memory 1GiB --env kube-apiserver:GOGC=50 --controller-manager-qps 1000 --scheduler-qps 2000"
        " --hold kube-apiserver-3 --dra"
    )
    assert settings.dra
    assert not list(LabOptions().words())


def test_an_option_wins_over_the_plans_setting_and_leaves_the_others() -> None:
    wanted = RehearsalSettings.model_validate(
        {
            "cluster": "lab",
            "api_servers": 3,
            "flags": {"kube-apiserver": {"goaway-chance": "0.02", "v": "1"}, "etcd": {"log-level": "info"}},
            "scheduler_qps": 2000,
        }
    )
    settings = LabOptions(apiservers=2, apiserver_flag=["goaway-chance=0.001"]).settings(wanted)
    assert (settings.api_servers, settings.scheduler_qps) == (2, 2000)
    assert settings.flags == {
        LabComponent.API_SERVER: {"goaway-chance": "0.001", "v": "1"},
        LabComponent.ETCD: {"log-level": "info"},
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--apiservers", "9"], "--apiservers"),
        (["--balance", "random"], "--balance 'random'"),
        (["--apiserver-flag", "secure-port=1"], "--secure-port of kube-apiserver is about files or addresses"),
        (["--apiserver-flag", "goaway-chance"], "write it like `--apiserver-flag goaway-chance=0.02`"),
        (["--apiserver-memory", "lots"], "--apiserver-memory 'lots'"),
        (["--env", "GOGC=50"], "--env"),
        (["--env", "kube-apiserver:LD_PRELOAD=x"], "variables of Go's runtime"),
        (["--env", "kube-apiserver"], "write it like `--env kube-apiserver:GOGC=50`"),
        (["--hold", "kube-apiserver-2"], "--hold: kube-apiserver-2 cannot be held"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_made(
    options: list[str], said: str, tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "lab"
    for command in (["lab", "up"], ["rehearsal", "up", "--cluster", "lab"]):
        assert run([*command, "--folder", str(folder), *options]) == ExitCode.USAGE
        assert said in capsys.readouterr().err
        assert not folder.exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--apiservers", "3"],
        ["--balance", "leastconn"],
        ["--apiserver-flag", "goaway-chance=0.02"],
        ["--apiserver-memory", "1GiB"],
        ["--env", "kube-apiserver:GOGC=50"],
        ["--controller-manager-qps", "1000"],
        ["--scheduler-qps", "2000"],
        ["--hold", "kube-apiserver-2"],
        ["--dra"],
    ],
)
def test_a_rehearsal_without_the_lab_refuses_its_options(options: list[str], tmp_path: Path, capsys: Capture) -> None:
    for command in (["rehearse"], ["rehearsal", "up", "--folder", str(tmp_path / "cluster")]):
        assert run([*command, *options]) == ExitCode.USAGE
        assert f"{options[0]} is about the lab: add `--cluster lab`" in capsys.readouterr().err
    assert not (tmp_path / "cluster").exists()


def test_a_plan_that_wants_resource_slices_is_refused_without_the_lab(tmp_path: Path, capsys: Capture) -> None:
    plan = tmp_path / "a-plan.yaml"
    plan.write_text(GOOD + "rehearsal: {cluster: lab, dra: true}\n")
    assert run(["rehearse", str(plan), "--cluster", "embedded"]) == ExitCode.USAGE
    assert "rehearsal.dra" in capsys.readouterr().err


def test_a_plans_lab_is_started_without_an_option_and_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    plan = tmp_path / "a-plan.yaml"
    plan.write_text(GOOD + "rehearsal: {cluster: lab}\n")
    seen: list[str] = []

    def find() -> None:
        seen.append("looked for")
        raise CommandError("stop here", ExitCode.REFUSED)

    monkeypatch.setattr("gameday_rehearsal.command_lines.find_programs", find)
    monkeypatch.setattr("gameday_rehearsal.cluster.RehearsalCluster._start_prefect", lambda *_: None)
    # Prefect, which is loaded beside the start, would replace the log's handlers during a later test.
    monkeypatch.setattr("gameday_rehearsal.cli.embedded_cluster._load", lambda *_: None)
    assert run(["rehearse", str(plan), "--reports", str(tmp_path / "reports")]) == ExitCode.REFUSED
    assert seen == ["looked for"]
    capsys.readouterr()


def test_every_verb_of_the_control_channel_is_a_command() -> None:
    assert list(_VERBS) == list(Verb)


def test_asking_where_no_lab_runs_is_refused(tmp_path: Path, capsys: Capture) -> None:
    for verb in Verb:
        assert run(["lab", verb, "kube-apiserver", "--folder", str(tmp_path)]) == ExitCode.REFUSED
        assert "`gameday lab up` starts one" in capsys.readouterr().err


def test_a_plan_holds_back_its_last_servers() -> None:
    defaults = RehearsalSettings(cluster="lab", api_servers=3, held_api_servers=2)
    assert LabOptions().settings(defaults).hold == ("kube-apiserver-2", "kube-apiserver-3")
    assert RehearsalSettings(cluster="lab", api_servers=3).held_servers == ()
    with pytest.raises(ValueError, match="hold fewer than api_servers"):
        RehearsalSettings(cluster="lab", api_servers=2, held_api_servers=2)

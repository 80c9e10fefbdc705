"""`gameday health explain`: what a line would do, by which rule, and why."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from gameday.cli import run
from gameday.exit_codes import ExitCode
from gameday_health.policy_files import load_policy

LOST = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert run(["health", "explain", *arguments]) == ExitCode.PASSED
    return {line[:10].strip(): line[10:] for line in capsys.readouterr().out.splitlines()}


def test_a_line_is_explained_by_its_form_code_action_rule_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    rows = explained(capsys, LOST)
    assert rows["form"] == "an Xid of the driver"
    assert rows["code"].startswith("79: ")
    assert rows["NVIDIA"] == "RESTART_BM"
    assert rows["GPU"] == "0000:4e:00"
    assert rows["response"].startswith("quarantine")
    assert rows["remedy"] == "reboot"
    loaded = load_policy()
    rule = next(rule for rule in loaded.policy.rules if rule.name == "restart-the-machine")
    assert rows["rule"] == f"restart-the-machine ({loaded.place(rule)})"
    place = loaded.file.read_text(encoding="utf-8").splitlines()[loaded.lines[loaded.policy.rules.index(rule)] - 1]
    assert "name: restart-the-machine" in place


def test_policies_differ_about_the_line_of_konduktors_post(capsys: pytest.CaptureFixture[str]) -> None:
    line = "NVRM: Xid (PCI:0000:03:00): 14, Channel 00000001"
    assert explained(capsys, line)["response"].startswith("event")
    rows = explained(capsys, line, "--policy", "konduktor")
    assert rows["response"].startswith("quarantine")
    assert "by hand" in rows["remedy"]


def test_a_watched_line_says_how_often_it_must_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    rows = explained(capsys, LOST.replace("79", "119"), "--policy", "conservative")
    assert "2 times within 86400s" in rows["response"]


def test_a_mig_line_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    rows = explained(capsys, LOST.replace("4e:00)", "4e:00 GPU-I:01 GPU-CI:00)"))
    assert "MIG" in rows["form"]
    assert rows["response"].startswith("quarantine")


def test_a_line_that_nobody_recognises_is_explained_too(capsys: pytest.CaptureFixture[str]) -> None:
    rows = explained(capsys, "usb 1-1: new device")
    assert rows["form"].startswith("no line of the NVIDIA driver")
    assert rows["response"].startswith("ignore")


def test_a_message_without_a_code_is_explained_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    fatal = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
    rows = explained(capsys, fatal)
    assert rows["message"].startswith("uvm-fatal: ")
    assert (rows["response"].split(":")[0], rows["remedy"]) == ("quarantine", "reboot")
    assert explained(capsys, "NVRM: GPU0 kgspBootstrap_GH100: x")["form"].startswith("a message of the NVIDIA driver")


def test_a_line_that_only_a_pattern_asks_for_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "kind: HealthPolicy\nname: ours\nabout: A test's.\nrules:\n  - name: adapter\n    response: quarantine\n"
    (tmp_path / "ours.yaml").write_text(text + "    kernel_log: {text: RmInitAdapter}\n", encoding="utf-8")
    for line in ("NVRM: GPU0 RmInitAdapter: Cannot initialize GSP", "NVRM: RmInitAdapter failed! (0x26:0xffff:1127)"):
        rows = explained(capsys, line, "--policy", str(tmp_path / "ours.yaml"))
        assert rows["rule"].startswith("adapter (") and rows["response"].startswith("quarantine")
    forged = "train[1]: segfault at 0 ip 0 sp 0 error 4 in RmInitAdapter[401000+1000]"
    assert explained(capsys, forged, "--policy", str(tmp_path / "ours.yaml"))["response"].startswith("ignore")


@pytest.mark.parametrize(
    ("line", "writer"),
    [
        (f"kern  :err   : [  100.000001] {LOST}", "the kernel: "),
        (f"user  :err   : [  100.000001] kernel: {LOST}", "root on the node, through /dev/kmsg"),
        (f"[  100.000001] {LOST}", "the kernel, or root through /dev/kmsg"),
        (f"Nov 27 21:00:01 node-1 kernel: [  100.000001] {LOST}", "anybody on the host"),
    ],
)
def test_a_line_is_explained_with_those_who_can_have_written_it(
    line: str, writer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = explained(capsys, line)
    assert rows["writer"].startswith(writer)
    assert rows["response"].startswith("quarantine")


def test_a_line_that_the_policy_does_not_trust_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "default.yaml"
    file.write_text(load_policy("default").file.read_text(encoding="utf-8") + "\ntrust: kernel\n", encoding="utf-8")
    rows = explained(capsys, LOST, "--policy", str(file))
    assert rows["response"] == "ignore: policy default has trust: kernel"
    assert explained(capsys, f"3,1,100000001,-;{LOST}", "--policy", str(file))["response"].startswith("quarantine")


def test_a_forged_line_is_explained_as_none_of_the_drivers(capsys: pytest.CaptureFixture[str]) -> None:
    rows = explained(capsys, f"[    1.000001] train[1]: segfault at 0 ip 0 sp 0 error 4 in {LOST}[401000+1000]")
    assert rows["form"].endswith("their messages begin with NVRM:, nvidia-nvswitchN: or nvidia-peermem")
    assert rows["response"].startswith("ignore")


def test_a_line_of_a_pod_is_explained_where_the_policy_reads_pods(capsys: pytest.CaptureFixture[str]) -> None:
    line = "RuntimeError: CUDA error: invalid device ordinal"
    assert explained(capsys, line)["response"].startswith("ignore")
    rows = explained(capsys, line, "--policy", "konduktor")
    assert "namespace default" in rows["pod log"]
    assert rows["response"].startswith("quarantine")


def test_a_sentence_over_three_lines_of_stdin_names_its_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines + b"NVRM: fallen off the bus and is not\n")))
    rows = explained(capsys, "-")
    assert (rows["GPU"], rows["remedy"]) == ("0000:b3:00", "reboot")


def test_lines_from_stdin_are_explained_one_by_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = b"\x1b]0;owned\x07" + LOST.encode() + b"\n\n\xff\xfe no line\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(hostile)))
    assert run(["health", "explain", "-"]) == ExitCode.PASSED
    said = capsys.readouterr().out
    assert said.count("response") == 2
    assert "\x1b" not in said


def test_a_policy_file_with_a_mistake_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text("kind: HealthPolicy\nname: ours\nabout: x\nrules: []\n", encoding="utf-8")
    assert run(["health", "explain", LOST, "--policy", str(file)]) == ExitCode.USAGE
    assert f"{file}:4:" in capsys.readouterr().err


def test_validate_takes_a_policy_for_what_its_kind_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = load_policy("default").file
    assert run(["validate", str(good)]) == ExitCode.PASSED
    assert "ok" in capsys.readouterr().out
    bad = tmp_path / "default.yaml"
    bad.write_text(good.read_text(encoding="utf-8").replace("response: event", "response: evnt"), encoding="utf-8")
    assert run(["validate", str(bad)]) == ExitCode.USAGE
    assert "did you mean `event`" in capsys.readouterr().err

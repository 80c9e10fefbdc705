"""Shipped policies decide as documented; a policy file of one's own is read, and its mistakes are reported by line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gameday.errors import DocumentError, DocumentProblem
from gameday.shipped import checkout
from gameday.xid.catalogue import Remedy, nvlink5_codes, sxids
from gameday.xid.decide import Response, decide
from gameday.xid.lines import Form, format_xid, recognise
from gameday_health.policy import Policy, PolicyDecision
from gameday_health.policy_files import find_policy, kernel_signal, load_policy, pod_log_signal, shipped_policies
from gameday_health.signal import SignalKind

PCI = "0000:4e:00"
UNREADABLE = "NVRM: Xid (PCI:0000:4e:00): many"
RESET_NOTE = f"gameday-agent: GPU reset executed: PCI:{PCI}, success: true"
LOST = f"NVRM: GPU {PCI}.0: GPU has fallen off the bus."
PEERMEM = "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
SWITCH = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): "


def every_line() -> Iterator[str]:
    """Yield a line of every code, in every form and with every severity and action that a line can state."""
    for code in range(1, 300):
        for form in Form:
            yield format_xid(code, PCI, form)
    for row in nvlink5_codes():
        for severity in ("Fatal", "Nonfatal", "Degraded"):
            for status in (row.error_status or 0x4, 0x12345):
                text = f"{row.unit.split('/')[-1]} {severity} XC0 i0 Link 10 (0x4 {status:#x} 0x0)"
                yield format_xid(row.xid, PCI, text=text)
    for action in ("0x0 (None)", "0x1 (GPU Reset)", "0x2 (Reboot)", "0x3 (Drain P2P)", "0x4 (Drain)", "0x9 (Call)"):
        yield format_xid(154, PCI, text=f"GPU recovery action changed from 0x0 (None) to {action}")
    for code in (*sxids(), 26006, 28002, 99999):
        for tail in (
            ", Fatal, Link 30 x",
            ", Non-fatal, Link 30 x",
            ", Link 30 x",
            ", Severity 1 Engine",
            ", Data {0}",
        ):
            yield f"{SWITCH}{code:05d}{tail}"
    yield from (LOST, PEERMEM, RESET_NOTE, UNREADABLE, f"{SWITCH}of some kind")


def decided(line: str, policy: str = "default") -> PolicyDecision:
    event = recognise(line)
    assert event is not None, line
    return shipped(policy).decide(kernel_signal(event))


@cache
def shipped(name: str) -> Policy:
    return load_policy(name).policy


def test_the_default_policy_decides_as_the_catalogue_for_every_code_and_form() -> None:
    differing, count = [], 0
    for line in every_line():
        event = recognise(line)
        assert event is not None, line
        wanted, got = decide(event), decided(line)
        count += 1
        if (got.response, got.remedy, got.reason) != (wanted.response, wanted.remedy, wanted.reason):
            differing.append((line, wanted, got))
    assert differing == []
    assert count > 2000


@pytest.mark.parametrize(
    "line",
    ["NVRM: Xid (0000:03:00): 14, Channel 00000001",
     "NVRM: Xid (PCI:0000:1b:00): 13, pid=1234, name=python, Graphics SM Warp Exception",
     UNREADABLE,
     f"{SWITCH}11012, Non-fatal, Link 32 single-bit",
     f"{SWITCH}20034, Severity 1 Engine instance 30",
     PEERMEM],
)  # fmt: skip
def test_konduktor_taints_on_everything(line: str) -> None:
    assert decided(line, "konduktor").response is Response.QUARANTINE
    assert decided(line, "default").response is not Response.QUARANTINE


def test_konduktor_ignores_a_lost_gpu_without_an_xid_and_has_the_catalogues_remedy() -> None:
    assert decided(LOST, "konduktor").response is Response.IGNORE
    lost = decided(format_xid(79, PCI), "konduktor")
    assert (lost.response, lost.remedy) == (Response.QUARANTINE, Remedy.REBOOT)


def test_no_policy_answers_the_agents_note_of_a_reset_with_a_quarantine() -> None:
    assert {decided(RESET_NOTE, name).response for name in shipped_policies()} == {Response.IGNORE}


@pytest.mark.parametrize(
    ("line", "response"),
    [(LOST, "quarantine"), (format_xid(79, PCI), "quarantine"), (format_xid(154, PCI), "quarantine"),
     (format_xid(149, PCI), "quarantine"), (f"{SWITCH}20034, Fatal, Link 30 LTSSM Fault Up", "quarantine"),
     (format_xid(48, PCI), "watch"), (format_xid(119, PCI), "watch"), (format_xid(151, PCI), "watch"),
     (format_xid(145, PCI), "event"), (format_xid(74, PCI), "event"), (format_xid(142, PCI), "event"),
     (f"{SWITCH}20034, Link 30 no severity", "event"), (format_xid(13, PCI), "workload"),
     (format_xid(14, PCI), "event"), (f"{SWITCH}20034, Severity 1 Engine", "ignore")],
)  # fmt: skip
def test_conservative_quarantines_for_hardware_actions_stated_or_seen_twice(line: str, response: str) -> None:
    assert decided(line, "conservative").response == response


def test_conservative_quarantines_nothing_that_the_default_does_not() -> None:
    strict = [line for line in every_line() if decided(line, "conservative").response is Response.QUARANTINE]
    assert strict
    assert [line for line in strict if decided(line).response is not Response.QUARANTINE] == []


HEAD = "kind: HealthPolicy\nname: ours\nabout: A test's.\n"
ANY = "rules:\n  - name: any\n    kernel_log: {}\n    response: quarantine\n"


def problem(tmp_path: Path, text: str) -> DocumentProblem:
    file = tmp_path / "ours.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        load_policy(str(file))
    return caught.value.problems[0]


def test_a_policy_of_ones_own_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(HEAD + "brake: {share: 1}\n" + ANY, encoding="utf-8")
    loaded = load_policy(str(tmp_path / "ours.yaml"))
    assert loaded.policy.name == "ours"
    assert loaded.policy.brake.share == 1
    assert loaded.place(loaded.policy.rules[0]) == f"{tmp_path / 'ours.yaml'}:6"


@pytest.mark.parametrize(
    ("text", "line", "where", "message", "suggestion"),
    [
        (ANY + "    respnse: event\n", 8, "rules[0].respnse", "not known", "did you mean `response`"),
        (ANY.replace("quarantine", "quarantin"), 7, "rules[0].response", "one of", "did you mean `quarantine`"),
        (ANY.replace("{}", "{xids: [79-50]}"), 6, "rules[0].kernel_log.xids[0]", "upwards", ""),
        (ANY.replace("{}", "{xids: [x]}"), 6, "rules[0].kernel_log.xids[0]", "a code like 79", ""),
        (ANY.replace("{}", "{text: '('}"), 6, "rules[0].kernel_log.text", "RE2 cannot read this", ""),
        (ANY.replace("{}", "{text: '(?=a)'}"), 6, "rules[0].kernel_log.text", "no look-around", ""),
        (ANY.replace("{}", "{text: 'a`b'}"), 6, "rules[0].kernel_log.text", "without the character `", ""),
        (ANY + "    alert: {names: [A]}\n", 8, "rules[0].alert", "exactly one of", ""),
        ("rules: []\n", 4, "rules", "at least one", ""),
        (ANY.replace("quarantine", "watch"), 7, "rules[0].response", "go together", ""),
        (ANY + "    watch: {times: 2, within: 1h}\n", 8, "rules[0].watch", "go together", ""),
        (ANY.replace("quarantine", "event") + "    remedy: reboot\n", 8, "rules[0].remedy", "take it out", ""),
        (ANY + ANY.removeprefix("rules:\n"), 8, "rules[1].name", "earlier rule", "rename"),
        ("never_quarantine: ['NVRM: Xid (PCI:0000:4e:00): 13, x']\n" + ANY, 4, "never_quarantine[0]",
         "rule any would quarantine", "narrow"),
        ("never_quarantine: [hello]\n" + ANY, 4, "never_quarantine[0]", "not a line about a GPU", "copy"),
        ("brake: {window: 5 minutes}\n" + ANY, 4, "brake.window", "duration", "write `5m`"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_policy_is_reported_with_its_line_and_a_suggestion(
    tmp_path: Path, text: str, line: int, where: str, message: str, suggestion: str
) -> None:
    found = problem(tmp_path, HEAD + text)
    assert (found.line, found.where) == (line, where)
    assert message in found.message
    assert suggestion in (found.suggestion or "")


def rules(*matches: str) -> str:
    each = (f"  - {{name: r{number}, {match}, response: event}}\n" for number, match in enumerate(matches))
    return HEAD + "rules:\n" + "".join(each)


@pytest.mark.parametrize(
    ("matches", "why"),
    [
        (["kernel_log: {}", "kernel_log: {xids: [79]}"], "rule r0 before it answers first"),
        (["kernel_log: {xids: ['1-99999']}", "kernel_log: {xids: [79], text: bus}"], "rule r0"),
        (["kernel_log: {text: a pattern}", "kernel_log: {text: a pattern}"], "rule r0"),
        (["kernel_log: {kinds: [sxid], xids: [79]}"], "no line has all of its keys"),
        (["kernel_log: {kinds: [other]}"], "no line has all of its keys"),
        (["kernel_log: {kinds: [other], xids: [79], text: x}"], "no line has all of its keys"),
        (["kernel_log: {messages: [uvm-fatal], severities: [fatal]}"], "no line has all of its keys"),
        (["kernel_log: {catalogue: [watch]}"], "no line has all of its keys"),
        (["kernel_log: {nvidia_actions: [RESET_GPU], kinds: [sxid]}"], "no line has all of its keys"),
        (["kernel_log: {kinds: [gpu-reset]}"], "end faults"),
        (["condition: {type: A}", "condition: {type: A, reasons: [B]}"], "rule r0"),
        (["alert: {names: [A, B]}", "alert: {names: [B], labels: {x: y}}"], "rule r0"),
        (["event: {reasons: [A]}", "event: {reasons: [A], component: c, type: Warning}"], "rule r0"),
        (["event: {reasons: [GPUXid79], component: gameday-health}"], "the controller's own"),
        (["pod_log: {namespaces: [a, b], pattern: x}", "pod_log: {namespaces: [a], pattern: x}"], "rule r0"),
    ],
)
def test_a_rule_that_can_never_answer_is_refused(tmp_path: Path, matches: list[str], why: str) -> None:
    found = problem(tmp_path, rules(*matches))
    assert (found.where, found.line) == (f"rules[{len(matches) - 1}].name", 4 + len(matches))
    assert why in found.message


def test_a_rule_behind_a_narrower_one_is_alive(tmp_path: Path) -> None:
    text = rules(
        "kernel_log: {text: bus}",
        "kernel_log: {xids: [79]}",
        "kernel_log: {text: '^NVRM: RmInit'}",
        "kernel_log: {messages: [adapter-failed]}",
        "kernel_log: {}",
        "condition: {type: A, reasons: [B]}",
        "condition: {type: A}",
        "condition: {type: A, status: 'False'}",
        "alert: {names: [A], labels: {x: y}}",
        "alert: {names: [A]}",
        "event: {reasons: [A], component: c}",
        "event: {reasons: [A]}",
    )
    (tmp_path / "ours.yaml").write_text(text, encoding="utf-8")
    assert len(load_policy(str(tmp_path / "ours.yaml")).policy.rules) == 12


def test_a_message_of_the_driver_is_named_as_it_is_known(tmp_path: Path) -> None:
    found = problem(tmp_path, rules("kernel_log: {messages: [uvm]}"))
    assert "must be one of uvm-fatal, gpu-needs-reset" in found.message


def test_a_pattern_that_would_hang_python_decides_at_once(tmp_path: Path) -> None:
    text = ANY.replace("{}", "{text: '(x+)+y'}") + "  - name: pods\n    pod_log: {namespaces: [a], pattern: '(x+)+y'}\n"
    (tmp_path / "ours.yaml").write_text(HEAD + text + "    response: quarantine\n", encoding="utf-8")
    policy = load_policy(str(tmp_path / "ours.yaml")).policy
    event = recognise(format_xid(13, PCI, text="x" * 400))
    assert event is not None
    assert policy.decide(kernel_signal(event)).rule is None
    assert policy.decide(pod_log_signal("x" * 2000, "a")).rule is None
    assert policy.decide(pod_log_signal("x" * 2000 + "y", "a")).response is Response.QUARANTINE


def test_a_policys_file_is_called_after_it(tmp_path: Path) -> None:
    assert "the file is called ours.yaml" in problem(tmp_path, HEAD.replace("ours", "theirs") + ANY).message


def test_an_unknown_name_suggests_the_nearest_shipped_policy() -> None:
    with pytest.raises(DocumentError) as caught:
        find_policy("conservativ")
    assert caught.value.problems[0].suggestion == "did you mean conservative?"
    assert find_policy("some/where.yaml") == Path("some/where.yaml")


def test_the_example_with_every_signal_is_read_and_has_a_rule_of_each_kind() -> None:
    loaded = load_policy(str(checkout() / "examples" / "every-signal.yaml"))
    assert {rule.kind for rule in loaded.policy.rules} == set(SignalKind)

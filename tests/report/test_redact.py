"""A report that leaves the house: no host, address or cluster name in it, and the same verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gameday.history.events import (
    RECORD,
    AlertSeen,
    GuardChecked,
    KubernetesEventSeen,
    Problem,
    RunStarted,
    TargetsChosen,
)
from gameday.report.redact import cleaner, redacted
from gameday.report.render import render
from gameday.report.run_folder import load_run_folder
from gameday.text import without_secrets
from gameday.values.nodes import Target
from tests.report import around
from tests.report import run_builder as build
from tests.report.page import Page, drawn
from tests.report.run_builder import Timed

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
CLUSTER = "prod-eu (https://api.prod-eu.example:6443)"
FQDN = Target(node="gpu-1.dc.example")


@pytest.fixture
def folder(tmp_path):
    timed = build.replacing(
        build.passing(),
        lambda e: isinstance(e, RunStarted),
        cluster=CLUSTER,
        cluster_name="prod-eu",
        trigger="manual",
        flow_run_url="https://prefect.prod-eu.example/runs/1",
    )
    seen = KubernetesEventSeen(
        node=build.NODE,
        reason="R",
        type="Normal",
        source="kubelet",
        message=f"{build.NODE} at 10.1.2.3",
        at=build.at(20),
    )
    made = build.write(tmp_path, [*timed, *around.events(), build.Timed(20, seen)], around.frames())
    (made / "notes.yaml").write_text(f"summary: {build.NODE} was hot\n")
    return made


def test_names_are_numbered_and_nothing_else_changes(folder):
    plain = render(folder, NOW)
    hidden = render(folder, NOW, redact=True)
    assert plain.html.name == "report.html" and hidden.html.name == "report-redacted.html"
    for text in (hidden.html.read_text(), hidden.json.read_text(), hidden.verdicts.read_text()):
        for name in (build.NODE, "gpu-node-06", "10.1.2.3", "prod-eu", ">ada<"):
            assert name not in text
    assert build.NODE in plain.html.read_text()
    assert hidden.result.outcome == plain.result.outcome
    page = Page(hidden.html.read_text())
    assert "node-1 at x.x.x.x" in page.text("appendix") and "node-1 was hot" in page.text("people")
    original, cleaned = (json.loads(one.json.read_text()) for one in (plain, hidden))
    assert original["summary"]["numbers"] == cleaned["summary"]["numbers"]
    assert original["sections"]["gpus"]["nodes"][0]["samples"] == cleaned["sections"]["gpus"]["nodes"][0]["samples"]


def test_a_node_called_like_a_word_of_the_history_breaks_nothing(tmp_path):
    word = "clean"
    timed = build.replacing(build.passing(), lambda e: hasattr(e, "node"), node=word)
    target = build.Target(node=word, gpu=5)
    timed = build.replacing(timed, lambda e: hasattr(e, "target"), target=target)
    timed = build.replacing(timed, lambda e: hasattr(e, "targets"), targets=(target,))
    page, data = drawn(
        build.write(tmp_path, timed, around.frames()), "verdict", "chain", "gpus", "timeline", redact=True
    )
    assert not any("failure" in section for section in data.values())
    assert "Cluster clean" in page.text("verdict")


def test_nodes_that_only_a_guardrail_or_the_plan_names_are_hidden(folder):
    guard = GuardChecked(
        guardrail="other nodes unhealthy", phase="during", limit="at most 1", measured="2 nodes", ok=False,
        why="rack7-a, rack7-b", nodes=("rack7-a", "rack7-b"),
    )  # fmt: skip
    records = [*load_run_folder(folder).history.records]
    lines = [RECORD.dump_json(one) for one in (*records, replace(records[-1], seq=999, event=guard))]
    (folder / "history.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (folder / "plan.yaml").write_text(build.PLAN_YAML.replace("  nodes: 1\n", "  nodes: 1\n  names: [rack8-c]\n"))
    hidden = render(folder, NOW, redact=True)
    for text in (hidden.html.read_text(), hidden.json.read_text()):
        assert "rack7" not in text and "rack8" not in text
    assert "rack7-a, rack7-b" in drawn(folder, "guardrails")[0].html


def test_the_profile_s_path_is_hidden_where_the_command_names_it(tmp_path):
    command = "gameday run plans/xid-79.yaml --profile profiles/eu7.yaml"
    timed = build.replacing(build.passing(), lambda e: isinstance(e, RunStarted), command=command)
    run = redacted(load_run_folder(build.write(tmp_path, timed)))
    assert run.started and run.started.command == "gameday run plans/xid-79.yaml --profile (hidden)"


HOSTS = [
    ("gpu-1.dc.example is ill", "node-1 is ill"),
    ("gpu-1 kernel: NVRM", "node-1 kernel: NVRM"),
    ("gpu-1.other.example", "node-1"),
    ("gpu-12 and gpu-1-b", "gpu-12 and gpu-1-b"),
    ("kube-proxy-gpu-1.dc.example", "kube-proxy-node-1"),
    (r'Hostname=~"gpu-1\\.dc\\.example"', 'Hostname=~"node-1"'),
    ("at 10.1.2.3.", "at x.x.x.x."),
    ("driver 570.86.15", "driver 570.86.15"),
    ("from 2001:db8::12:1 to [fe80::1]:9400", "from x::x to [x::x]:9400"),
    ("fe80::1: unreachable", "x::x: unreachable"),
    ("::ffff:10.1.2.3", "x::x"),
    ("1:2:10.1.2.3", "1:2:x.x.x.x"),
    (
        "09:00:01 NVRM: Xid (PCI:0000:ab:00): 79, std::abs ::",
        "09:00:01 NVRM: Xid (PCI:0000:ab:00): 79, std::abs ::",
    ),
]
"""How a host may be written, and what is shown of it."""


def test_how_a_host_may_be_written(tmp_path):
    named = build.replacing(build.passing(), lambda e: isinstance(e, TargetsChosen), targets=(FQDN,))
    problems = [build.Timed(46.3, Problem(step=None, what=text)) for text, _ in HOSTS]
    run = redacted(load_run_folder(build.write(tmp_path, [*named, *problems])))
    assert [one.what for one in run.history.of(Problem)[-len(HOSTS) :]] == [shown for _, shown in HOSTS]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer (hidden)"),
        ("password=hunter22x rest", "password=(hidden) rest"),
        ("https://user:hunter22@host/x", "https://user:(hidden)@host/x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.c2ln", "(hidden)"),
        ("NVRM: Xid (PCI:0000:ab:00): 79, pid=<unknown>", "NVRM: Xid (PCI:0000:ab:00): 79, pid=<unknown>"),
    ],
)
def test_what_looks_like_a_credential_is_taken_out_of_logs(text, shown):
    assert without_secrets(text) == shown


LARGE = 1_000_000
HOSTILE_FOR_SECRETS = ["-eyJaaaaaaaa", "eyJaaaaaaaa.b.", "a.bbbb.", "token ", "password = ! ", "://a", "bearer ! "]
HOSTILE_FOR_NAMES = ["a.", "a-", "a.-", "a\\", "1.", "1.1.1.", "::", "a:", "a" * 63 + "-", "a-" * 30 + "b." * 90 + " "]


@pytest.mark.parametrize("unit", HOSTILE_FOR_SECRETS)
def test_a_megabyte_without_a_credential_stays_as_it_is(unit):
    """In quadratic time each would take minutes, and a test's processor time ends after seconds."""
    text = unit * (LARGE // len(unit))
    assert without_secrets(text) == text


@pytest.mark.parametrize("unit", HOSTILE_FOR_NAMES)
def test_a_name_at_the_end_of_a_hostile_megabyte_is_found(unit):
    """As the test above."""
    clean = cleaner([], nodes=["gpu-1.dc.example", "b"])
    cleaned = clean(unit * (LARGE // len(unit)) + " at gpu-1.dc.example, pod dcgm-gpu-1")
    assert cleaned.endswith(" at node-2, pod dcgm-node-2")


def test_a_token_is_found_behind_a_dash_and_behind_a_hostile_megabyte():
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.c2ln"
    assert without_secrets(f"--x-{token} y") == "--x-(hidden) y"
    assert without_secrets("-eyJaaaaaaaa" * 80_000 + f" {token}").endswith(" (hidden)")


def test_the_prometheus_that_an_alert_s_runbook_is_on_is_hidden(tmp_path):
    annotations = {"runbook_url": "https://prom.corp.example:9090/user/runbooks/GPUFellOffTheBus.md"}
    for not_url in ("https://[half", "see the wiki"):
        timed = [
            Timed(one.seconds, one.event.model_copy(update={"annotations": {"runbook_url": not_url}}))
            if isinstance(one.event, AlertSeen) and one.event.at_baseline
            else Timed(one.seconds, one.event.model_copy(update={"annotations": annotations}))
            if isinstance(one.event, AlertSeen)
            else one
            for one in build.passing()
        ]
        run = redacted(load_run_folder(build.write(tmp_path, timed)))
        shown = {alert.annotations["runbook_url"] for alert in run.history.of(AlertSeen)}
        assert shown == {not_url, "https://the-server:9090/user/runbooks/GPUFellOffTheBus.md"}

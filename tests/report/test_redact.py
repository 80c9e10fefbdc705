"""A report that leaves the house: no host, address or cluster name in it, and the same verdict."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from gameday.history.events import KubernetesEventSeen, RunStarted
from gameday.report import render
from gameday.report.words import without_secrets
from tests.report import around
from tests.report import run_builder as build
from tests.report.page import Page

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
CLUSTER = "prod-eu (https://api.prod-eu.example:6443)"


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
    told, cleaned = (json.loads(one.json.read_text()) for one in (plain, hidden))
    assert told["summary"]["numbers"] == cleaned["summary"]["numbers"]
    assert told["sections"]["gpus"]["nodes"][0]["samples"] == cleaned["sections"]["gpus"]["nodes"][0]["samples"]


def test_a_node_called_like_a_word_of_the_history_breaks_nothing(tmp_path):
    word = "clean"
    timed = build.replacing(build.passing(), lambda e: hasattr(e, "node"), node=word)
    target = build.Target(node=word, gpu=5)
    timed = build.replacing(timed, lambda e: hasattr(e, "target"), target=target)
    timed = build.replacing(timed, lambda e: hasattr(e, "targets"), targets=(target,))
    page = Page(render(build.write(tmp_path, timed, around.frames()), NOW, redact=True).html.read_text())
    assert "could not be drawn" not in page.text()
    assert "Cluster clean" in page.text("verdict")


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

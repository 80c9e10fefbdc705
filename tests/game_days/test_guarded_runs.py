"""Guardrails, dry run and approval on a whole cluster: what is refused, what is aborted, and what is left untouched."""

from __future__ import annotations

import contextlib
import io
import re
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled
from ruamel.yaml import YAML

from gameday import cli
from gameday.history.events import (
    Aborted,
    ApprovalAnswered,
    ApprovalAsked,
    FaultInjected,
    IntentRecorded,
    TargetsChosen,
)
from gameday.history.journal import read_history
from kubesim.kubeconfig import Kubeconfig
from tests.game_days.conftest import QUICK, Arena, Played, changed
from tests.support.prefect_api import prefect_client

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]
ASKING = changed(QUICK, "approval", {"required": True, "within": "90s"})
READS = {"GET", "LIST", "WATCH"}


def writes(arena: Arena) -> dict[str, float]:
    """Requests of the game-day's client that are no reads, by resource, as the API server itself counted them."""
    admin = Kubeconfig.load(arena.cluster.admin_kubeconfig)
    headers = {"Authorization": f"Bearer {admin.token}"} if admin.token else {}
    text = httpx.get(f"{admin.server}/metrics", headers=headers, verify=admin.tls or True, timeout=10).text
    found: dict[str, float] = {}
    for labels, count in re.findall(r"^apiserver_request_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if label["client"] == "gameday" and label["verb"] not in READS:
            key = f"{label['verb']} {label['resource']}"
            found[key] = found.get(key, 0) + float(count)
    return found


def command(arena: Arena, plan: dict[str, Any], *arguments: str) -> tuple[int, str]:
    """One command line about the plan, in this process; its exit code and what it printed."""
    path = arena.folder / "command.yaml"
    YAML(typ="safe", pure=True).dump(plan, path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.run([*arguments, str(path), "--profile", str(arena.cluster.profile)])
    return code, said.getvalue()


def test_a_dry_run_writes_nothing_and_lists_what_the_run_then_does(clean_arena: Arena) -> None:
    before = writes(clean_arena)
    code, said = command(clean_arena, QUICK, "run", "--dry-run")
    assert code == 0, said
    assert writes(clean_arena) == before
    printed = re.findall(r"^# [a-z ]+: (?:create|patch) ((?:pod|job|node)/[^\s:]+)", said, re.MULTILINE)
    documents = [one for one in YAML(typ="safe", pure=True).load_all(said) if one]
    assert {one["kind"] for one in documents} == {"Lease", "ConfigMap", "Pod", "Job", "Node", "Eviction"}
    played = clean_arena.play(QUICK)
    assert played.exit_code == 0, played.output
    done = [intent.object for intent in played.history.of(IntentRecorded)]
    assert {nameless(name) for name in printed} == {nameless(name) for name in done}
    created = {one["metadata"]["name"] for one in documents if one["kind"] == "Pod"}
    assert {name.removeprefix("pod/") for name in printed if name.startswith("pod/")} == created


def test_a_dry_run_lists_every_rank_of_an_all_reduce_and_shows_no_secret(clean_arena: Arena) -> None:
    fault = {"type": "net_tbf", "interface": "ib0", "rate_mbit": 20, "hold": "30s"}
    plan = changed(changed(QUICK, "fault", fault), "recover.remediation", "none")
    all_reduce = {"interface": "ib0", "nodes": 3, "falls_below": "25%", "tolerance": "70%"}
    plan = changed(plan, "expect", {"all_reduce": all_reduce, "stays_schedulable_for": "1s"})
    code, said = command(clean_arena, plan, "run", "--dry-run")
    assert code == 0, said
    printed = re.findall(r"^# [a-z ]+: (?:create|patch) ((?:pod|job|node)/[^\s:]+)", said, re.MULTILINE)
    ranks = {nameless(name) for name in printed if "all-reduce" in name}
    assert len(ranks) == 9, printed
    assert "made when the run sends it" in said
    played = clean_arena.play(plan)
    assert played.exit_code == 0, played.output
    assert ranks <= {nameless(intent.object) for intent in played.history.of(IntentRecorded)}
    assert played.folder is not None
    written = "".join(path.read_text("utf-8", "replace") for path in played.folder.rglob("*.jsonl"))
    assert '"secret"' not in written


def nameless(name: str) -> str:
    """An object's name without its run's id."""
    return re.sub(r"gd-\d{8}-\d{6}-[0-9a-f]{6}-", "gd-", name)


def asked(arena: Arena, plan: dict[str, Any]) -> tuple[Any, Path, str]:
    """A run that waits for approval: its process, its reports, and the id of its flow run."""
    process, reports = arena.start(plan)
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and process.poll() is None:
        for path in reports.glob("*/history.jsonl"):
            for question in read_history(path).of(ApprovalAsked):
                return process, reports, question.where.rpartition("/")[2]
        time.sleep(0.1)
    pytest.fail(f"the run did not ask for approval:\n{arena.finish(process, reports, 10).output}")


def answer(arena: Arena, flow_run: str, **given: Any) -> str:
    """Return the status that Prefect's server gives an answer.

    Prefect's own client asks again while the server's SQLite is locked, which it answers with a 503.
    """
    with prefect_client(arena.cluster.prefect_client) as prefect:
        return prefect.resume_flow_run(UUID(flow_run), given).status.value


def answered(played: Played) -> list[tuple[bool, str, str, str]]:
    return [(one.approved, one.by, one.via, one.comment) for one in played.history.of(ApprovalAnswered)]


def test_a_no_in_prefect_refuses_the_run_before_anything_is_broken(clean_arena: Arena) -> None:
    process, reports, flow_run = asked(clean_arena, ASKING)
    assert answer(clean_arena, flow_run, decision="approve") == "REJECT", "an answer without a name"
    assert answer(clean_arena, flow_run, name="ada") == "REJECT", "a name without an answer"
    assert answer(clean_arena, flow_run, decision="refuse", name="ada", comment="not today") == "ACCEPT"
    played = clean_arena.finish(process, reports)
    assert played.exit_code == 5, played.output
    assert answered(played) == [(False, "ada", "Prefect", "not today")]
    assert not played.history.of(FaultInjected)


@pytest.mark.slow
def test_a_yes_in_prefect_lets_the_run_go_on(clean_arena: Arena) -> None:
    process, reports, flow_run = asked(clean_arena, ASKING)
    assert answer(clean_arena, flow_run, decision="approve", name="ada") == "ACCEPT"
    played = clean_arena.finish(process, reports)
    assert played.exit_code == 0, played.output
    assert answered(played) == [(True, "ada", "Prefect", "")]
    assert "Approved by <strong>ada</strong>" in (played.folder or Path()).joinpath("report.html").read_text()


@pytest.mark.slow
def test_nobodys_answer_is_a_refusal(clean_arena: Arena) -> None:
    played = clean_arena.play(changed(ASKING, "approval.within", "2s"))
    assert played.exit_code == 5, played.output
    assert "nobody approved the run within 2s" in played.output


@pytest.mark.slow
def test_a_target_that_changed_while_the_run_waited_is_a_refusal(clean_arena: Arena) -> None:
    process, reports, flow_run = asked(clean_arena, ASKING)
    (run,) = reports.glob("*/history.jsonl")
    node = read_history(run).of(TargetsChosen)[0].targets[0].node
    clean_arena.core.patch_node(node, {"spec": {"unschedulable": True}})
    try:
        answer(clean_arena, flow_run, decision="approve", name="ada")
        played = clean_arena.finish(process, reports)
    finally:
        clean_arena.core.patch_node(node, {"spec": {"unschedulable": None}})
    assert played.exit_code == 5, played.output
    assert f"{node} is cordoned" in played.output


@pytest.mark.slow
def test_a_cancelled_flow_run_waits_no_longer(clean_arena: Arena) -> None:
    process, reports, flow_run = asked(clean_arena, ASKING)
    with prefect_client(clean_arena.cluster.prefect_client) as prefect:
        prefect.set_flow_run_state(UUID(flow_run), Cancelled(), force=True)
    played = clean_arena.finish(process, reports)
    assert [(one.by, "Cancelled" in one.why) for one in played.history.of(Aborted)] == [("operator", True)]


def test_a_dry_run_of_a_refused_plan_shows_the_refusal(clean_arena: Arena) -> None:
    plan = changed(ASKING, "targets.selector", {"example.com/none": "such"})
    code, said = command(clean_arena, plan, "run", "--dry-run")
    assert code == 5
    assert "no node carries" in said


def test_without_a_server_to_ask_the_run_is_refused_at_once(
    clean_arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        code, said = command(clean_arena, ASKING, "run")
    assert code == 5, said
    assert "--approved-by NAME" in said

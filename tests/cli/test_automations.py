"""`--notify`: the automations at a real Prefect server. Only the chat that receives the messages is ours."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect import flow
from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore, EventTrigger, Posture
from prefect.runtime import flow_run
from prefect.server.utilities.user_templates import render_user_template
from prefect.settings import PREFECT_API_URL

from gameday.cli import run
from gameday.cli.automations import (
    _MACROS,
    _NEXT,
    _OUTCOME,
    BROKEN_SEASON,
    MISSED_SEASON,
    NAMES,
    RED_GAME_DAY,
    SEASON_WITHIN,
    season_trigger,
    update_automations,
)
from gameday.cli.redeploy import Registered
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.flows.judged_state import judged_state
from tests.rehearsal.processes import until

Capture = pytest.CaptureFixture[str]


class Chat:
    """A chat server that records what it is sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                chat.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def about(self, word: str) -> list[dict[str, str]]:
        return [one for one in self.messages if word in one["subject"]]

    def end(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def chat(whole_prefect: None) -> Iterator[Chat]:
    made = Chat()
    secret = {"token": "chat-secret"}
    body = {"subject": "{{subject}}", "body": "{{body}}", "token": "{{token}}"}
    CustomWebhookNotificationBlock(name="team", url=made.url, json_data=body, secrets=secret).save(
        "team", overwrite=True
    )
    yield made
    made.end()


def automations() -> dict[str, Automation]:
    with get_client(sync_client=True) as client:
        return {one.name: one for one in client.read_automations()}


def written_at(name: str) -> str:
    """Return when the server last wrote an automation."""
    with get_client(sync_client=True) as client:
        answer = client.request("GET", "/automations/{id}", path_params={"id": automations()[name].id})
    return str(answer.json()["updated"])


def end_run(flow_name: str, exit_code: int, run_name: str, why: str = "no alert fired") -> UUID:
    """Make a flow run end as one of ours does, and return it."""
    found: list[UUID] = []

    @flow(name=flow_name, flow_run_name=run_name, persist_result=False)
    def played(plan: str, profile: str | None = None) -> State[Any]:
        found.append(UUID(str(flow_run.id)))
        return judged_state(exit_code, why, None)

    played("xid-48", profile="/p/eu west.yaml", return_state=True)
    return found[0]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_red_game_day_reaches_the_chat_and_a_green_one_does_not(chat: Chat) -> None:
    assert update_automations("custom-webhook/team").names == list(NAMES)
    end_run("game-day", ExitCode.PASSED, "xid-48 on green-node")
    end_run("season", ExitCode.FAILED, "a season with a red game-day")
    number = end_run("game-day", ExitCode.FAILED, "xid-48 on gpu-node-3/0, 20260101-run")
    end_run("season", ExitCode.REFUSED, "a refused season")
    end_run("game-day", ExitCode.DIRTY, "xid-48 on dirty-node")
    end_run("season", ExitCode.ABORTED, "an aborted season")
    until(lambda: len(chat.messages) >= 4, 120, "four messages")
    (red,) = chat.about("Failed")
    assert red["subject"] == "Failed: xid-48 on gpu-node-3/0, 20260101-run"
    assert red["token"] == "chat-secret"
    lines = red["body"].splitlines()
    assert lines[0] == "Run (plan, target): xid-48 on gpu-node-3/0, 20260101-run"
    assert lines[1] == "Verdict: Failed, cluster clean. no alert fired"
    server = PREFECT_API_URL.value().removesuffix("/api")
    assert lines[2] == f"Page: {server}/runs/flow-run/{number}"
    assert lines[3] == "Next: gameday doctor 'xid-48' --profile '/p/eu west.yaml'"
    (dirty,) = chat.about("dirty-node")
    assert dirty["subject"] == "Unknown, cluster dirty: xid-48 on dirty-node"
    assert dirty["body"].endswith("Next: gameday reap --profile '/p/eu west.yaml'")
    assert len(chat.about("Season Refused: a refused season")) == 1
    assert len(chat.about("Season Aborted: an aborted season")) == 1
    assert not chat.about("green-node")
    assert not chat.about("a season with a red")
    assert all("chat-secret" not in one.model_dump_json() for one in automations().values())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_second_deploy_updates_what_people_left_alone(chat: Chat) -> None:
    action = SendNotification(block_document_id=UUID(int=1), subject="x", body="x")
    theirs = AutomationCore(name="the team's own", tags=["gpu-gameday"], trigger=season_trigger(), actions=[action])
    with get_client(sync_client=True) as client:
        client.create_automation(theirs)
    assert update_automations("team") == Registered(list(NAMES), [])
    first = automations()
    CustomWebhookNotificationBlock(name="other", url=chat.url).save("other", overwrite=True)
    assert update_automations("other").kept == []
    second, written = automations(), written_at(MISSED_SEASON)
    assert update_automations("custom-webhook/other").kept == []
    assert written_at(MISSED_SEASON) == written, "the same again starts no clock anew"
    assert set(second) == {*NAMES, "the team's own"}, "also one that somebody has copied from ours, with its tag"
    assert {name: second[name].id for name in NAMES} == {name: first[name].id for name in NAMES}
    assert first[BROKEN_SEASON].actions != second[BROKEN_SEASON].actions


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_people_switched_off_changed_or_deleted_stays_so_until_it_is_reset(chat: Chat) -> None:
    update_automations("team")
    first = automations()
    changed = first[BROKEN_SEASON].model_copy(update={"description": "Ask Ada."})
    with get_client(sync_client=True) as client:
        client.pause_automation(first[RED_GAME_DAY].id)
        client.update_automation(changed.id, AutomationCore(**changed.model_dump(exclude={"id", "owner_resource"})))
        client.delete_automation(first[MISSED_SEASON].id)
    CustomWebhookNotificationBlock(name="third", url=chat.url).save("third", overwrite=True)
    assert update_automations("third") == Registered(
        [RED_GAME_DAY, BROKEN_SEASON],
        [
            f"{RED_GAME_DAY}: kept enabled: false (the files say: true)",
            f'{BROKEN_SEASON}: kept description: "Ask Ada." (the files say: "{first[BROKEN_SEASON].description}")',
            f"{MISSED_SEASON}: kept deleted",
        ],
    )
    second = automations()
    assert MISSED_SEASON not in second
    assert (second[RED_GAME_DAY].enabled, second[BROKEN_SEASON].description) == (False, "Ask Ada.")
    assert second[RED_GAME_DAY].actions != first[RED_GAME_DAY].actions, "the block is the one that was asked for"
    assert update_automations("third", NAMES) == Registered(list(NAMES), [])
    assert all(automations()[name].enabled for name in NAMES)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_season_that_does_not_come_is_said_and_one_that_comes_starts_the_clock_anew(chat: Chat) -> None:
    update_automations("custom-webhook/team")
    shipped = automations()[MISSED_SEASON]
    assert isinstance(shipped.trigger, EventTrigger)
    assert shipped.trigger.posture is Posture.Proactive
    assert shipped.trigger.within == SEASON_WITHIN
    # The shortest that Prefect's server takes for a trigger of what does not come is 10 s.
    short = shipped.model_copy(update={"trigger": season_trigger(timedelta(seconds=10))})
    with get_client(sync_client=True) as client:
        client.update_automation(shipped.id, AutomationCore(**short.model_dump(exclude={"id", "owner_resource"})))
    until(lambda: chat.about("Weekly season missed"), 120, "the season is missed")
    said = chat.about("Weekly season missed")[0]["body"]
    assert "No season has been played for 8 days" in said
    assert said.endswith("prefect deployment run 'season/weekly (breaks GPUs)'")
    end_run("season", ExitCode.REFUSED, "a refused season, which counts as none")
    seen = len(chat.about("Weekly season missed"))
    end_run("season", ExitCode.PASSED, "a season")
    until(lambda: len(chat.about("Weekly season missed")) > seen, 120, "it is missed again, after one that came")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-such", "--notify 'no-such': no such block; `prefect block ls` lists"),
        ("slack-webhook/team", "--notify 'slack-webhook/team': no such block"),
        ("plain", "webhook sends no notifications; a plain webhook is the type custom-webhook"),
        ("twice", "there are several: custom-webhook/twice, slack-webhook/twice; give one of them"),
    ],
)
def test_a_wrong_block_is_refused_and_changes_nothing(name: str, said: str, chat: Chat) -> None:
    Webhook(url=chat.url).save("plain", overwrite=True)
    CustomWebhookNotificationBlock(name="twice", url=chat.url).save("twice", overwrite=True)
    SlackWebhook(url="https://hooks.slack.com/services/T0/B0/X0").save("twice", overwrite=True)
    before = automations()
    with pytest.raises(CommandError) as refused:
        update_automations(name)
    assert said in str(refused.value)
    assert refused.value.code is ExitCode.USAGE
    assert automations() == before


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_deploy_says_how_to_be_notified_and_creates_the_automations_when_asked(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["deploy"]) == ExitCode.PASSED
    assert "gameday deploy --notify BLOCK" in capsys.readouterr().out
    assert run(["deploy", "--notify", "custom-webhook/team"]) == ExitCode.PASSED
    said = capsys.readouterr().out
    assert set(NAMES) <= set(said.splitlines())
    assert "--notify BLOCK" not in said
    assert run(["deploy", "--notify", "nope"]) == ExitCode.USAGE
    assert "prefect block ls" in capsys.readouterr().err


def test_text_of_plans_is_one_word_in_the_command_and_mentions_nobody() -> None:
    parameters = {"plan": "x'; touch <!here> #", "profile": None}
    state = SimpleNamespace(name="Failed", message="<!channel>\n@here [a](http://b)")
    hostile = SimpleNamespace(parameters=parameters, state=state, tags=["cluster:clean", "outcome:@here"])
    template = f"{_MACROS}{_OUTCOME} {{{{ words(flow_run.state.message) }}}} {_NEXT}"
    written = asyncio.run(render_user_template(template, {"flow_run": hostile}))
    assert written == "(at)here (!channel) (at)here (a)(http://b) gameday doctor 'x'\"'\"'; touch (!here) #'"

"""Prefect automations that notify people of a red game-day, and of a weekly season that did not come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import BlockDocument
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore, CompoundTrigger, EventTrigger, Posture
from prefect.settings import PREFECT_UI_URL

from gameday.checks.outcome import RunOutcome
from gameday.cli.redeploy import TAG, Registered, changed_by_people, digests_of, kept_lines, read_last, remember
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.tasks.outcome_on_page import begins_with
from gameday.text import shown

RED_GAME_DAY = "gameday: red game-day"
BROKEN_SEASON = "gameday: season broken off"
MISSED_SEASON = "gameday: weekly season missed"
NAMES = (RED_GAME_DAY, BROKEN_SEASON, MISSED_SEASON)
_BROKEN_OFF = (RunOutcome.REFUSED, RunOutcome.ABORTED)
"""Outcomes of a failed season that are reported; its red game-days have sent messages of their own."""
_Labels = dict[str, str | list[str]]
_PLAYED = (RunOutcome.PASSED, RunOutcome.FAILED, RunOutcome.UNKNOWN)
SEASON_WITHIN = timedelta(days=8)
"""A week, and a day for a season that begins late or takes long."""
_WEEKLY = "season/weekly (breaks GPUs)"
_PAGE = 200
"""The most blocks that Prefect returns at once."""
# Text of plans and nodes is hostile: in a message it must forge no link and no mention, and in a shell it is one word.
_MACROS = (
    "{% macro words(value) %}{{ value | string | replace('\\n', ' ') | replace('<', '(') | replace('>', ')')"
    " | replace('[', '(') | replace(']', ')') | replace('`', ' ') | replace('@', '(at)') | truncate(400) }}"
    "{% endmacro %}"
    "{% macro quoted(value) %}"
    "'{{ words(value) | replace(\"'\", \"'\\\"'\\\"'\") }}'"
    "{% endmacro %}"
    "{% set asked = flow_run.parameters %}"
    "{% set source = (asked.profiles or {}).get(asked.profile, asked.profile) %}"
    "{% set profile %}{% if source %} --profile {{ quoted(source) }}"
    "{% endif %}{% endset %}"
)
_NEXT = (
    "{% if flow_run.state.name == 'Crashed' or not 'cluster:clean' in flow_run.tags %}gameday reap{{ profile }}"
    "{% elif asked.plan %}gameday doctor {{ quoted(asked.plan.split(': ')[0]) }}{{ profile }}"
    "{% else %}gameday doctor{{ profile }}{% endif %}"
)
_OUTCOME = (
    "{% for tag in flow_run.tags if tag.startswith('outcome:') %}{{ words(tag[8:]) | capitalize }}"
    "{% else %}{{ flow_run.state.name }}{% endfor %}"
    "{% if 'cluster:dirty' in flow_run.tags %}, cluster dirty{% endif %}"
)
_SUBJECT = f"{_OUTCOME}: {{{{ words(flow_run.name) }}}}"


def update_automations(block: str, reset: Sequence[str] = ()) -> Registered:
    """Create or update the automations, by name, at the Prefect server of the settings.

    Changes by people stay: an automation that is switched off stays off, and one that was deleted is not made again.

    Args:
        block: The notification block that the messages go through: `TYPE/NAME`, such as slack-webhook/gpu-oncall, or
            its name alone if no other block has it.
        reset: Names of automations to reset to what is shipped, even if people have changed them.

    Returns:
        The automations' names, and what was kept.

    Raises:
        CommandError: There is no such block, or it sends no notifications; nothing is changed then.
        HTTPError: The server does not answer, or refuses (httpx).
    """
    result = Registered([], [])
    with get_client(sync_client=True) as client:
        action_block = _notification_block(client, block)
        for one in _shipped(action_block):
            there, last = client.read_automations_by_name(one.name), read_last(client, one.name)
            if not there and last is not None and one.name not in reset:
                result.kept.append(f"{one.name}: kept deleted")
                continue
            if there:
                last = digests_of(_settings(there[0])) if one.name in reset else last or {}
                result.kept.extend(_update(client, one, there[0], last))
            else:
                client.create_automation(one)
            remember(client, one.name, _settings(one))
            result.names.append(one.name)
    return result


def _update(client: SyncPrefectClient, one: AutomationCore, there: Automation, last: Mapping[str, str]) -> list[str]:
    """Update an existing automation to what is shipped; return a line for each thing that is kept.

    Each write restarts the clock of the missed season, so nothing is written without a difference.
    """
    files, now = _settings(one), _settings(there)
    kept = changed_by_people(files, now, last)
    settled = one.model_copy(update={name: getattr(there, name) for name in kept})
    if _settings(settled) != now:
        client.update_automation(there.id, settled)
    return kept_lines(one.name, kept, files, now)


def _settings(one: AutomationCore) -> dict[str, Any]:
    """Return the parts of an automation that people may change."""
    written = one.model_dump(mode="json", include={"description", "enabled", "trigger", "actions"})
    written["trigger"].pop("id", None)
    return written


def season_trigger(within: timedelta = SEASON_WITHIN) -> EventTrigger:
    """Return the trigger that fires when no season has been played for this long.

    Each season restarts its clock, because the event is in `after` and in `expect`. Prefect starts the clock when it
    learns of the automation.
    """
    ended = {"prefect.flow-run.Completed", "prefect.flow-run.Failed"}
    return EventTrigger(
        posture=Posture.Proactive,
        after=ended,
        expect=ended,
        match=_said(_PLAYED),
        match_related=_of_flow("season"),
        within=within,
    )


def _shipped(block: BlockDocument) -> Iterable[AutomationCore]:
    page = f"{PREFECT_UI_URL.value()}/runs/flow-run/{{{{ flow_run.id }}}}"
    about_run = "\n".join(
        [
            f"{_MACROS}Run (plan, target): {{{{ words(flow_run.name) }}}}",
            "Verdict: {{ words(flow_run.state.message) }}",
            f"Page: {page}",
            f"Next: {_NEXT}",
        ]
    )
    runs = f"{PREFECT_UI_URL.value()}/deployments"
    missed = "\n".join(
        [
            f"No season has been played for {SEASON_WITHIN.days} days: nothing proves that faults are still noticed.",
            f"Page: {runs} ({_WEEKLY}: is its schedule on, and does a worker serve its pool?)",
            f"Next: prefect work-pool inspect gameday; prefect deployment run '{_WEEKLY}'",
        ]
    )

    def automation(
        name: str, words: str, trigger: EventTrigger | CompoundTrigger, subject: str, body: str
    ) -> AutomationCore:
        action = SendNotification(block_document_id=block.id, subject=subject, body=body)
        # `enabled` is named, because a client sends what was set and nothing else.
        return AutomationCore(name=name, description=words, tags=[TAG], enabled=True, trigger=trigger, actions=[action])

    return (
        automation(
            RED_GAME_DAY,
            "A game-day failed or crashed.",
            _reached("game-day", "Failed", "Crashed"),
            f"{_MACROS}{_SUBJECT}",
            about_run,
        ),
        automation(
            BROKEN_SEASON,
            "A season was refused, aborted or killed.",
            # `within` is named for the same reason as `enabled` above.
            CompoundTrigger(
                require="any",
                triggers=[_reached("season", "Crashed"), _reached("season", "Failed", match=_said(_BROKEN_OFF))],
                within=None,
            ),
            f"{_MACROS}Season {_SUBJECT}",
            about_run,
        ),
        automation(
            MISSED_SEASON,
            f"No season was played for {SEASON_WITHIN.days} days.",
            season_trigger(),
            "Weekly season missed",
            missed,
        ),
    )


def _reached(flow: str, *states: str, match: _Labels = {}) -> EventTrigger:  # noqa: B006 - nobody changes it
    """Return the trigger of a flow's runs that reach one of these states; Prefect names the event after the state."""
    expect = {f"prefect.flow-run.{state}" for state in states}
    return EventTrigger(posture=Posture.Reactive, expect=expect, match=match, match_related=_of_flow(flow))


def _of_flow(name: str) -> _Labels:
    return {"prefect.resource.role": "flow", "prefect.resource.name": name}


def _said(outcomes: Iterable[RunOutcome]) -> _Labels:
    return {"prefect.state-message": [begins_with(one) for one in outcomes]}


def _notification_block(client: SyncPrefectClient, wanted: str) -> BlockDocument:
    """Return the block of this name. Raises CommandError."""
    slug, _, name = wanted.rpartition("/")
    found = [one for one in _all_blocks(client) if one.name == name and slug in ("", _slug(one))]
    lists = "`prefect block ls` lists those that there are, docs/prefect.md says how to make one"
    if not found:
        raise CommandError(f"--notify {shown(wanted)}: no such block; {lists}", ExitCode.USAGE)
    sending = [one for one in found if one.block_schema and "notify" in one.block_schema.capabilities]
    if not sending:
        kind = _slug(found[0])
        hint = "; a plain webhook is the type custom-webhook" if kind == "webhook" else ""
        raise CommandError(f"--notify {shown(wanted)}: {kind} sends no notifications{hint}; {lists}", ExitCode.USAGE)
    if len(sending) > 1:
        choices = ", ".join(f"{_slug(one)}/{one.name}" for one in sending)
        raise CommandError(f"--notify {shown(wanted)}: there are several: {choices}; give one of them", ExitCode.USAGE)
    return sending[0]


def _slug(block: BlockDocument) -> str:
    return block.block_type.slug if block.block_type else ""


def _all_blocks(client: SyncPrefectClient) -> list[BlockDocument]:
    found: list[BlockDocument] = []
    while page := client.read_block_documents(offset=len(found), limit=_PAGE, include_secrets=False):
        found += page
    return found

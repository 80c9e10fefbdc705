from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gameday.errors import NotesError
from gameday.plan.models import Plan
from gameday.post_mortem import page
from gameday.post_mortem.incident import read_incident
from gameday.post_mortem.page import PostMortem, render_post_mortem
from gameday.report.notes import FORM, Notes, read_notes, write_form
from tests.post_mortem.conftest import USUAL, alert, taint, write_incident, xid
from tests.support.plans import shipped

NOW = datetime(2026, 3, 4, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script> | `x` [a](http://b) \x1b[31m **b**"


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return list(shipped().values())


def rendered(folder: Path, plans: list[Plan]) -> PostMortem:
    return render_post_mortem(folder, plans, [], NOW)


def test_the_page_shows_the_verdict_the_chain_and_the_game_day(folder: Path, plans: list[Plan]) -> None:
    page = rendered(folder, plans).html.read_text()
    assert "Noticed" in page
    assert "xid-95-uncontained-ecc" in page
    assert "training/llm-0" in page
    assert "could not be drawn" not in page


def test_json_and_markdown_hold_the_same(folder: Path, plans: list[Plan]) -> None:
    made = rendered(folder, plans)
    content = json.loads(made.json.read_bytes())
    assert content["noticed"] == "yes"
    assert content["nearest"]["plan"] == "xid-95-uncontained-ecc"
    assert "| Did an alert fire for the node? | held | 2.0 s |" in made.markdown.read_text()


def test_peoples_notes_are_in_the_report_when_it_is_rendered_again(folder: Path, plans: list[Plan]) -> None:
    (folder / "notes.yaml").write_text(
        "contributors: [a hot aisle]\ntimeline: [{at: 2026-03-03T09:00:30Z, who: ada, what: paged}]\n"
        "actions: [{what: page sooner, retest: 2026-04-15, type: detect}]\n"
    )
    made = rendered(folder, plans)
    for text in (made.html.read_text(), made.markdown.read_text()):
        assert "a hot aisle" in text
        assert "2026-04-15" in text
        assert "paged" in text


def test_bad_notes_cost_the_notes_and_not_the_report(folder: Path, plans: list[Plan]) -> None:
    (folder / "notes.yaml").write_text("actions: [{what: x, due: soon}]\n")
    page = rendered(folder, plans).html.read_text()
    assert "actions[0].due" in page
    assert "Noticed" in page


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", ":"),
        ("contributers: []", "contributers"),
        ("- 1", "mapping"),
        ("summary: \x00", "1:10"),
        ("x" * 300_000, "KiB"),
    ],
)
def test_notes_that_cannot_be_used_say_where(folder: Path, text: str, says: str) -> None:
    (folder / "notes.yaml").write_text(text)
    with pytest.raises(NotesError, match=says):
        read_notes(folder)


def test_the_empty_form_is_valid_and_never_overwrites(folder: Path) -> None:
    write_form(folder, "gameday post-mortem")
    assert read_notes(folder) == Notes()
    (folder / "notes.yaml").write_text(FORM.replace('summary: ""', "summary: filled in"))
    assert read_notes(folder).summary == "filled in"
    (folder / "notes.yaml").write_text("summary: mine\n")
    write_form(folder, "gameday post-mortem")
    assert read_notes(folder).summary == "mine"
    assert "retest" in FORM


def test_hostile_text_is_text_in_html_and_in_markdown(tmp_path: Path, plans: list[Plan]) -> None:
    folder = write_incident(tmp_path / "i", [xid(line=HOSTILE), alert(annotations={"summary": HOSTILE})])
    (folder / "notes.yaml").write_text(f"summary: {json.dumps(HOSTILE)}\n")
    made = rendered(folder, plans)
    page, text = made.html.read_text(), made.markdown.read_text()
    for whole in (page, text):
        assert "<script>alert" not in whole
        assert "\x1b" not in whole
    assert r"\[a\](http://b)" in text
    assert r"\| \`x\`" in text


@pytest.mark.parametrize(
    ("code", "plan"), [(95, "xid-95-uncontained-ecc"), (79, "gpu-fell-off-the-bus"), (13, "xid-13-application-error")]
)
def test_the_nearest_plan_writes_the_very_code(tmp_path: Path, plans: list[Plan], code: int, plan: str) -> None:
    story = rendered(write_incident(tmp_path / "i", [xid(code=code)]), plans).story
    assert story.nearest.plan == plan


def test_another_code_with_the_same_answer_is_near(tmp_path: Path, plans: list[Plan]) -> None:
    near = rendered(write_incident(tmp_path / "i", [xid(code=119)]), plans).story.nearest
    assert near.plan is not None
    assert "answers alike" in near.why


def test_without_a_line_the_alert_that_fired_finds_the_plan(tmp_path: Path, plans: list[Plan]) -> None:
    near = rendered(write_incident(tmp_path / "i", [alert()]), plans).story.nearest
    assert "expects the alert that fired" in near.why


def test_nothing_at_all_still_makes_a_report(tmp_path: Path, plans: list[Plan]) -> None:
    folder = write_incident(tmp_path / "i", [])
    (folder / "history.jsonl").write_bytes(b'{"torn')
    made = rendered(folder, plans)
    assert made.story.nearest.plan is None
    assert "nothing in it names a fault" in made.html.read_text()


def test_again_is_to_render_what_was_collected(folder: Path, plans: list[Plan]) -> None:
    assert '<pre class="command">gameday post-mortem incident-x</pre>' in rendered(folder, plans).html.read_text()


def test_the_fault_lasts_while_one_gpu_still_alerts(tmp_path: Path) -> None:
    other = alert(13).model_copy(update={"labels": alert().labels | {"pci_bus_id": "0000:18:00"}})
    for name, events, end in (("a", USUAL, 50.0), ("b", (*USUAL, other), 590.0)):
        folder = write_incident(tmp_path / name, events)
        run = page._load(folder, read_incident(folder))
        assert run.fault_window() == (0.0, end)


@pytest.mark.parametrize("label", ["Hostname", "hostname"])
def test_an_alert_does_not_repeat_its_node_as_the_exporters_label(
    tmp_path: Path, plans: list[Plan], label: str
) -> None:
    fired = alert().model_copy(update={"labels": alert().labels | {label: "n1", "gpu": "3"}})
    (row,) = rendered(write_incident(tmp_path / "i", [fired]), plans).story.alerts
    assert row.labels["gpu"] == "3"
    assert label not in row.labels


def test_a_standing_taint_is_no_event_of_the_timeline(tmp_path: Path, plans: list[Plan]) -> None:
    stood = taint(0, key="nvidia.com/gpu").model_copy(update={"at_baseline": True})
    again = rendered(write_incident(tmp_path / "i", [*USUAL, stood]), plans)
    assert not any("nvidia.com/gpu" in line.text for line in again.story.lines)


def test_an_inhibited_alert_is_not_said_to_have_gone_to_anybody(tmp_path: Path, plans: list[Plan]) -> None:
    made = rendered(write_incident(tmp_path / "i", [xid(), alert(inhibited=True, receivers=("pager",))]), plans)
    assert "inhibited, not sent" in made.html.read_text()
    assert "pager" not in made.html.read_text()


def test_usual_events_are_in_the_order_of_their_own_clocks(folder: Path, plans: list[Plan]) -> None:
    lines = rendered(folder, plans).story.lines
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    assert len(lines) == len(USUAL) - 1

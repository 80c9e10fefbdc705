"""What people write beside a run: in its report when that is rendered again, carried on, and never markup."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gameday.errors import NotesError
from gameday.history.events import RECORD, RunStarted
from gameday.history.frames import Frames
from gameday.report.notes import read_notes, write_form
from tests.report import around
from tests.report import run_builder as build
from tests.report.page import Page, drawn
from tests.report.test_report_survives import HOSTILE

SECTIONS = ("verdict", "people", "timeline", "learning", "actions")
"""The places that show notes, beside the problems."""


def rendered(folder: Path, notes: str) -> tuple[Page, dict]:
    if not folder.exists():
        build.write(folder, build.passing(), Frames())
    (folder / "notes.yaml").write_text(notes, errors="surrogatepass")
    return drawn(folder, *SECTIONS)


def test_the_time_to_acknowledge_counts_from_the_first_alert(tmp_path):
    page, data = rendered(tmp_path / "run", around.NOTES)
    assert data["people"]["alert"] == build.ALERT
    assert data["people"]["to_acknowledge_s"] == pytest.approx(20 - build.FAULT_AT - 5.4)
    assert data["people"]["to_first_action_s"] == pytest.approx(25 - build.FAULT_AT - 5.4)
    assert "5.2 s after GpuXidCritical fired" in page.text("people")


def test_how_far_the_runbook_was_followed_counts_the_steps_that_were_judged(tmp_path):
    page, data = rendered(tmp_path / "run", around.NOTES)
    assert data["people"]["fidelity"] == 0.5
    assert "50 % of 2 steps judged" in page.text("people")
    assert "nobody said" in page.text("people")


def test_an_acknowledgement_before_the_alert_is_a_doubt_and_no_duration(tmp_path):
    page, data = rendered(tmp_path / "run", "acknowledged: {at: 2026-03-03T08:59:00Z}\n")
    assert data["people"]["to_acknowledge_s"] is None
    assert "one of the two times is wrong" in page.text("people")


def test_no_alert_leaves_nothing_to_count_from(tmp_path):
    build.write(tmp_path / "run", build.detector_off(), Frames())
    page, data = rendered(tmp_path / "run", around.NOTES)
    assert data["people"]["to_acknowledge_s"] is None
    assert "no alert fired that it could be counted from" in page.text("people")


def test_peoples_notes_are_in_the_timeline_in_order(tmp_path):
    _, data = rendered(tmp_path / "run", around.NOTES)
    lines = data["timeline"]["lines"]
    assert [line["offset_s"] for line in lines] == sorted(line["offset_s"] for line in lines)
    human = [line for line in lines if line["tone"] == "human"]
    assert [(line["actor"], line["text"]) for line in human] == [
        ("ada", "Took the alert"),
        ("bob", "the fans spun up"),
        ("ada", "looked at dmesg"),
    ]
    assert human[0]["offset_s"] == pytest.approx(20 - build.FAULT_AT)


def test_lessons_are_under_their_headings(tmp_path):
    page, _ = rendered(tmp_path / "run", around.NOTES)
    text = page.text("learning")
    for said in ("the page came at once", "it was a Tuesday", "a hot aisle", "two dashboards disagreed"):
        assert said in text


def test_the_report_mentions_that_nobody_wrote_notes(tmp_path):
    build.write(tmp_path, build.passing(), Frames())
    page, _ = drawn(tmp_path, *SECTIONS)
    assert not {"people", "learning", "actions"} & {attributes["id"] for attributes in page.attributes("section")}
    assert page.text().count("write it into notes.yaml beside this page") == 1


def test_the_form_that_a_run_leaves_says_nothing(tmp_path):
    build.write(tmp_path, build.passing(), Frames())
    write_form(tmp_path, "gameday report")
    assert f"gameday report {tmp_path}" in (tmp_path / "notes.yaml").read_text()
    page, _ = drawn(tmp_path, *SECTIONS)
    assert "write it into notes.yaml beside this page" in page.text()
    assert "Problems, and what to do (none on record)" in page.text()


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ("went_well:\n  - one\nactions:\n  - what: x\n    due: soon\n", "notes.yaml:5:10: actions[0].due"),
        ("acknowledged: {at: '09:12'}\n", "a time is written with date and zone"),
        ("acknowledged: {at: '2026-03-03T09:12'}\n", "a time is written with date and zone"),
        ("went_wel: [x]\n", "did you mean `went_well`?"),
        ("summary: a: b\n", "notes.yaml:1:"),
        ("actions: [{what: x, state: opn}]\n", "did you mean `open`?"),
        ("\x00", "notes.yaml:1:1"),
        ("&a [*a]\n", "notes.yaml:1:"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path, notes, said):
    (tmp_path / "notes.yaml").write_text(notes)
    with pytest.raises(NotesError) as raised:
        read_notes(tmp_path)
    assert said in str(raised.value)


def test_a_bad_file_costs_the_notes_and_not_the_report(tmp_path):
    page, _ = rendered(tmp_path / "run", "went_well:\n  - one\nactions:\n  - what: x\n    due: soon\n")
    assert "notes.yaml:5:10: actions[0].due" in page.text("people")
    assert "The notes people wrote are not shown" in page.text("problems")
    assert "Passed" in page.text("verdict")


def test_a_notes_folder_in_place_of_a_file_costs_the_notes_alone(tmp_path):
    build.write(tmp_path, build.passing(), Frames())
    (tmp_path / "notes.yaml").mkdir()
    assert "not a regular file" in drawn(tmp_path, "people")[0].text("people")


@pytest.mark.parametrize("text", [HOSTILE[0], HOSTILE[1], HOSTILE[5]])
def test_hostile_notes_are_text(tmp_path, text):
    words = json.dumps("".join(c for c in text if c.isprintable()))
    notes = (
        f"summary: {words}\npeople: {{owner: {words}}}\nacknowledged: {{at: 2026-03-03T09:00:20Z, who: {words}}}\n"
        f"runbook: {{link: {words}, steps: [{{step: {words}, why: {words}}}]}}\nwent_well: [{words}]\n"
        f"timeline: [{{at: 2026-03-03T09:00:20Z, who: {words}, what: {words}}}]\n"
        f"actions: [{{id: {words}, what: {words}, owner: {words}, ticket: {words}}}]\n"
    )
    page, _ = rendered(tmp_path / "run", notes)
    calm, _ = rendered(tmp_path / "calm", notes.replace(words, '"calm"'))
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in calm.tags}
    assert [name for _, attrs in page.tags for name in attrs if name.startswith("on")] == []
    assert [attrs["href"] for attrs in page.attributes("a") if not attrs["href"].startswith("#")] == []


def test_only_web_addresses_become_links(tmp_path):
    page, _ = rendered(tmp_path / "run", around.NOTES)
    out = [attrs["href"] for attrs in page.attributes("a") if not attrs["href"].startswith("#")]
    assert sorted(out) == ["https://runbooks.example/xid-79", "https://tickets.example/1"]


def later(reports: Path, day: int, notes: str = "") -> tuple[Page, dict]:
    """A run of the plan so many days after the builder's, in a folder of its own beside the others."""
    run_id = f"run-{day}"
    timed = build.replacing(build.passing(), lambda e: isinstance(e, RunStarted), run_id=run_id)
    folder = build.write(reports / run_id, timed, Frames())
    records = [replace(r, at=r.at + timedelta(days=day)) for r in build.history_of(timed).records]
    (folder / "history.jsonl").write_bytes(b"".join(RECORD.dump_json(r) + b"\n" for r in records))
    return rendered(folder, notes)


def carried(data: dict) -> list[tuple[str, str | None]]:
    return [(row["action"]["what"], row["run_id"]) for row in data["actions"]["rows"]]


def test_open_actions_come_back_in_the_plans_next_runs(tmp_path):
    later(tmp_path, 0, around.NOTES)
    page, data = later(tmp_path, 8)
    assert carried(data) == [("mend the link", "run-0")]
    row = data["actions"]["rows"][0]
    assert row["overdue"] is True and row["retested_here"] is True
    assert "left open by run run-0" in page.text("actions") and "this run is that test" in page.text("actions")


def test_a_later_runs_notes_close_an_action(tmp_path):
    later(tmp_path, 0, around.NOTES)
    later(tmp_path, 1, "actions: [{id: A1, what: mended, state: done}]\n")
    _, data = later(tmp_path, 2)
    assert carried(data) == []


def test_this_runs_own_note_on_an_action_replaces_earlier_ones(tmp_path):
    later(tmp_path, 0, around.NOTES)
    _, data = later(tmp_path, 1, "actions: [{id: A1, what: mend the link, state: dropped}]\n")
    assert carried(data) == [("mend the link", None)]
    assert data["actions"]["open"] == 0


def test_damaged_notes_of_an_earlier_run_are_shown_as_a_problem(tmp_path):
    later(tmp_path, 0, "actions: [\n")
    page, _ = later(tmp_path, 1)
    assert "The open actions of run run-0 cannot be read" in page.text("problems")


def test_nothing_but_comments_is_nothing_written(tmp_path):
    (tmp_path / "notes.yaml").write_text("# later\n\n")
    assert read_notes(tmp_path).open_actions == ()

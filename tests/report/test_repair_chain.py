"""The repair chain in the report: who took each hop, when, how long, and what the cluster left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gameday.history.events import NodeReplaced, QaLeftOut, RepairHopSeen
from gameday.history.journal import History
from gameday.report.durations import durations
from gameday.report.lanes import story_lanes
from gameday.report.narration import narrate
from gameday.report.run_folder import load_run_folder
from gameday.report.summary import DurationKind
from gameday.values.results import RepairHop
from tests.checks.test_repair_chain import SUCCESSOR, ended, hands_off, plan
from tests.report import run_builder as build
from tests.report.page import Page, drawn


def written(folder: Path, history: History) -> Path:
    timed = [build.Timed((record.at - build.START).total_seconds(), record.event) for record in history.records]
    made = build.write(folder, timed)
    (made / "plan.json").write_text(plan().model_dump_json())
    return made


def story_of(folder: Path, *, redact: bool = False) -> tuple[Page, dict[str, Any]]:
    page, data = drawn(folder, "repair-chain", redact=redact)
    assert "failure" not in data["repair-chain"], data
    return page, data["repair-chain"]


def test_each_hop_has_its_actor_its_duration_its_bound_and_its_verdict(tmp_path: Path) -> None:
    page, data = story_of(written(tmp_path, hands_off(ended())))
    (story,) = data["stories"]
    assert [row["hop"] for row in story["rows"]] == list(RepairHop)
    assert {(row["by"], row["took_s"], row["bound"], row["status"]) for row in story["rows"]} == {
        ("foreign", 1.0, "≤ 5 s", "held")
    }
    assert next(row["kind"] for row in story["rows"] if row["hop"] == "repaired") == "reboot"
    text = page.text("repair-chain")
    assert f"The chain on {build.NODE} took 7.0 s from the fault to its last hop." in " ".join(text.split())
    for words in ("Repair begun", "foreign", "watch of the node", "since work moved"):
        assert words in text


def test_a_chain_that_stopped_names_the_hop_and_what_was_left(tmp_path: Path) -> None:
    end = ended(RepairHop.REPAIR_BEGUN, in_service=False, left=("taint a=b:NoSchedule", "cordon"))
    folder = written(tmp_path, hands_off(end, hops=list(RepairHop)[:2], qa=False))
    page, data = story_of(folder)
    (story,) = data["stories"]
    assert (story["stopped_at"], story["in_service"]) == ("repair begun", False)
    text = " ".join(page.text("repair-chain").split())
    assert "at the hop repair begun : not within 5s." in text
    assert "The cluster left on the node: taint a=b:NoSchedule, cordon. The game-day does not touch it." in text
    assert text.count("not seen") == 5


def test_both_names_of_a_replaced_node_are_one_story_and_neither_leaves_the_house(tmp_path: Path) -> None:
    pool = {"karpenter.sh/nodepool": "a"}
    replaced = NodeReplaced(node=build.NODE, successor=SUCCESSOR, pool=pool, boot_id="b2", at=build.at(24.0))
    folder = written(tmp_path, hands_off(build.Timed(24.0, replaced), ended()))
    page, data = story_of(folder)
    (story,) = data["stories"]
    assert (story["node"], story["successor"]) == (build.NODE, SUCCESSOR)
    assert "Another machine took its place" in page.text("repair-chain")
    redacted, _ = story_of(folder, redact=True)
    assert SUCCESSOR not in redacted.text("repair-chain")
    assert build.NODE not in redacted.text("repair-chain")


def test_plans_in_which_the_game_day_repairs_have_no_story(tmp_path: Path) -> None:
    page, data = story_of(build.write(tmp_path, build.passing()))
    assert data == {"stories": []}
    assert "Repair chain (the game-day itself repairs" in page.text()


def test_the_durations_of_repair_and_return_are_the_clusters(tmp_path: Path) -> None:
    run = load_run_folder(written(tmp_path, hands_off(ended())))
    found = {one.measure: one.seconds for one in durations(run)}
    assert found[DurationKind.RECOVER] == 2.0
    assert found[DurationKind.RETURN] == 7.0


def test_the_first_screen_has_a_lane_for_each_hop(tmp_path: Path) -> None:
    lanes = story_lanes(load_run_folder(written(tmp_path, hands_off(ended())))).lanes
    (repaired,) = [lane for lane in lanes if lane.label == "Repair chain: repaired"]
    assert repaired.detail == f"{build.NODE}, by foreign"
    assert [(bar.start_s, bar.end_s) for bar in repaired.bars] == [(3.0, 4.0)]


def test_the_timeline_says_who_took_a_hop_and_why_the_chain_ended() -> None:
    history = hands_off(ended(RepairHop.READY, left=("cordon",), in_service=False))
    hop = next(seen for seen in history.of(RepairHopSeen) if seen.hop is RepairHop.REPAIRED)
    said = narrate(hop)
    assert said is not None
    assert (said.actor, said.text) == (
        "foreign",
        f"Repair chain of {build.NODE}: repaired by reboot, 1.0 s after repair begun",
    )
    end = narrate(ended(RepairHop.READY, left=("cordon",), in_service=False).event)
    assert end is not None
    assert end.text.endswith("stopped at the hop ‘ready’: not within 5s; it left cordon")
    left_out = narrate(QaLeftOut(node="n", why="it stays out"))
    assert left_out is not None and left_out.text == "QA of n is left out: it stays out"

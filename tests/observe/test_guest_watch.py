"""A rehearsal's guest as a run watches it: refused where it is down, its life and words in the history, its output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gameday.cluster.profile import ClusterProfile, GuestAddress
from gameday.errors import RefusedError
from gameday.history.events import FaultInjected, GuestNamed, GuestSpoke, GuestState
from gameday.observe.guest_watch import GuestWatch, guest_trouble, watch_guest
from gameday.run.record import RunRecord
from gameday.run.run import Run
from gameday.run.targets import ChosenTarget
from gameday.values.nodes import Target
from tests.guard.observations import profile
from tests.support.guest_server import GuestServer, guest_server
from tests.support.runs import fake_run, node_snapshot, quick_plan

NODE = "gpu-node-1"


@pytest.fixture
def guest() -> Iterator[GuestServer]:
    with guest_server() as served:
        yield served


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    record = RunRecord("r1", tmp_path, quick_plan(), None)
    yield fake_run(record, profile())
    record.journal.close()


def address(guest: GuestServer, says: str = "") -> GuestAddress:
    return GuestAddress(name="npd", version="v1", url=guest.url, says=says)


def inject(run: Run, node: str = NODE) -> datetime:
    """Note that a fault went into the node now."""
    at = datetime.now(UTC)
    target = Target(node=node, gpu=0)
    fault = {"intent": "f", "target": target, "fault": "xid", "layer": "kernel log", "written_at": at, "evidence": ()}
    run.note(FaultInjected(**fault, does_not_reach="", seen_by=()))
    return at


def changes(run: Run) -> list[tuple[str | None, str]]:
    return [(event.node, event.change) for event in run.history().of(GuestState)]


def test_a_guest_that_runs_on_every_target_is_no_trouble(guest: GuestServer) -> None:
    guest.runs(NODE, datetime.now(UTC))
    assert guest_trouble(address(guest), [NODE]) == ""


def test_one_program_of_the_cluster_watches_every_target(guest: GuestServer) -> None:
    guest.runs("cluster", datetime.now(UTC))
    assert guest_trouble(address(guest), [NODE, "gpu-node-2"]) == ""


def test_a_guest_that_ended_is_refused_with_its_last_words(guest: GuestServer) -> None:
    now = datetime.now(UTC)
    guest.runs(NODE, now, state="waiting", ended_by_itself=1, last_exit="exit status 1")
    for line in range(5):
        guest.says(NODE, now, f"line {line}, which makes the output longer than a page")
    guest.says(NODE, now, "panic: no /dev/kmsg; token=abcdefghijk")
    why = guest_trouble(address(guest), [NODE])
    assert "does not run on gpu-node-1" in why
    assert "exit status 1" in why
    assert "panic: no /dev/kmsg" in why
    assert "abcdefghijk" not in why


def test_a_target_without_any_program_is_refused(guest: GuestServer) -> None:
    guest.runs("gpu-node-2", datetime.now(UTC))
    assert guest_trouble(address(guest), [NODE]) == "the guest npd has no program for gpu-node-1"


def test_a_run_is_refused_where_the_guest_does_not_come_up(
    guest: GuestServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gameday.observe.guest_watch._STARTS_WITHIN", timedelta(seconds=0.2))
    guest.runs(NODE, datetime.now(UTC), state="down")
    watched = replace(run, profile=run.profile.model_copy(update={"guest": address(guest)}))
    target = ChosenTarget(target=Target(node=NODE, gpu=0), before=node_snapshot(NODE), index=0)
    with pytest.raises(RefusedError, match="does not run on gpu-node-1") as refused:
        watch_guest(watched, (target,))
    assert "use `--cluster lab`" in refused.value.hint
    lab = replace(watched, profile=watched.profile.model_copy(update={"lab_control": tmp_path}))
    with pytest.raises(RefusedError) as refused:
        watch_guest(lab, (target,))
    assert "--cluster lab" not in refused.value.hint
    assert run.history().of(GuestNamed) == []
    watch_guest(run, (target,))


def test_ends_and_floods_are_noted_once(guest: GuestServer, run: Run) -> None:
    now = datetime.now(UTC)
    guest.runs(NODE, now)
    guest.runs("gpu-node-2", now, ended_by_itself=7)
    watch = GuestWatch(run, address(guest), [NODE])
    watch.look()
    watch.look()
    guest.runs(NODE, now + timedelta(seconds=1), ended_by_itself=1, last_exit="signal 9")
    watch.look()
    guest.runs(NODE, now + timedelta(seconds=1), ended_by_itself=1, last_exit="signal 9", flooded=True)
    watch.look()
    watch.look()
    assert changes(run) == [(NODE, "running"), (NODE, "ended by itself"), (NODE, "running"), (NODE, "flooded")]


def test_a_boot_of_its_node_is_no_end_by_itself(guest: GuestServer, run: Run) -> None:
    now = datetime.now(UTC)
    guest.runs(NODE, now)
    watch = GuestWatch(run, address(guest), [NODE])
    watch.look()
    guest.runs(NODE, now, state="down")
    watch.look()
    guest.runs(NODE, now + timedelta(seconds=5))
    watch.look()
    assert changes(run) == [(NODE, "running"), (NODE, "down"), (NODE, "running")]


def test_a_rehearsal_that_no_longer_answers_is_noted(run: Run) -> None:
    with guest_server() as served:
        served.runs(NODE, datetime.now(UTC))
        gone = address(served)
        watch = GuestWatch(run, gone, [NODE])
        watch.look()
    watch.look()
    watch.look()
    assert changes(run) == [(NODE, "running"), (NODE, "not answering")]


def test_the_first_word_after_the_fault_counts(guest: GuestServer, run: Run) -> None:
    start = datetime.now(UTC)
    guest.runs(NODE, start)
    guest.says(NODE, start, "Xid noticed: an old one")
    watch = GuestWatch(run, address(guest, says="Xid noticed"), [NODE])
    watch.look()
    fault = inject(run)
    guest.says(NODE, fault + timedelta(seconds=1), "nothing to see")
    guest.says(NODE, fault + timedelta(seconds=2), "Xid noticed: 79")
    guest.says(NODE, fault + timedelta(seconds=3), "Xid noticed: again")
    watch.look()
    watch.look()
    assert [(one.node, one.line) for one in run.history().of(GuestSpoke)] == [(NODE, "Xid noticed: 79")]


def test_a_word_of_the_clusters_program_has_to_name_the_node(guest: GuestServer, run: Run) -> None:
    guest.runs("cluster", datetime.now(UTC))
    watch = GuestWatch(run, address(guest, says="tainted"), [NODE])
    fault = inject(run)
    guest.says("cluster", fault + timedelta(seconds=1), "tainted gpu-node-12")
    watch.look()
    assert run.history().of(GuestSpoke) == []
    guest.says("cluster", fault + timedelta(seconds=2), "tainted gpu-node-1, node unhealthy")
    watch.look()
    assert [one.node for one in run.history().of(GuestSpoke)] == [NODE]


def test_the_runs_own_time_of_the_output_is_kept_without_secrets(guest: GuestServer, run: Run) -> None:
    guest.runs(NODE, datetime.now(UTC))
    guest.says(NODE, run.record.started - timedelta(hours=1), "from before this run")
    guest.says(NODE, datetime.now(UTC), "Authorization: Bearer abcdefghijklmnop")
    watch = GuestWatch(run, address(guest), [NODE])
    watch.look()
    kept = (run.record.folder / "guest" / f"{NODE}.log").read_text()
    assert "before" not in kept
    assert kept.count("\n") == 1
    assert "Bearer (hidden)" in kept


def test_the_kept_output_has_a_limit(guest: GuestServer, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.observe.guest_watch._MOST_KEPT_BYTES", 200)
    guest.runs(NODE, datetime.now(UTC))
    for _ in range(20):
        guest.says(NODE, datetime.now(UTC), "the same again")
    watch = GuestWatch(run, address(guest), [NODE])
    watch.look()
    kept = (run.record.folder / "guest" / f"{NODE}.log").read_text()
    assert len(kept) <= 200
    assert kept.endswith("(more was written, and is left out)\n")


def test_a_profile_names_a_guest_by_an_expression_that_compiles() -> None:
    with pytest.raises(ValueError, match="no regular expression"):
        GuestAddress(name="npd", url="http://127.0.0.1:1/guests", says="(")
    assert "guest" in ClusterProfile.model_fields

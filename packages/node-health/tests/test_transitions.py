"""A node's state and its transitions, without a cluster."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.cluster.loki import LogLine, nanoseconds
from gameday.xid.catalogue import Remedy
from gameday.xid.lines import BEAT, Kind, format_xid, recognise
from gameday_health import transitions
from gameday_health.events import NodeEvents
from gameday_health.metrics import code_label
from gameday_health.model import (
    LONGEST_ANNOTATION,
    REASON,
    Fault,
    LogProgress,
    NodeState,
    NodeView,
    Taint,
    digest,
    read_progress,
    read_reason,
    write_reason,
)
from gameday_health.policy_files import kernel_signal, load_policy

POLICY = load_policy().policy
KEY = "trainy.konduktor.ai/faulty"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def view(boot: str = "b1", tainted: bool = False, reason: str | None = None) -> NodeView:
    annotations = {REASON: reason} if reason else {}
    taints = [{"key": KEY, "value": "true", "effect": "NoSchedule"}] if tainted else None
    return NodeView.of(
        {
            "metadata": {"name": "n1", "uid": "u", "resourceVersion": "1", "annotations": annotations},
            "spec": {"taints": taints},
            "status": {"nodeInfo": {"bootID": boot}},
        }
    )


def fault(code: int = 79, pci: str | None = "0000:4e:00", **changes: Any) -> Fault:
    return Fault(kind=Kind.XID, code=code, pci=pci, at=NOW, remedy=Remedy.REBOOT).model_copy(update=changes)


def feed(state: NodeState, text: str, at: datetime = NOW) -> str | None:
    """Take in a line; return why it was ignored, or None."""
    event = recognise(text)
    assert event is not None
    line = LogLine(nanoseconds(at), (), text)
    ignored = transitions.ignore_reason(state, line, event)
    if ignored is None:
        signal = replace(kernel_signal(event, "n1", at), key=transitions.line_key(line, event))
        transitions.record(state, signal)
        transitions.add_fault(state, signal, POLICY.decide(signal), at)
    return ignored


def test_a_reason_survives_its_annotation_and_fits_it() -> None:
    faults = [fault(code, f"0000:{code:02x}:00", why="é" * 500) for code in range(60)]
    seen = LogProgress()
    for number in range(20):
        seen = seen.advanced("b1", nanoseconds(NOW), None).with_line(digest(str(number)))
    text = write_reason(faults, seen, "default", "b1", NOW)
    assert len(text.encode()) <= LONGEST_ANNOTATION
    reason = read_reason(text)
    assert reason is not None
    assert reason.faults()[0].is_same(faults[0])
    assert 1 + len(reason.others) + reason.more == 60
    assert len(reason.others) >= 7  # the eight GPUs of a node
    assert reason.seen == seen
    assert json.loads(text)["code"] == 0


@given(
    st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5).map(json.dumps))
)
def test_an_annotation_that_somebody_garbled_does_no_harm(text: str) -> None:
    state = transitions.initial_state(view(tainted=True, reason=text), read_progress(text), KEY, NOW)
    assert state.faults == []
    assert state.progress == LogProgress()


def test_a_lost_gpu_is_one_fault_however_many_lines_report_it() -> None:
    state = transitions.initial_state(view(), LogProgress(), KEY, NOW)
    for uptime, text in enumerate(
        [format_xid(79, "0000:4e:00"), "NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.",
         "NVRM: fallen off the bus and is not responding to commands.", format_xid(79, "0000:4e:00")]
    ):  # fmt: skip
        assert feed(state, f"[{uptime}.000001] {text}") is None
    assert [(known.code, known.pci) for known in state.faults] == [(79, "0000:4e:00")]
    feed(state, format_xid(79, "0000:5e:00"))
    assert len(state.faults) == 2


def test_lines_from_before_the_boot_are_ignored() -> None:
    state = transitions.initial_state(view("b1"), LogProgress(), KEY, NOW)
    transitions.update_view(state, view("b1"), KEY, NOW + timedelta(seconds=10))
    transitions.update_view(state, view("b2"), KEY, NOW + timedelta(seconds=60))
    assert feed(state, format_xid(79, "0000:4e:00"), NOW + timedelta(seconds=5)) == "before boot"
    # Between the last sight of the old boot and the first of the new one nobody knows: better quarantined.
    assert feed(state, format_xid(79, "0000:4e:00"), NOW + timedelta(seconds=30)) is None


def stamped(uptime_s: float, code: int = 119, pci: str = "0000:4e:00") -> str:
    return f"[{uptime_s:12.6f}] {format_xid(code, pci)}"


def s(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def beat(state: NodeState, uptime_s: float, at: datetime = NOW) -> bool:
    return transitions.apply_beat(state, LogLine(nanoseconds(at), (), f"[{uptime_s:.2f}] {BEAT}"), uptime_s)


def test_a_shipper_that_starts_again_repeats_every_line_however_many_there_were() -> None:
    state = transitions.initial_state(view(), LogProgress(), KEY, NOW)
    lines = [stamped(100), stamped(107), *(stamped(200 + number, 45) for number in range(300))]
    assert {feed(state, line, s(number)) for number, line in enumerate(lines)} == {None}
    assert {feed(state, line, s(1000 + number)) for number, line in enumerate(lines)} == {"repeated"}
    assert feed(state, stamped(600), s(1500)) is None


def test_a_line_that_only_reaches_the_store_late_is_acted_upon() -> None:
    state = transitions.initial_state(view(), LogProgress(), KEY, NOW)
    assert feed(state, stamped(130, 45), s(30)) is None
    assert feed(state, stamped(110), s(10)) is None
    assert feed(state, stamped(110), s(60)) == "repeated"


def test_lines_of_two_cpus_may_change_places() -> None:
    state = transitions.initial_state(view(), LogProgress(), KEY, NOW)
    assert feed(state, stamped(100.000009, pci="0000:4e:00"), s(1)) is None
    assert feed(state, stamped(100.000009, pci="0000:5e:00"), s(1.1)) is None
    assert feed(state, stamped(100.000003, pci="0000:6e:00"), s(1.2)) is None
    assert len(state.faults) == 3


def test_no_line_is_taken_for_new_after_a_start_even_with_more_lines_than_digests() -> None:
    state = transitions.initial_state(view(), LogProgress(), KEY, NOW)
    lines = [stamped(100, pci=f"0000:{number:02x}:00") for number in range(40)]
    for line in lines:
        feed(state, line, s(1))
    again = transitions.initial_state(view(), state.progress, KEY, s(50))
    assert {feed(again, line, s(60)) for line in lines} == {"repeated"}


def test_a_line_of_a_machine_just_booted_waits_for_its_boot_id() -> None:
    state = transitions.initial_state(view("b1"), LogProgress(), KEY, NOW)
    feed(state, stamped(90_000), s(1))
    early = LogLine(nanoseconds(s(300)), (), stamped(20))
    event = recognise(early.text)
    assert event is not None
    assert transitions.may_be_of_next_boot(state, early, event)
    transitions.update_view(state, view("b2"), KEY, s(310))
    assert not transitions.may_be_of_next_boot(state, early, event)
    assert transitions.ignore_reason(state, early, event) is None
    known = transitions.initial_state(view("b1"), LogProgress(), KEY, NOW)
    feed(known, stamped(90_000), s(1))
    transitions.update_view(known, view("b1"), KEY, s(310))
    assert not transitions.may_be_of_next_boot(known, early, event)
    assert transitions.ignore_reason(known, early, event) == "repeated"


def test_a_late_line_of_the_old_boot_does_not_silence_the_new_one() -> None:
    state = transitions.initial_state(view("b1"), LogProgress(), KEY, NOW)
    transitions.update_view(state, view("b2"), KEY, s(60))
    assert feed(state, stamped(900_000), s(30)) is None
    assert feed(state, stamped(40, 79), s(90)) is None
    assert feed(state, stamped(50, 74), s(91)) is None


def test_lines_from_before_anything_was_known_of_a_node_are_history() -> None:
    state = transitions.initial_state(view(), LogProgress(), KEY, NOW)
    state.has_unknown_past = True
    beat(state, 90_000)
    old, new = recognise(stamped(5_000)), recognise(stamped(89_900))
    assert old and new
    assert transitions.is_history(state, old) and not transitions.is_history(state, new)
    beat(state, 99_000)
    assert not transitions.is_history(state, new)
    transitions.update_view(state, view("b2"), KEY, s(1))
    assert not transitions.is_history(state, old)


BLIND = "[999999999.000001] NVRM: Xid (PCI:0000:03:00): 13, pid=1, name=x, blind"


@pytest.mark.parametrize("uptime_s", [None, 600.0, 400 * 86_400.0])
def test_a_line_from_the_future_blinds_nobody(uptime_s: float | None) -> None:
    state = transitions.initial_state(view(), LogProgress(), KEY, NOW)
    if uptime_s is not None:
        assert beat(state, uptime_s)
    assert feed(state, BLIND, s(1)) == "impossible stamp"
    assert feed(state, stamped((uptime_s or 0) + 2), s(2)) is None


@pytest.mark.parametrize("uptime_s", [60.0, 86_400.0, 400 * 86_400.0])
@pytest.mark.parametrize("ppm", [-400, 400])
def test_a_clock_that_drifts_as_far_as_clocks_do_is_no_forged_stamp(uptime_s: float, ppm: int) -> None:
    state = transitions.initial_state(view(), LogProgress(), KEY, NOW)
    assert beat(
        state, uptime_s, s(600)
    )  # its clock was ten minutes ahead, which Loki just lets pass, and is right again
    assert feed(state, stamped((uptime_s + 30) * (1 + ppm / 1e6)), s(30)) is None


def test_a_stamp_of_the_boot_before_is_refused_in_the_new_one() -> None:
    state = transitions.initial_state(view("b1"), LogProgress(), KEY, NOW)
    transitions.update_view(state, view("b2"), KEY, s(300))
    assert feed(state, stamped(90_000, 79), s(400)) == "impossible stamp"
    assert feed(state, stamped(110, 79), s(410)) is None


def test_a_late_line_of_the_old_boot_is_acted_upon_though_the_new_one_beats() -> None:
    state = transitions.initial_state(view("b1"), LogProgress(), KEY, NOW)
    assert beat(state, 90_000, s(1)) and beat(state, 5, s(300))
    assert feed(state, stamped(90_100, 79), s(101)) is None


def test_a_mark_that_was_set_before_the_first_beat_is_taken_back_by_it() -> None:
    forged = LogProgress(boot="b1", until_ns=nanoseconds(NOW), until_uptime_s=5e7)
    state = transitions.initial_state(view(), forged, KEY, s(1))
    assert feed(state, stamped(90_000), s(2)) == "repeated"
    assert beat(state, 90_001, s(3))
    assert feed(state, stamped(90_010, 79), s(12)) is None
    assert not beat(state, 999_999_999.0, s(13))
    assert feed(state, BLIND, s(14)) == "impossible stamp"


def test_the_first_beat_of_a_new_boot_does_not_take_back_the_mark_of_the_old_one() -> None:
    state = transitions.initial_state(view("b1"), LogProgress(), KEY, NOW)
    feed(state, stamped(90_000), s(1))
    beat(state, 5, s(300))
    assert state.progress.until_uptime_s == 90_000


def test_an_annotation_silences_no_line_yet_to_come() -> None:
    reason = write_reason([fault()], LogProgress(boot="b1", until_ns=1, until_uptime_s=1e9), "default", "b1", NOW)
    state = transitions.initial_state(view(tainted=True, reason=reason), LogProgress(), KEY, NOW)
    assert feed(state, stamped(100), s(1)) is None


def test_memory_per_node_is_bounded() -> None:
    state = transitions.initial_state(view(), LogProgress(), KEY, NOW)
    for number in range(2000):
        feed(state, f"[{number}.000001] " + format_xid(79, f"{number:04x}:4e:00"))
    assert len(state.recent_digests) <= 256
    assert len(state.faults) <= 64
    assert len(state.progress.lines) <= 16


def test_a_fault_not_yet_written_survives_the_removal_of_an_older_taint() -> None:
    state = transitions.initial_state(
        view(tainted=True, reason=write_reason([fault(74)], LogProgress(), "default", "b1", NOW)),
        LogProgress(),
        KEY,
        NOW,
    )
    feed(state, format_xid(79, "0000:4e:00"))
    ended = transitions.update_view(state, view(), KEY, NOW)
    assert [gone.code for gone in ended] == [74]
    assert [left.code for left in state.faults] == [79]


def test_taints_are_read_as_kubectl_writes_them() -> None:
    assert Taint.parse("trainy.konduktor.ai/faulty=true:NoSchedule") == Taint(KEY, "true", "NoSchedule")
    assert Taint.parse("a:NoExecute") == Taint("a", "", "NoExecute")
    for bad in ("", "a", "a=b", "a=b:Never", "=b:NoSchedule"):
        with pytest.raises(ValueError, match="write it like"):
            Taint.parse(bad)


def test_the_code_label_is_bounded() -> None:
    assert [code_label(Kind.XID, code) for code in (79, 999, None)] == ["79", "other", ""]
    assert [code_label(Kind.SXID, code) for code in (20034, 79)] == ["20034", "other"]


class RecordingApi:
    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []

    def request(self, method: str, path: str, body: dict[str, Any], *_: object) -> dict[str, Any]:
        self.sent.append((method, body["count"]))
        return {}


def test_repeated_events_are_counted_instead_of_written(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("gameday_health.events.time.monotonic", lambda: clock[0])
    api = RecordingApi()
    events = NodeEvents(api)  # type: ignore[arg-type]
    for _ in range(500):
        events.add("n1", "u", "GPUXid13", "x", NOW, warning=False)
        events.flush()
    events.add("n1", "u", "GPUXid79", "x", NOW, warning=True)
    events.flush()
    assert api.sent == [("POST", 1), ("POST", 1)]
    assert events.seconds_until_due() == 60.0
    clock[0] += 60
    events.flush()
    assert api.sent[2:] == [("PATCH", 500)]
    assert events.seconds_until_due() == math.inf


def test_a_reason_written_before_policies_were_files_is_still_read() -> None:
    text = (
        '{"kind":"xid","code":79,"pci":"0000:c3:00","at":"2026-11-22T06:05:52.689351Z","remedy":"reboot",'
        '"why":"GPU has fallen off the bus (NVIDIA: RESTART_BM)","policy":"catalogue","boot":"b1",'
        '"decided":"2026-11-22T06:05:52.797975Z","seen":{"boot":"b1","until_ns":5,"lines":["0123456789abcdef"]}}'
    )
    reason = read_reason(text)
    assert reason is not None
    assert (reason.kind, reason.code, reason.name, reason.remedy) == (Kind.XID, 79, "", Remedy.REBOOT)
    state = transitions.initial_state(view(tainted=True, reason=text), LogProgress(), KEY, NOW)
    assert [fault.code for fault in state.active()] == [79]

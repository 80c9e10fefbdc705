"""The lines of a posture, and what is foreseen of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gameday.detectors.load import load_detector
from gameday.host.kernel_log import encode_record
from gameday.host.shell_writer import PCI_PLACE
from gameday_prove.lines import foreseen, lines_for, must_go_by_hand, record_of, signals, watch_for
from gameday_prove.look import profiles
from gameday_prove.values import Posture

NPD, KONDUKTOR, OURS = (load_detector(name) for name in ("node-problem-detector", "konduktor", "gameday"))


def codes(posture: Posture, *names: str) -> list[int]:
    return [line.xid for line in lines_for(posture, [load_detector(name) for name in names])]


def test_a_quiet_proof_has_two_harmless_lines_and_one_that_is_answered() -> None:
    assert codes(Posture.QUIET, "node-problem-detector") == [43, 31, 79]
    assert {str(one) for one in signals(NPD, 79)} == {"Event GPUXidHardware", "GPUXidFault=True"}


@pytest.mark.parametrize("name", [one.name for one in profiles()])
def test_no_quiet_line_takes_a_node_out_of_service(name: str) -> None:
    profile = load_detector(name)
    for line in lines_for(Posture.QUIET, [profile]):
        assert not any(signal.quarantines for signal in signals(profile, line.xid))


def test_where_every_line_quarantines_nothing_is_played_quietly() -> None:
    assert codes(Posture.QUIET, "konduktor") == []
    assert codes(Posture.QUARANTINE, "konduktor") == [79, 48]


def test_where_nobody_is_known_no_serious_line_is_played_quietly() -> None:
    assert codes(Posture.QUIET) == [43, 31]


def test_a_detector_that_quarantines_makes_the_answered_line_a_milder_one() -> None:
    assert 79 not in codes(Posture.QUIET, "node-problem-detector", "gameday")


def test_records_fit_the_kernel_log_and_leave_the_address_open() -> None:
    for line in lines_for(Posture.QUARANTINE, [OURS]):
        record = record_of(line)
        assert record.startswith("<3>kernel: NVRM: Xid (PCI:@PCI@): ") and record.count(PCI_PLACE) == 1
        encode_record(record)


def test_the_answer_and_its_end_are_foreseen() -> None:
    serious = lines_for(Posture.QUARANTINE, [KONDUKTOR])[0]
    assert foreseen(KONDUKTOR, serious) == "trainy.konduktor.ai/faulty:NoSchedule"
    assert list(must_go_by_hand([KONDUKTOR], [serious])) == ["trainy.konduktor.ai/faulty:NoSchedule of konduktor"]
    assert "then gameday-repair would repair the node" in foreseen(OURS, serious)
    assert foreseen(load_detector("device-plugin"), serious).startswith("sees nothing: ")


def test_the_watch_lasts_longer_than_the_slowest_answer() -> None:
    serious = lines_for(Posture.QUARANTINE, [NPD])[-2]
    assert watch_for([NPD], serious) == timedelta(seconds=90)
    assert watch_for([], serious) == timedelta(seconds=10)

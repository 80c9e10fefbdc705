"""Variables in /etc/nccl.conf: the file comes back to the byte."""

from __future__ import annotations

import pytest

from gameday.errors import HostError
from gameday.faults.nccl_conf import PATH, NcclConfFault, NcclConfParameters
from gameday_rehearsal.nodes.nccl import all_reduce
from tests.faults.gpu_model import ModelHost

FAULT = NcclConfFault()

CONF = NcclConfParameters(variables={"NCCL_P2P_DISABLE": "1"})

BEFORE = "# ours\nNCCL_DEBUG=WARN\n\nNCCL_P2P_DISABLE=0"  # no newline at its end


def content(host: ModelHost) -> str | None:
    return host.machine.extra_files.get(PATH)


def test_what_was_in_the_file_comes_back_to_the_byte(host: ModelHost) -> None:
    host.write_file(PATH, BEFORE)
    evidence = FAULT.inject(CONF, 0, host)
    assert content(host) != BEFORE
    assert not FAULT.verify_undone(CONF, 0, host, evidence.undo_state)
    FAULT.undo(CONF, 0, host, evidence.undo_state)
    assert content(host) == BEFORE
    assert FAULT.verify_undone(CONF, 0, host, evidence.undo_state)


def test_our_value_is_the_one_that_nccl_takes(host: ModelHost) -> None:
    host.write_file(PATH, BEFORE)
    FAULT.inject(CONF, 0, host)
    assert all_reduce(host.machine, [0, 1], {}).path == "SHM/direct"


def test_a_file_that_was_not_there_is_removed_again(host: ModelHost) -> None:
    state = FAULT.inject(CONF, 0, host).undo_state
    FAULT.undo(CONF, 0, host, state)
    assert content(host) is None
    assert ("rm", "-f", "--", PATH) in host.ran


def test_an_undo_without_state_takes_our_lines_out(host: ModelHost) -> None:
    host.write_file(PATH, BEFORE)
    FAULT.inject(CONF, 0, host)
    FAULT.undo(CONF, 0, host, {})
    assert content(host) == BEFORE


def test_what_somebody_else_changed_meanwhile_stays(host: ModelHost) -> None:
    host.write_file(PATH, BEFORE)
    state = FAULT.inject(CONF, 0, host).undo_state
    host.write_file(PATH, f"{content(host)}\nNCCL_ALGO=Ring\n")
    FAULT.undo(CONF, 0, host, state)
    assert content(host) == f"{BEFORE}\nNCCL_ALGO=Ring\n"
    assert FAULT.verify_undone(CONF, 0, host, state)


def test_a_file_left_empty_by_a_killed_agent_gets_its_content_back(host: ModelHost, monkeypatch) -> None:
    host.write_file(PATH, BEFORE)
    state = FAULT.prior_state(CONF, 0, host)
    kept = {PATH: ""}
    monkeypatch.setattr(host, "read_file", lambda path: kept[path])
    monkeypatch.setattr(host, "write_file", lambda path, text: kept.update({path: text}))
    assert not FAULT.verify_undone(CONF, 0, host, state)
    FAULT.undo(CONF, 0, host, state)
    assert kept[PATH] == BEFORE


@pytest.mark.parametrize(
    ("text", "message"),
    [("\ufffd", "UTF-8"), ("#" * 3000, "longer than"), ("# gameday begins\nX=1\n", "another game-day")],
)
def test_a_file_that_could_not_be_restored_is_refused(text: str, message: str, host: ModelHost) -> None:
    host.write_file(PATH, text)
    with pytest.raises(HostError, match=message):
        FAULT.prior_state(CONF, 0, host)


def test_a_write_that_does_nothing_is_no_injection(host: ModelHost) -> None:
    host.write_file(PATH, BEFORE)
    host.ignore = {"nccl.conf"}
    with pytest.raises(HostError, match="reading back"):
        FAULT.inject(CONF, 0, host)

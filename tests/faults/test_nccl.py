"""NCCL's variables: known ones only, and /etc/nccl.conf given back to the byte."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from gameday.errors import HostError
from gameday.faults.nccl import VARIABLES
from gameday.faults.nccl_conf import PATH, NcclConfFault, NcclConfParameters
from gameday.faults.nccl_environment import NcclEnvironmentFault, NcclEnvironmentParameters
from gameday.rehearsal.nodes.nccl import all_reduce
from tests.faults.gpu_model import ModelHost

FAULT = NcclConfFault()
CONF = NcclConfParameters(variables={"NCCL_P2P_DISABLE": "1"})
BEFORE = "# ours\nNCCL_DEBUG=WARN\n\nNCCL_P2P_DISABLE=0"  # no newline at its end


@pytest.fixture
def host() -> ModelHost:
    return ModelHost()


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


def test_an_undo_that_knows_nothing_takes_our_lines_out(host: ModelHost) -> None:
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
    state = FAULT.prior(CONF, 0, host)
    kept = {PATH: ""}
    monkeypatch.setattr(host, "read_file", lambda path: kept[path])
    monkeypatch.setattr(host, "write_file", lambda path, text: kept.update({path: text}))
    assert not FAULT.verify_undone(CONF, 0, host, state)
    FAULT.undo(CONF, 0, host, state)
    assert kept[PATH] == BEFORE


@pytest.mark.parametrize(
    ("text", "why"),
    [("\ufffd", "UTF-8"), ("#" * 3000, "longer than"), ("# gameday begins\nX=1\n", "another game-day")],
)
def test_a_file_that_could_not_be_given_back_is_refused(text: str, why: str, host: ModelHost) -> None:
    host.write_file(PATH, text)
    with pytest.raises(HostError, match=why):
        FAULT.prior(CONF, 0, host)


def test_a_write_that_does_nothing_is_no_injection(host: ModelHost) -> None:
    host.write_file(PATH, BEFORE)
    host.ignore = {"nccl.conf"}
    with pytest.raises(HostError, match="reading back"):
        FAULT.inject(CONF, 0, host)


def test_every_variable_of_the_table_takes_its_own_example() -> None:
    for name, variable in VARIABLES.items():
        assert NcclConfParameters(variables={name: variable.example}).variables == {name: variable.example}


def test_the_table_has_the_variables_that_break_things() -> None:
    assert set(VARIABLES) == {
        *("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_HCA"),
        *("NCCL_SOCKET_IFNAME", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_IB_GID_INDEX", "NCCL_NET_GDR_LEVEL"),
        *("NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_IB_RETURN_ASYNC_EVENTS"),
    }


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"NCCL_IB_DISABLED": "1"}, "did you mean NCCL_IB_DISABLE?"),
        ({"LD_PRELOAD": "/x.so"}, "known: "),
        ({"NCCL_IB_DISABLE": "yes"}, "write it like '1'"),
        ({"NCCL_ALGO": "Ring\nLD_PRELOAD=/x.so"}, "write it like 'Tree'"),
        ({"NCCL_IB_DISABLE": True}, "string"),
        ({}, "at least 1"),
    ],
)
def test_variables_that_nccl_would_ignore_or_refuse_are_refused(variables: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(why)):
        NcclConfParameters.model_validate({"variables": variables})


def test_a_number_is_what_nccl_reads_as_text() -> None:
    assert NcclConfParameters.model_validate({"variables": {"NCCL_IB_DISABLE": 1}}).variables["NCCL_IB_DISABLE"] == "1"


def test_the_environment_is_the_canarys_alone(host: ModelHost) -> None:
    parameters = NcclEnvironmentParameters(variables={"NCCL_IB_DISABLE": "1"})
    fault = NcclEnvironmentFault()
    evidence = fault.inject(parameters, 0, host)
    assert fault.canary_job(parameters).environment == {"NCCL_IB_DISABLE": "1"}
    assert "NCCL_IB_DISABLE=1" in evidence.lines[0]
    assert host.ran == []

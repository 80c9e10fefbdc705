"""The table of NCCL's variables."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from gameday.faults.nccl import VARIABLES
from gameday.faults.nccl_conf import NcclConfParameters


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
    ("variables", "message"),
    [
        ({"NCCL_IB_DISABLED": "1"}, "did you mean NCCL_IB_DISABLE?"),
        ({"LD_PRELOAD": "/x.so"}, "known: "),
        ({"NCCL_IB_DISABLE": "yes"}, "write it like '1'"),
        ({"NCCL_ALGO": "Ring\nLD_PRELOAD=/x.so"}, "write it like 'Tree'"),
        ({"NCCL_IB_DISABLE": True}, "string"),
        ({}, "at least 1"),
    ],
)
def test_variables_that_nccl_would_ignore_or_refuse_are_refused(variables: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        NcclConfParameters.model_validate({"variables": variables})


def test_a_number_is_what_nccl_reads_as_text() -> None:
    assert NcclConfParameters.model_validate({"variables": {"NCCL_IB_DISABLE": 1}}).variables["NCCL_IB_DISABLE"] == "1"

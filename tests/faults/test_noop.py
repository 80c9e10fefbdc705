"""The fault that changes nothing, which has what every fault has and no more."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from gameday.faults.base import NODE, CanaryJob, Claim, NodeNeeds
from gameday.faults.noop import NoopFault, NoopParameters
from gameday.faults.optional import (
    account_of,
    canary_job_of,
    claims_of,
    keep_in,
    needs_of,
    prior_state_of,
    reach_of,
    rights_of,
    warnings_of,
)
from gameday.faults.registry import fault_for, parse_parameters
from tests.faults.test_optional import PARTS
from tests.host.fake import FakeHost

PARAMETERS = NoopParameters()
EVERY_METHOD = ("write_kernel_log", "read_kernel_log", "run", "read_file", "write_file", "boot_id", "gpus")


def test_a_plan_names_it_with_no_parameters_but_the_hold() -> None:
    parsed = parse_parameters({"type": "noop", "hold": "5s"})
    assert isinstance(fault_for(parsed), NoopFault)
    with pytest.raises(ValueError, match="Extra inputs"):
        parse_parameters({"type": "noop", "gpu": 0})


def test_it_goes_in_and_out_any_number_of_times_and_asks_nothing_of_the_host() -> None:
    host, fault = FakeHost(), NoopFault()
    host.refuse = dict.fromkeys(EVERY_METHOD, "asked")
    before = datetime.now(UTC)
    injected = fault.inject(PARAMETERS, 0, host)
    assert injected.written_at is not None
    assert before <= injected.written_at <= datetime.now(UTC)
    for _ in range(2):
        assert fault.undo(PARAMETERS, 0, host, {}).undo_state == {}
        assert fault.verify_undone(PARAMETERS, 0, host, {})
    assert (host.log, host.ran, host.files, host.works) == ([], [], {}, {})


def test_its_pod_gets_no_rights() -> None:
    security = NoopFault.security
    assert (security.privileged, security.host_pid, security.capabilities) == (False, False, ())


def test_it_has_no_optional_part_and_gets_every_default() -> None:
    assert not any(isinstance(NoopFault(), part) for part in PARTS)
    assert prior_state_of(PARAMETERS, 0, FakeHost()) == {}
    assert claims_of(PARAMETERS) == (Claim("noop"), Claim(NODE, shared=True))
    assert (needs_of(PARAMETERS), canary_job_of(PARAMETERS)) == (NodeNeeds(), CanaryJob())
    assert (warnings_of(PARAMETERS), account_of(PARAMETERS)) == ((), "")
    assert rights_of(PARAMETERS) is NoopFault.security
    assert reach_of(PARAMETERS).seen_by is NoopFault.seen_by


def test_it_stays_in_by_itself_until_it_is_ended() -> None:
    ended = threading.Event()
    threading.Timer(0.01, ended.set).start()
    assert keep_in(PARAMETERS, 0, FakeHost(), ended, print) == ()
    assert ended.is_set()

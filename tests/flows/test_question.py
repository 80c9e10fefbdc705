"""A flow run that waits for a person: it outlives the concurrency slot that Prefect takes from it."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.concurrency import _leases

from gameday.flows.question import outlive_slot

_EVERY_S = 0.05


class RevokedLease:
    """Prefect's client, whose server has the lease at first and then no more."""

    def __init__(self) -> None:
        self.revoked = threading.Event()
        self.renewed = threading.Event()

    def __enter__(self) -> RevokedLease:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def renew_concurrency_lease(self, **_: Any) -> None:
        if self.revoked.is_set():
            request = httpx.Request("POST", "http://127.0.0.1/renew")
            raise httpx.HTTPStatusError("410 Gone", request=request, response=httpx.Response(410, request=request))
        self.renewed.set()


class Scope:
    """The scope of a run in Prefect's engine, which `cancel` breaks off."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def broken_off(lease: RevokedLease, monkeypatch: pytest.MonkeyPatch, *, outlives: bool) -> bool:
    """Return True if Prefect's engine breaks a run off when its lease is revoked."""
    monkeypatch.setattr(_leases, "get_client", lambda **_: lease)
    # Puts the original back at the test's end.
    monkeypatch.setattr(_leases, "_renew_concurrency_lease_with_retries", _leases._renew_concurrency_lease_with_retries)
    monkeypatch.setattr(_leases, "_RENEWAL_MAX_ATTEMPTS", 1)
    scope: Any = Scope()
    _, thread = _leases._start_lease_renewal_thread(uuid4(), _EVERY_S, True, False, scope)
    assert lease.renewed.wait(10)
    if outlives:
        outlive_slot()
    lease.revoked.set()
    thread.join(10)
    assert not thread.is_alive()
    return bool(scope.cancelled)


@pytest.mark.parametrize("outlives", [True, False])
def test_a_run_that_was_paused_lives_on_when_its_slot_is_gone(outlives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_off(RevokedLease(), monkeypatch, outlives=outlives) is not outlives

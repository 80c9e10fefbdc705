"""The agent's pod: which of them have an account at the API server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.cluster.manifests import agent_pod
from gameday.host.privileges import KERNEL_LOG
from tests.guard.observations import profile


@pytest.mark.parametrize(
    ("account", "name", "mounted"),
    [(None, "gameday-agent", False), ("gameday-api-client", "gameday-api-client", True)],
)
def test_a_pod_has_a_token_only_with_an_account(account: str | None, name: str, mounted: bool) -> None:
    spec: dict[str, Any] = agent_pod(
        "p",
        task="{}",
        role="load",
        run_id="r",
        node="client-1",
        profile=profile(),
        deadline=timedelta(seconds=1),
        security=KERNEL_LOG,
        account=account,
    )["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (name, mounted)

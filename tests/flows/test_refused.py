"""A profile or plan that cannot be used ends a flow run as Failed, with reason and remedy, and without a traceback."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect import Flow
from prefect.settings import PREFECT_API_URL, temporary_settings

from gameday.flows.arms import comparison
from gameday.flows.game_day import game_day
from gameday.flows.post_mortem import post_mortem
from gameday.flows.reaper import reaper
from gameday.flows.season import season
from gameday_health.flow import remediate_node

FLOWS: list[tuple[Flow[..., Any], dict[str, Any]]] = [
    (game_day, {"plan": "gpu-fell-off-the-bus"}),
    (season, {}),
    (comparison, {"plan": "gpu-fell-off-the-bus"}),
    (reaper, {}),
    (post_mortem, {"node": "n", "start": datetime.now(UTC) - timedelta(hours=1)}),
    (remediate_node, {"node": "n"}),
]
FILE = """\
kubeconfig: {kubeconfig}
prometheus: {{url: "http://127.0.0.1:9"}}
alertmanager: {{url: "http://127.0.0.1:9"}}
loki: {{url: "http://127.0.0.1:9"}}
"""


def ended(flow: Flow[..., Any], given: dict[str, Any], profile: str, reports: Path) -> Any:
    reporting = {} if flow is remediate_node else {"reports": str(reports)}
    with temporary_settings({PREFECT_API_URL: None}):
        return flow.fn(profile=profile, **given, **reporting)


@pytest.mark.parametrize(("flow", "given"), FLOWS, ids=[flow.name for flow, _ in FLOWS])
def test_a_block_without_a_server_that_has_it(flow: Flow[..., Any], given: dict[str, Any], tmp_path: Path) -> None:
    state = ended(flow, given, "block:eu", tmp_path)
    assert state.name == "Failed"
    assert "block:eu: blocks are kept by a Prefect server, and none is named" in state.message
    assert "export PREFECT_API_URL" in state.message


@pytest.mark.parametrize(
    ("flow", "given"), [one for one in FLOWS if one[0] not in (game_day, comparison)], ids=lambda one: str(one)[:9]
)
def test_a_kubeconfig_that_is_none(flow: Flow[..., Any], given: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("users: planted-token")
    profile = tmp_path / "profile.yaml"
    profile.write_text(FILE.format(kubeconfig=tmp_path / "kubeconfig"))
    state = ended(flow, given, str(profile), tmp_path)
    assert state.name == "Failed"
    assert "no usable Kubernetes configuration" in state.message
    assert "name a kubeconfig that `kubectl` can use" in state.message
    assert "planted-token" not in state.message


@pytest.mark.parametrize(
    ("flow", "given", "said"),
    [
        (game_day, {"plan": "compare-remediations"}, "the deployment `comparison/arms (breaks GPUs)` plays them"),
        (comparison, {"plan": "gpu-fell-off-the-bus"}, "`gameday run gpu-fell-off-the-bus` plays it as one game-day"),
        (season, {"plans": ["xid-48-doubel-bit-ecc"]}, "did you mean xid-48-double-bit-ecc?"),
    ],
)
def test_a_plan_that_cannot_be_used(flow: Flow[..., Any], given: dict[str, Any], said: str, tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(FILE.format(kubeconfig=tmp_path / "kubeconfig"))
    state = ended(flow, given, str(profile), tmp_path)
    assert state.name == "Failed"
    assert said in state.message

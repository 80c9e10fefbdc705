"""The dry run shows that a GPU reset or removal sends the GPU operator's operands away, and nothing where it cannot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gameday.cluster.operands import AWAY
from gameday.guard.preview import _operands
from gameday.values.results import Step
from tests.guard.observations import node

DCGM, DRIVER = "nvidia.com/gpu.deploy.dcgm", "nvidia.com/gpu.deploy.driver"


@pytest.mark.parametrize(
    ("labels", "changed"),
    [
        ({DCGM: "true", DRIVER: "true"}, [{DCGM: AWAY}]),
        ({DRIVER: "true"}, []),
        ({DCGM: "paused-for-driver-upgrade"}, []),
    ],
)
def test_the_labels_that_would_be_changed_are_shown(labels: dict[str, str], changed: list[dict[str, str]]) -> None:
    run = SimpleNamespace(nodes=SimpleNamespace(now=lambda _: node("n0", labels)))
    found = list(_operands(run, Step.INJECT, "n0", "removal"))  # type: ignore[arg-type]
    assert [change.manifest["metadata"]["labels"] for change in found if change.manifest] == changed
    assert all((change.step, change.verb, change.object) == (Step.INJECT, "patch", "node/n0") for change in found)
    assert all("leave before the removal" in change.why for change in found)

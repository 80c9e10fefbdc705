"""A run is refused on a cluster that must not bear its fault, before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.errors import RefusedError
from gameday.lifecycle import opening
from tests.guard.observations import plan, profile

PAUSED = plan(fault={"type": "etcd_paused", "hold": "2m"}, expect={"api_canary": {}}, rehearsal={"cluster": "lab"})

ALLOWS = profile().model_copy(update={"allow_dangerous": ("etcd_paused",)})


def test_a_fault_that_stops_the_control_plane_is_refused_on_a_cluster_that_is_no_lab() -> None:
    with pytest.raises(RefusedError, match="is no lab") as caught:
        opening._check_dangers(PAUSED, ALLOWS)
    assert caught.value.hint.startswith("gameday rehearse quick ")
    opening._check_dangers(PAUSED, ALLOWS.model_copy(update={"lab_control": Path("/lab/control.sock")}))

"""Which of the GPU operator's operands a reset sends away, and when it does not touch them."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from kubernetes.client import V1Pod, V1PodSpec, V1Toleration

from gameday.cluster.operands import AWAY, keeps_away, let_return, running_operands
from gameday.errors import ForeignPauseError
from gameday.values.nodes import Taint
from gameday_rehearsal.nodes.gpu_operator import DEPLOY, OPERANDS, deploy_labels

AS_SHIPPED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
FAULTY = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")


def test_of_a_stock_nodes_labels_those_of_operands_that_open_gpus_are_chosen() -> None:
    assert set(running_operands(deploy_labels())) == {f"{DEPLOY}{name}" for name in OPERANDS}


@pytest.mark.parametrize("value", ["false", ""])
def test_an_operand_that_is_off_stays_off(value: str) -> None:
    assert running_operands({f"{DEPLOY}dcgm": value, f"{DEPLOY}driver": "true"}) == ()


def test_one_that_an_earlier_run_left_away_is_ours_to_bring_back() -> None:
    assert running_operands({f"{DEPLOY}dcgm": AWAY}) == (f"{DEPLOY}dcgm",)


def test_one_that_somebody_else_paused_is_named() -> None:
    with pytest.raises(ForeignPauseError, match=r"gpu\.deploy\.dcgm is paused-for-driver-upgrade: somebody else"):
        running_operands({f"{DEPLOY}dcgm": "paused-for-driver-upgrade"})


def operand(*tolerations: dict[str, Any]) -> V1Pod:
    return V1Pod(spec=V1PodSpec(containers=[], tolerations=[V1Toleration(**one) for one in tolerations] or None))


@pytest.mark.parametrize(
    ("toleration", "kept"),
    [
        ({"operator": "Exists"}, False),
        ({"key": FAULTY.key, "operator": "Exists"}, False),
        ({"key": FAULTY.key, "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": FAULTY.key, "value": "true"}, False),
        ({"key": FAULTY.key, "operator": "Equal", "value": "false", "effect": "NoSchedule"}, True),
        ({"operator": "Equal", "value": "true"}, True),
        (AS_SHIPPED, True),
    ],
)
def test_a_taint_keeps_a_pod_away_that_does_not_tolerate_it(toleration: dict[str, str], kept: bool) -> None:
    assert keeps_away([operand(toleration)], [FAULTY]) == ((FAULTY,) if kept else ())


def test_one_pod_that_tolerates_less_is_enough_and_soft_taints_keep_nobody_away() -> None:
    soft = Taint(key="tired", effect="PreferNoSchedule")
    assert keeps_away([operand({"operator": "Exists"}), operand()], [FAULTY, soft]) == (FAULTY,)
    assert keeps_away([], [FAULTY]) == ()


def test_the_remedy_is_a_command_whose_patch_adds_what_is_missing() -> None:
    evicting = Taint(key="broken", effect="NoExecute")
    command = shlex.split(let_return((FAULTY, evicting)).partition(", and the same")[0])
    assert command[:4] == ["kubectl", "patch", "clusterpolicy", "cluster-policy"]
    added = [one["value"] for one in json.loads(command[-1]) if one["path"] == "/spec/daemonsets/tolerations/-"]
    assert keeps_away([operand(AS_SHIPPED, *added)], (FAULTY, evicting)) == ()

"""The dry run names a probe's job, and the job may do nothing but run its command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gameday.expect.probes import ExpectedProbe
from gameday.guard.preview import planned_changes
from gameday.run.run import Run
from tests.support.runs import follow_as_target
from tests.support.world import World


def test_a_probes_job_is_shown_bounded_and_without_privileges(world: World, new_run: Callable[..., Run]) -> None:
    job = {"command": ["./check", "$(rm -rf /)"], "where": "target", "gpus": 2, "ends_within": "20s"}
    probe = ExpectedProbe.model_validate({"name": "new-work", "job": job, "returns_within": "1m"})

    def change(plan: Any) -> Any:
        return plan.model_copy(update={"expect": plan.expect.model_copy(update={"probes": (probe,)})})

    run = new_run(change=change)
    target = follow_as_target(run, world.add_node())
    (planned,) = [one for one in planned_changes(run, (target,)) if one.object.endswith("-probe-new-work-0")]
    assert (planned.verb, planned.node, planned.manifest is not None) == ("create", target.node, True)
    assert planned.manifest is not None
    spec = planned.manifest["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["backoffLimit"] == 0
    assert pod["activeDeadlineSeconds"] == 20 < spec["activeDeadlineSeconds"]
    assert pod["automountServiceAccountToken"] is False
    assert container["command"] == job["command"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert "hostPID" not in pod and "volumes" not in pod

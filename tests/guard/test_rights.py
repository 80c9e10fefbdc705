"""What `gameday doctor` asks for is what deploy/rbac/runner.yaml grants, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.guard.rights import Right, rights_for, rights_for_every_plan, rights_of_job_log, rights_of_probes
from gameday_control_plane.preflight import rights_of_the_control_plane
from tests.guard.observations import plan
from tests.support.plans import shipped

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RUNNER, PROBES = DEPLOY / "rbac" / "runner.yaml", DEPLOY / "probes" / "exec.yaml"
JOB_LOG = DEPLOY / "job-log" / "log.yaml"


def granted() -> Iterator[Right]:
    """Every right of the runner's roles; a role's namespace is that of its binding."""
    for role in YAML(typ="safe", pure=True).load_all(RUNNER.read_text(encoding="utf-8")):
        for rule in role.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames", ("",)):
                            yield Right(verb, resource, role["metadata"].get("namespace", ""), group, name)


def test_the_doctor_asks_for_exactly_what_the_manifest_grants() -> None:
    assert set(rights_for_every_plan("gameday")) == set(granted())


def test_every_shipped_plan_needs_only_what_is_granted() -> None:
    wanted = {
        right for one in shipped().values() for right in {*rights_for(one, "gameday")} - {*rights_of_job_log(one)}
    }
    assert wanted - set(rights_of_the_control_plane()) <= set(granted())


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("xid-95-uncontained-ecc", {"pods/eviction", "poddisruptionbudgets", "jobs"}),
        ("xid-13-application-error", set()),
        ("node-reboot", {"poddisruptionbudgets", "jobs"}),
    ],
)
def test_a_plan_asks_for_no_right_that_it_does_not_use(name: str, needs: set[str]) -> None:
    asked = {right.resource for right in rights_for(shipped()[name], "gameday")}
    assert asked & {"pods/eviction", "poddisruptionbudgets", "jobs"} == needs


def test_commands_in_pods_need_exactly_what_their_own_manifest_grants_in_the_pods_namespace() -> None:
    role = next(YAML(typ="safe", pure=True).load_all(PROBES.read_text(encoding="utf-8")))
    manifest = {Right(verb, "pods/exec", "training") for rule in role["rules"] for verb in rule["verbs"]}
    command = {"namespace": "training", "selector": {"app": "x"}, "command": ["true"]}
    with_exec = plan(expect={"probes": [{"name": "p", "exec": command, "stays_for": "5s"}]})
    assert (role["kind"], "namespace" in role["metadata"]) == ("Role", False)
    assert set(rights_of_probes(with_exec)) == manifest
    assert manifest <= set(rights_for(with_exec, "gameday"))
    assert manifest.isdisjoint(rights_for_every_plan("gameday"))


def test_a_jobs_log_needs_exactly_what_its_own_manifest_grants() -> None:
    role = next(YAML(typ="safe", pure=True).load_all(JOB_LOG.read_text(encoding="utf-8")))
    job = {"namespace": "training", "selector": {"app": "x"}, "resumes_within": "1m"}
    with_job = plan(expect={"job": job})
    manifest = {Right(verb, "pods/log", "training") for rule in role["rules"] for verb in rule["verbs"]}
    assert (role["kind"], "namespace" in role["metadata"]) == ("Role", False)
    assert set(rights_of_job_log(with_job)) == manifest
    assert manifest <= set(rights_for(with_job, "gameday"))


def test_a_plan_that_keeps_its_hands_off_asks_to_watch_what_its_signs_name_and_to_move_nothing() -> None:
    resource = {"api_version": "janitor.example.com/v1", "plural": "rebootnodes", "node": "spec.nodeName"}
    hops = {"repair_begun": {"within": "1m", "signs": [{"resource": resource}]}}
    asked = set(rights_for(plan(recover={"by": "cluster", "hops": hops}), "gameday"))
    wanted = {Right(verb, "rebootnodes", group="janitor.example.com") for verb in ("list", "watch")}
    assert asked - set(rights_for_every_plan("gameday")) == wanted
    assert {right.resource for right in asked}.isdisjoint({"pods/eviction", "jobs"})

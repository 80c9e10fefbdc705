"""The plan's key `rehearsal`: the cluster that `gameday rehearse` starts for it."""

from __future__ import annotations

import pytest

from gameday.plan.models import Plan
from gameday.plan.rehearsal import Balance, LabComponent, RehearsalSettings
from tests.plan.plans import GOOD, parse, problems

_LAB = """\
rehearsal:
  cluster: lab
  api_servers: 3
  balance: leastconn
  flags:
    kube-apiserver: {goaway-chance: 0.02, profiling: false}
  environment:
    kube-apiserver: {GOGC: 50}
  scheduler_qps: 2000
  api_server_memory: 1GiB
"""


def test_a_plan_without_the_key_leaves_the_choice_to_the_command() -> None:
    assert parse(GOOD).plan.rehearsal == RehearsalSettings()


def test_a_plan_says_which_lab_it_needs_and_is_read_back_from_its_own_json() -> None:
    plan = parse(GOOD + _LAB).plan
    wanted = plan.rehearsal
    assert (wanted.cluster, wanted.api_servers, wanted.balance) == ("lab", 3, Balance.LEAST_CONNECTIONS)
    assert wanted.flags == {LabComponent.API_SERVER: {"goaway-chance": "0.02", "profiling": "false"}}
    assert wanted.environment == {LabComponent.API_SERVER: {"GOGC": "50"}}
    assert (wanted.scheduler_qps, wanted.api_server_memory) == (2000, 2**30)
    assert RehearsalSettings.model_validate_json(wanted.model_dump_json(exclude_unset=True)) == wanted
    assert "rehearsal" in Plan.model_fields


@pytest.mark.parametrize(
    ("lines", "where", "why"),
    [
        ("  api_servers: 3\n", "rehearsal.api_servers", "write `cluster: lab`"),
        ("  cluster: embedded\n  scheduler_qps: 3\n", "rehearsal.scheduler_qps", "write `cluster: lab`"),
        ("  cluster: minikube\n", "rehearsal.cluster", "embedded"),
        ("  cluster: lab\n  api_servers: 9\n", "rehearsal.api_servers", ""),
        ("  cluster: lab\n  balance: random\n", "rehearsal.balance", "roundrobin"),
        (
            "  cluster: lab\n  flags:\n    kube-apiserver: {secure-port: 6443}\n",
            "rehearsal.flags.kube-apiserver.secure-port",
            "--secure-port of kube-apiserver is about files or addresses, which are the lab's own",
        ),
        (
            "  cluster: lab\n  flags:\n    kube-scheduler: {kube-api-qps: 100}\n",
            "rehearsal.flags.kube-scheduler.kube-api-qps",
            "set controller_manager_qps or scheduler_qps",
        ),
        (
            "  cluster: lab\n  environment:\n    etcd: {LD_PRELOAD: /tmp/x.so}\n",
            "rehearsal.environment.etcd.LD_PRELOAD",
            "variables of Go's runtime",
        ),
        ("  cluster: lab\n  flags:\n    kube-proxy: {v: 4}\n", "rehearsal.flags.kube-proxy", "etcd"),
        ("  cluster: lab\n  api_server_memory: lots\n", "rehearsal.api_server_memory", "1GiB"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(lines: str, where: str, why: str) -> None:
    (problem,) = problems(f"{GOOD}rehearsal:\n{lines}")
    assert problem.where == where
    assert problem.line is not None
    assert problem.line > len(GOOD.splitlines())
    assert why in f"{problem.message} {problem.suggestion}"

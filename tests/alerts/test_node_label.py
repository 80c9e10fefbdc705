"""A shipped plan's probe and the example policy find the node under both of dcgm-exporter's spellings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gameday.detectors.resolve import load_complete_plan
from gameday.plan.catalogue import find_plan
from gameday_health.policy_files import load_policy
from gameday_rehearsal.programs import find_program

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("labels", ['Hostname="n1"', 'hostname="n1"', 'Hostname="dcgm-exporter-abcde", hostname="n1"'])
def test_the_owners_probe_and_the_example_policy_find_the_node(labels: str, tmp_path: Path) -> None:
    probes = load_complete_plan(find_plan("probes-of-the-owners"), (), None).plan.expect.probes
    asked = next(probe.promql.query for probe in probes if probe.promql)
    policy = load_policy(str(ROOT / "examples" / "every-signal.yaml")).policy
    metric = next(rule.metric for rule in policy.rules if rule.metric)
    series = f'{{{labels}, pci_bus_id="0000:4e:00"}}'
    found = f'{{{labels}, {metric.node_label}="n1", pci_bus_id="0000:4e:00"}}'
    tests = {
        "rule_files": [],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": f"DCGM_FI_DEV_GPU_TEMP{series}", "values": "40"},
                    {"series": f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{series}", "values": "9"},
                ],
                "promql_expr_test": [
                    {
                        "expr": asked.replace("$targets", "n1"),
                        "eval_time": "0m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    },
                    {
                        "expr": metric.query,
                        "eval_time": "0m",
                        "exp_samples": [{"labels": f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{found}", "value": 9}],
                    },
                ],
            }
        ],
    }
    (tmp_path / "tests.json").write_text(json.dumps(tests))
    command = [find_program("promtool"), "test", "rules", str(tmp_path / "tests.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

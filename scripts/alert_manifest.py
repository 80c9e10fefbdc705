"""Write the PrometheusRule manifest, for clusters that run the Prometheus Operator, from the plain rule file."""

from __future__ import annotations

import io
from pathlib import Path

from ruamel.yaml import YAML

ALERTS = Path(__file__).resolve().parents[1] / "deploy" / "alerts"
RULES = ALERTS / "gpu-faults.rules.yaml"
MANIFEST = ALERTS / "gpu-faults.prometheusrule.yaml"

_HEADER = "# Made from gpu-faults.rules.yaml by `make alerts`; edit that one.\n"


def manifest() -> str:
    """The manifest's text; comments of the rule file stay there."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "gpu-faults",
            "namespace": "gameday",
            "labels": {"app.kubernetes.io/name": "gpu-gameday", "app.kubernetes.io/component": "alerts"},
        },
        "spec": {"groups": yaml.load(RULES.read_text(encoding="utf-8"))["groups"]},
    }
    out = io.StringIO()
    yaml.dump(document, out)
    return _HEADER + out.getvalue()


if __name__ == "__main__":
    MANIFEST.write_text(manifest(), encoding="utf-8")

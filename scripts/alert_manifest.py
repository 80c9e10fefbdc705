"""Write the PrometheusRule manifests, for clusters that run the Prometheus Operator, from the plain rule files."""

from __future__ import annotations

from pathlib import Path

from gameday.cli.alerts import manifest, manifest_of

if __name__ == "__main__":
    for file in sorted((Path(__file__).resolve().parents[1] / "deploy" / "alerts").glob("*.rules.yaml")):
        manifest_of(file).write_text(manifest(file), encoding="utf-8")

"""The policy under which a storm is measured: the default one with its brake set aside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gameday.health.policy_files import DEFAULT, find_policy


def storm_policy(default: Mapping[str, Any], at_once: int) -> dict[str, Any]:
    """Return the default policy without the detector's brake, and with so many places for repairs."""
    breaker = {"nodes": at_once, "percent": 100}
    return {**default, "name": "storm", "brake": {**default["brake"], "share": 1}, "repair": {"breaker": breaker}}


def write_storm_policy(folder: Path, at_once: int) -> Path:
    """Write the policy into a folder, and return its file."""
    yaml = YAML(typ="safe", pure=True)
    policy = storm_policy(yaml.load(find_policy(DEFAULT).read_text(encoding="utf-8")), at_once)
    file = folder / f"{policy['name']}.yaml"
    with file.open("w", encoding="utf-8") as out:
        yaml.dump(policy, out)
    return file

"""prefect.yaml and the flows it deploys: the form that the UI draws has to explain itself."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

DEPLOYMENTS = YAML(typ="safe", pure=True).load(
    (Path(__file__).resolve().parents[2] / "prefect.yaml").read_text(encoding="utf-8")
)["deployments"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda one: one["name"])
def test_the_form_describes_every_parameter(deployment: dict[str, Any]) -> None:
    module, _, name = deployment["entrypoint"].rpartition(".")
    properties = getattr(import_module(module), name).parameters.properties
    assert properties
    assert [name for name, one in properties.items() if not one.get("description")] == []
    assert set(deployment.get("parameters", {})) <= set(properties)

"""The published schema is made from the models, and agrees with the loader about the shipped plans."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml
from ruamel.yaml import YAML

from gameday.errors import DocumentError
from gameday.faults.registry import known_faults, parameter_models
from gameday.plan.catalogue import shipped_plans
from gameday.plan.load import parse_plan
from gameday.plan.schema import plan_schema, schema_text
from gameday.remediations.registry import known_remediations
from tests.plan.plans import FAULTS, GOOD, REMEDIATIONS, changed

PUBLISHED = Path(__file__).parents[2] / "docs" / "plan.schema.json"
SHIPPED = shipped_plans()


def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(plan_schema(FAULTS, {"xid": "Writes a line."}, REMEDIATIONS))


@cache
def _published() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text(encoding="utf-8")))


def _read(text: str) -> object:
    return YAML(typ="safe", pure=True).load(text)


def test_the_published_schema_is_current() -> None:
    summaries = {name: fault.summary for name, fault in known_faults().items()}
    assert PUBLISHED.read_text(encoding="utf-8") == schema_text(parameter_models(), summaries, known_remediations()), (
        "run: gameday schema --output docs/plan.schema.json"
    )


def test_the_published_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(PUBLISHED.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_every_shipped_plan_fits_the_published_schema(name: str) -> None:
    text = SHIPPED[name].read_text(encoding="utf-8")
    _published().validate(yaml.load(text, Loader=yaml.CSafeLoader))


def test_a_good_plan_fits_the_schema() -> None:
    _validator().validate(_read(GOOD))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("within: 15s\n  taints", "within: 15\n  taints", ["expect", "alerts", 0, "within"]),
        ("  nodes: 1", "  node: 1", ["targets"]),
        ("remediation: reboot", "remediation: restart", ["recover", "remediation"]),
        ("type: xid", "type: other", ["fault"]),
        ("  type: xid\n", "", ["fault"]),
        ("xid: 79", "xid: 0", ["fault"]),
    ],
)
def test_a_plan_that_the_loader_refuses_does_not_fit_the_schema(old: str, new: str, path: list[str | int]) -> None:
    text = changed(old, new)
    with pytest.raises(DocumentError):
        parse_plan(text.encode(), "p.yaml", FAULTS, REMEDIATIONS)
    errors = list(_validator().iter_errors(_read(text)))
    assert [list(error.absolute_path) for error in errors] == [path]


def test_durations_are_defaults_as_plans_write_them() -> None:
    schema = plan_schema(FAULTS, {}, REMEDIATIONS)
    assert schema["$defs"]["Baseline"]["properties"]["window"]["default"] == "30s"
    assert schema["$defs"]["TestXid"]["required"] == ["type", "xid"]


def test_every_field_of_a_fault_and_the_fault_itself_are_described() -> None:
    schema = plan_schema(FAULTS, {"xid": "Writes a line."}, REMEDIATIONS)
    fault = schema["$defs"]["TestXid"]
    assert fault["description"] == "Writes a line."
    assert all(field.get("description") for field in fault["properties"].values())

"""The plan's JSON schema, for editors: the models' schema, with the known faults as alternatives by their `type`.

A schema cannot express conflicts between keys (see `Plan._check_conflicts`);
`gameday validate` finds them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gameday.documents.schema import DocumentSchema
from gameday.plan.expectations import Expectations, every_expectation
from gameday.plan.fault import FaultParameters
from gameday.plan.models import Plan, Recovery
from gameday.plan.settings import Settings, every_setting

SCHEMA_ID = "urn:gameday:v1:plan"


def plan_schema(
    faults: Mapping[str, type[FaultParameters]], summaries: Mapping[str, str], remediations: Collection[str]
) -> dict[str, Any]:
    """Return the schema as data (JSON Schema 2020-12).

    Args:
        faults: The faults' parameter models, by their `type`.
        summaries: A line about each fault, by the same names.
        remediations: The names of the remediations.
    """
    expectations, settings = every_expectation(), every_setting()
    models: list[type[BaseModel]] = [Plan, expectations, settings, *(faults[name] for name in sorted(faults))]
    refs, schema = models_json_schema([(model, "validation") for model in models], schema_generator=DocumentSchema)
    definitions: dict[str, Any] = schema["$defs"]
    plan = definitions.pop(Plan.__name__)
    definitions[Expectations.__name__] = definitions.pop(expectations.__name__)
    definitions[Settings.__name__] = definitions.pop(settings.__name__)
    alternatives = {name: refs[(faults[name], "validation")]["$ref"] for name in sorted(faults)}
    for name, ref in alternatives.items():
        _name_by_type(definitions[ref.rpartition("/")[2]], name, summaries.get(name, ""))
    any_fault = {
        "oneOf": [{"$ref": ref} for ref in alternatives.values()],
        "discriminator": {"propertyName": "type", "mapping": alternatives},
    }
    plan["properties"]["fault"] = {"description": plan["properties"]["fault"].get("description", ""), **any_fault}
    # The model of any fault is also used inside another fault, and in the recovery.
    definitions[FaultParameters.__name__] = any_fault
    definitions[Recovery.__name__]["properties"]["remediation"] |= {"enum": sorted(remediations)}
    for model in (plan, *definitions.values()):
        for field in model.get("properties", {}).values():
            if "$ref" in field and isinstance(field.get("default"), dict):
                del field["default"]  # the sub-model's own fields have theirs
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **plan, "$defs": definitions}


def _name_by_type(fault: dict[str, Any], name: str, summary: str) -> None:
    """Make `type` required, because a fault without one would fit every alternative."""
    fault["properties"]["type"] = {"const": name, "type": "string", "description": summary}
    fault["required"] = sorted({*fault.get("required", []), "type"})
    fault["description"] = summary


def schema_text(
    faults: Mapping[str, type[FaultParameters]], summaries: Mapping[str, str], remediations: Collection[str]
) -> str:
    """Return the schema as published: indented, with one final newline, and the same bytes for the same models."""
    return json.dumps(plan_schema(faults, summaries, remediations), indent=2, ensure_ascii=False) + "\n"

"""The plan's JSON schema, for editors: the models' own, with the known faults as alternatives told apart by `type`.

It says all that a schema can: what needs two fields at once (see
`Plan._fits_together`) only `gameday validate` finds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from gameday.documents.fields import format_duration
from gameday.plan.models import FaultParameters, Plan, Recovery

SCHEMA_ID = "urn:gameday:v1:plan"


class AsWritten(GenerateJsonSchema):
    """A model's schema without made-up titles, and with durations as people write them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def plan_schema(
    faults: Mapping[str, type[FaultParameters]], summaries: Mapping[str, str], remediations: Collection[str]
) -> dict[str, Any]:
    """Return the schema as data (JSON Schema 2020-12).

    Args:
        faults: The faults' parameter models, by their `type`.
        summaries: The faults in a line each, by the same names.
        remediations: The names of the remediations.
    """
    models: list[type[BaseModel]] = [Plan, *(faults[name] for name in sorted(faults))]
    refs, schema = models_json_schema([(model, "validation") for model in models], schema_generator=AsWritten)
    definitions: dict[str, Any] = schema["$defs"]
    plan = definitions.pop(Plan.__name__)
    alternatives = {name: refs[(faults[name], "validation")]["$ref"] for name in sorted(faults)}
    for name, ref in alternatives.items():
        _name_by_type(definitions[ref.rpartition("/")[2]], name, summaries.get(name, ""))
    any_fault = {
        "oneOf": [{"$ref": ref} for ref in alternatives.values()],
        "discriminator": {"propertyName": "type", "mapping": alternatives},
    }
    plan["properties"]["fault"] = {"description": plan["properties"]["fault"].get("description", ""), **any_fault}
    # Where else a fault stands: within another, and in the recovery.
    definitions[FaultParameters.__name__] = any_fault
    definitions[Recovery.__name__]["properties"]["remediation"] |= {"enum": sorted(remediations)}
    for model in (plan, *definitions.values()):
        for field in model.get("properties", {}).values():
            if "$ref" in field and isinstance(field.get("default"), dict):
                del field["default"]  # the sub-model's own fields say theirs
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **plan, "$defs": definitions}


def _name_by_type(fault: dict[str, Any], name: str, summary: str) -> None:
    """Make `type` required: with a default, a fault without one would fit every alternative."""
    fault["properties"]["type"] = {"const": name, "type": "string", "description": summary}
    fault["required"] = sorted({*fault.get("required", []), "type"})
    fault["description"] = summary


def schema_text(
    faults: Mapping[str, type[FaultParameters]], summaries: Mapping[str, str], remediations: Collection[str]
) -> str:
    """Return the schema as it is published: indented, one final newline, the same bytes for the same models."""
    return json.dumps(plan_schema(faults, summaries, remediations), indent=2, ensure_ascii=False) + "\n"

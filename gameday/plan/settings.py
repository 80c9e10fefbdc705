"""Settings of the cluster that a game-day puts in before its fault and takes back at its end.

The core has none: each is a `Setting` of an installed package, whose moments put it in and whose undos take it back.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Annotated, Any

from pydantic import SerializeAsAny, create_model

from gameday.documents.fields import DocumentModel, DocumentPart, by_whole
from gameday.plugins import Found, Group, classes_in, find


class Setting(DocumentPart):
    """Keys under `settings:` that belong together."""


class Settings(DocumentModel):
    """Settings of the cluster, put in before the fault, recorded in the ledger, and taken back at the end."""

    @classmethod
    def whole(cls) -> type[Settings]:
        return every_setting()


@cache
def every_setting() -> type[Settings]:
    """Return the model of `settings:` with the keys of every setting that is installed."""
    others: list[Any] = list(dict.fromkeys(found_settings().parts.values()))
    return create_model("EverySetting", __base__=(*others, Settings), __doc__=Settings.__doc__)


def every_default() -> Settings:
    """Return the settings of a plan that names none."""
    return every_setting()()


AnySettings = Annotated[SerializeAsAny[Settings], by_whole(Settings)]
"""A plan's settings, with the keys of every setting that is installed."""


@cache
def found_settings() -> Found[type[Setting]]:
    """Return every setting by each of its keys under `settings:`."""
    return find(Group.SETTINGS, (), _settings_in)


def _settings_in(module: ModuleType) -> dict[str, type[Setting]]:
    return {key: part for part in classes_in(module, Setting, ()) for key in part.model_fields}

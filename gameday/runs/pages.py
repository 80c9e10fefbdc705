"""Write a page over many runs: HTML from a template of ours, and the same content as JSON beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from gameday.plain_file import write_each
from gameday.report.page import environment

Content = TypeVar("Content", bound=BaseModel)


class PageModel(BaseModel):
    """A part of a page's content. Unknown keys are left alone, so that an older program reads a newer one's JSON."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True)
class RenderedPage(Generic[Content]):
    """A page, its JSON, and the content of both."""

    html: Path
    json: Path
    content: Content
    unwritten: str
    """The reason why a full or failing disk lacks one of the two; empty if both are written."""


def write_page(
    stem: Path,
    template: str,
    content: Content,
    rendered_at: datetime,
    *,
    also: Mapping[str, object] = MappingProxyType({}),
    **shown: object,
) -> RenderedPage[Content]:
    """Write STEM.html and STEM.json.

    Args:
        stem: Path of the two without their endings.
        template: A file of templates/runs.
        content: The content of the JSON; the template gets it as `page`.
        rendered_at: Now.
        also: Further keys of the JSON.
        **shown: What else the template shows.

    Raises:
        OSError: One of the two cannot be written for another reason than a full or failing disk.
    """
    html, json = stem.with_name(f"{stem.name}.html"), stem.with_name(f"{stem.name}.json")
    text = environment("runs").get_template(template).render(page=content, rendered_at=rendered_at, **shown)
    record = to_json({**also, **content.model_dump(mode="json")}, indent=1, inf_nan_mode="null")
    return RenderedPage(html, json, content, write_each({html: text, json: record + b"\n"}))

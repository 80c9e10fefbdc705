"""Put the sections together into one self-contained page, and the same data into JSON."""

from __future__ import annotations

import importlib
import json
import pkgutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from pydantic import BaseModel, TypeAdapter

from gameday.checks.outcome import RunResult
from gameday.checks.verdict import Verdict
from gameday.report import sections as sections_package
from gameday.report.palette import stylesheet
from gameday.report.run import Run, load_run
from gameday.report.words import clip, filters

TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "report"


@dataclass(frozen=True)
class Rendered:
    html: Path
    json: Path
    verdicts: Path
    result: RunResult


@dataclass(frozen=True)
class Section:
    """One rendered section. `data` is what stands in report.json; `failure` why there is nothing to show."""

    id: str
    title: str
    body: Markup
    data: BaseModel | None
    failure: str = ""


def render(run_folder: Path, rendered_at: datetime) -> Rendered:
    """Write report.html, report.json and verdicts.json into the run folder, from what else is in it.

    Raises FileNotFoundError when the folder does not exist and OSError when it
    cannot be written; whatever stands in the files is shown, never raised.
    """
    run = load_run(run_folder)
    environment = _environment()
    sections = [_build(module, run, environment) for module in section_modules()]
    page = environment.get_template("page.html").render(
        run=run,
        sections=sections,
        result=run.result,
        rendered_at=rendered_at,
        style=Markup((TEMPLATES / "style.css").read_text() + stylesheet()),  # noqa: S704 our own file, no input in it
    )
    rendered = Rendered(
        run_folder / "report.html", run_folder / "report.json", run_folder / "verdicts.json", run.result
    )
    rendered.html.write_text(page, encoding="utf-8")
    rendered.json.write_text(_as_json(run, sections, rendered_at), encoding="utf-8")
    rendered.verdicts.write_bytes(TypeAdapter(tuple[Verdict, ...]).dump_json(run.verdicts, indent=1))
    return rendered


def section_modules() -> list[ModuleType]:
    """Every module of `sections` that defines `build`, by its ORDER."""
    names = [name for _, name, _ in pkgutil.iter_modules(sections_package.__path__)]
    modules = [importlib.import_module(f"gameday.report.sections.{name}") for name in names]
    return sorted((module for module in modules if hasattr(module, "build")), key=lambda module: module.ORDER)


def _build(module: ModuleType, run: Run, environment: Environment) -> Section:
    name = module.__name__.rpartition(".")[2]
    try:
        data: BaseModel = module.build(run)
        body = Markup(environment.get_template(f"{name}.html").render(data=data, run=run))  # noqa: S704 autoescaped
        return Section(id=name.replace("_", "-"), title=module.TITLE, body=body, data=data)
    except Exception as error:  # one section's bug must not cost the reader the others
        why = f"{type(error).__name__}: {error}"
        return Section(id=name.replace("_", "-"), title=module.TITLE, body=Markup(), data=None, failure=why)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=clip
    )
    environment.filters.update(filters())
    return environment


def _as_json(run: Run, sections: list[Section], rendered_at: datetime) -> str:
    content = {
        "rendered_at": rendered_at.isoformat(),
        "result": run.result.model_dump(mode="json"),
        "problems": list(run.problems),
        "sections": {
            section.id: section.data.model_dump(mode="json") if section.data else {"failure": section.failure}
            for section in sections
        },
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

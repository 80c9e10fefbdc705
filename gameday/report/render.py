"""Put the sections together into one self-contained page, and the same data into JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from types import ModuleType

from jinja2 import Environment
from markupsafe import Markup
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from gameday.checks.outcome import RunResult
from gameday.checks.verdict import Verdict
from gameday.plain_file import not_written, write_whole
from gameday.plugins import BrokenPlugin, Found, Group, find, modules_of
from gameday.report import sections as own_sections
from gameday.report.earlier_runs import with_earlier_runs
from gameday.report.page import environment
from gameday.report.redact import Clean, redacted
from gameday.report.run_folder import RunFolder, load_run_folder, with_notes
from gameday.report.summarise import summarise

FORMAT = 1
"""The format of report.json; raised when an existing field changes its meaning or goes."""


@dataclass(frozen=True)
class Rendered:
    html: Path
    json: Path
    verdicts: Path
    run: RunFolder

    @property
    def result(self) -> RunResult:
        return self.run.result


@dataclass(frozen=True)
class Section:
    """A rendered section: `data` is its part of report.json; `failure` says why there is nothing to show."""

    id: str
    title: str
    body: Markup
    data: BaseModel | None
    failure: str = ""
    is_open: bool = True
    """True for a part of the summary; the others are folded under their titles."""
    group: str = "More"
    """The heading for folded sections that belong together."""
    absent: str = ""
    """The reason why there is nothing to show; such a section is not drawn."""


def render(run_folder: Path, rendered_at: datetime, *, redact: bool = False, clean: Clean | None = None) -> Rendered:
    """Write report.html, report.json and verdicts.json into the run folder, from its other files.

    `redact`: under other file names (report-redacted.html …) and without the site's names (gameday.report.redact);
    `clean` as for `redacted`. Raises FileNotFoundError if the folder does not exist, and OSError if it cannot be
    written; a run without a report then gets one with only the first screen, if that fits. Bad content of the files is
    shown, never raised.
    """
    run = load_with_its_past(run_folder)
    run = redacted(run, clean) if redact else run
    templates = environment()
    sections = [build_section(module, run, templates) for module in section_modules()]
    sections += map(_unloadable, _found().broken)
    sections.sort(key=lambda section: not section.is_open)
    page = partial(templates.get_template("page.html").render, run=run, result=run.result, rendered_at=rendered_at)
    suffix = "-redacted" if redact else ""
    rendered = Rendered(
        html=run_folder / f"report{suffix}.html",
        json=run_folder / f"report{suffix}.json",
        verdicts=run_folder / f"verdicts{suffix}.json",
        run=run,
    )
    try:
        write_whole(rendered.verdicts, TypeAdapter(tuple[Verdict, ...]).dump_json(run.verdicts, indent=1))
        write_whole(rendered.html, page(sections=sections, groups=_groups(sections)))
        write_whole(rendered.json, _as_json(run, sections, rendered_at))
    except OSError as error:
        if not rendered.html.exists():
            brief = _brief(sections, not_written(error, run_folder))
            write_whole(rendered.html, page(sections=brief, groups={}))
        raise
    return rendered


def _groups(sections: Sequence[Section]) -> dict[str, list[Section]]:
    """Return by heading the folded sections that have something to show."""
    groups: dict[str, list[Section]] = {}
    for section in sections:
        if not section.is_open and not section.absent:
            groups.setdefault(section.group, []).append(section)
    return groups


def _brief(sections: Sequence[Section], why: str) -> list[Section]:
    """Return the first screen, and the reason why the rest is left out."""
    said = f"The folder has no room for the rest of this report: {why}; then draw it again with gameday report."
    note = Section("left-out", "Left out", Markup('<p class="note doubt">{}</p>').format(said), None)
    return [note, *(section for section in sections if section.is_open)]


def load_with_its_past(run_folder: Path) -> RunFolder:
    """Load a run with its notes and the earlier runs of its plan, for a report. Raises FileNotFoundError."""
    return with_earlier_runs(run_folder, with_notes(run_folder, load_run_folder(run_folder)))


def section_modules() -> list[ModuleType]:
    """Return the modules that define `build`, in the order of their `ORDER`."""
    return sorted(_found().parts.values(), key=lambda module: module.ORDER)


@cache
def _found() -> Found[ModuleType]:
    return find(Group.REPORT_SECTIONS, modules_of(own_sections), _sections_in)


def _sections_in(module: ModuleType) -> Mapping[str, ModuleType]:
    if not hasattr(module, "build"):
        return {}
    if missing := [name for name in ("ORDER", "TITLE") if not hasattr(module, name)]:
        raise ValueError(f"the module {module.__name__} lacks {' and '.join(missing)}")
    return {_name(module): module}


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def build_section(module: ModuleType, run: RunFolder, templates: Environment) -> Section:
    """Return the module's section about the run; a section that fails says why in its place.

    It is drawn by the module's own `TEMPLATE` (Jinja text), else by the file of the module's name in
    `templates/report/`. It is folded, under the heading `GROUP`, unless the module says `OPEN = True`. It is not drawn
    if the model's property `absent` says why there is nothing to show.
    """
    name = _name(module)
    try:
        data: BaseModel = module.build(run)
        own = getattr(module, "TEMPLATE", None)
        template = templates.from_string(own) if own else templates.get_template(f"{name}.html")
        absent = getattr(data, "absent", "")
        body = Markup("" if absent else template.render(data=data, run=run))  # noqa: S704 autoescaped
        return Section(
            id=name.replace("_", "-"),
            title=module.TITLE,
            body=body,
            data=data,
            is_open=getattr(module, "OPEN", False),
            group=getattr(module, "GROUP", Section.group),
            absent=absent,
        )
    except Exception as error:  # one section's bug must not cost the reader the others
        why = f"{type(error).__name__}: {error}".rstrip(".")
        return Section(id=name.replace("_", "-"), title=module.TITLE, body=Markup(), data=None, failure=why)


def _unloadable(plugin: BrokenPlugin) -> Section:
    return Section(id=plugin.name, title=plugin.name, body=Markup(), data=None, failure=str(plugin))


def _as_json(run: RunFolder, sections: list[Section], rendered_at: datetime) -> bytes:
    content = {
        "format": FORMAT,
        "rendered_at": rendered_at,
        "summary": summarise(run),
        "result": run.result,
        "problems": run.problems,
        "sections": {section.id: section.data or {"failure": section.failure} for section in sections},
    }
    return to_json(content, indent=1, inf_nan_mode="null") + b"\n"

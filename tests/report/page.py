"""A rendered page as its parts, by the standard library's parser, for structural assertions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gameday.report import render as rendering

NOW = datetime(2026, 3, 9, 12, 0, tzinfo=UTC)
VOID = {"meta", "br", "link", "img", "hr", "input", "col"}


class _Parts(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.unbalanced: list[str] = []
        self.by_section: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._section = ""
        self.feed(html)
        self.close()
        self.unbalanced += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs).get("id") or ""
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.unbalanced.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open) and data.strip():
            self.words.append(data.strip())
            self.by_section.setdefault(self._section, []).append(data.strip())


@dataclass(frozen=True)
class Page:
    """A page, parsed once somebody asks for its parts: the parse takes as long as the rendering."""

    html: str

    @cached_property
    def _parts(self) -> _Parts:
        return _Parts(self.html)

    @property
    def tags(self) -> list[tuple[str, dict[str, str | None]]]:
        return self._parts.tags

    @property
    def words(self) -> list[str]:
        return self._parts.words

    @property
    def unbalanced(self) -> list[str]:
        return self._parts.unbalanced

    def text(self, section: str | None = None) -> str:
        return " ".join(self.words if section is None else self._parts.by_section.get(section, []))

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@contextmanager
def only(*sections: str) -> Iterator[None]:
    """Let a report have its problems and these sections alone: the others take most of the time."""
    modules = {module.__name__.rpartition(".")[2].replace("_", "-"): module for module in rendering.section_modules()}
    with patch.object(rendering, "section_modules", return_value=[modules[name] for name in ("problems", *sections)]):
        yield


def drawn(run_folder: Path, *sections: str, redact: bool = False) -> tuple[Page, dict[str, Any]]:
    """Render a run with `only` these sections; return the page, and what report.json says under `sections`."""
    with only(*sections):
        made = rendering.render(run_folder, NOW, redact=redact)
    return Page(made.html.read_text()), json.loads(made.json.read_text())["sections"]

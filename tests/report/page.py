"""A rendered page as its parts, by the standard library's parser, for structural assertions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser

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

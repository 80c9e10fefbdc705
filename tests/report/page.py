"""A rendered page as its parts, by the standard library's parser, for structural assertions."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "link", "img", "hr", "input", "col"}


@dataclass
class Page(HTMLParser):
    html: str
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _section: str = ""
    by_section: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self, convert_charrefs=True)
        self.feed(self.html)
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

    def text(self, section: str | None = None) -> str:
        return " ".join(self.words if section is None else self.by_section.get(section, []))

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

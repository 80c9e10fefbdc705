"""Parsing YAML: everything that a document has no use for is refused, with its line and column."""

from __future__ import annotations

import pytest

from gameday.documents.read import decode
from gameday.documents.source import parse
from gameday.errors import DocumentError, DocumentProblem

TOO_LARGE = [b"0x" + b"f" * 4000, b"-0x8000000000000001", b"18446744073709551616", b"0o7" + b"7" * 40, b"1_000" * 20]
"""Whole numbers of more than 64 bits, in each of the ways in which YAML writes one."""


def only(source: bytes) -> DocumentProblem:
    """Return the one problem of a text; fail where there is none, or more than one."""
    with pytest.raises(DocumentError) as caught:
        parse(decode(source, "d.yaml"), "d.yaml")
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("source", "line", "column", "message"),
    [
        (b"", 1, 1, "the file is empty"),
        (b"# nothing but this\n", 1, 1, "the file is empty"),
        (b"just text", 1, 1, "a document is a mapping"),
        (b"- a\n- b\n", 1, 1, "a document is a mapping"),
        (b"name: a\ntitle: \xff\xfe\n", 2, 8, "byte 0xff is not UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00", 1, 1, "U+007F"),
        (b"name: a\n\ttitle: b\n", 2, 1, "cannot start any token"),
        (b"name: a\n---\nname: b\n", 2, 1, "a second YAML document"),
        (b"%YAML 1.1\n---\nname: a\n", 1, 1, "directives"),
        (b"name: !!python/object:os.system x\n", 1, 7, "YAML tags such as"),
        (b"name: a\n!!str title: b\n", 2, 1, "YAML tags such as"),
        (b"a: &x [*x]\n", 1, 8, "before or inside its anchor"),
        (b"a: *nowhere\n", 1, 4, "before or inside its anchor"),
        (b"<<: {a: b}\n", 1, 1, "merge keys"),
        (b"1: a\n", 1, 1, "a key must be text"),
        (b"[a]: b\n", 1, 1, "a key must be plain text"),
        (b'title: "\\e[31mred"\n', 1, 8, "U+001B"),
        (b'title: "\\u202egnp.exe"\n', 1, 8, "U+202E"),
        (b'title: "\\ud800"\n', 1, 8, "U+D800"),
        (b'title: "\\Uffffffff"\n', 1, 1, "cannot be read as YAML"),
        (b"seed: " + b"9" * 5000, 1, 7, "this number cannot be read"),
        *((b"seed: " + number, 1, 7, "this number cannot be read") for number in TOO_LARGE),
        (b"title: a: b\n", 1, 9, "mapping values are not allowed here"),
        (b"title: 'open\n", 1, 8, "unexpected end of stream"),
        (b"[" * 1000, 1, 18, "nested deeper than 16"),
        (b"- " * 1000, 1, 35, "nested deeper than 16"),
    ],
)
def test_text_that_is_no_document_is_refused_with_its_place(
    source: bytes, line: int, column: int, message: str
) -> None:
    problem = only(source)
    assert message in problem.message
    # ruamel reports where the token or the quoted text ends for some errors; the line is what an editor jumps to.
    assert problem.line == line
    assert problem.column == column


def test_a_key_written_twice_names_both_lines() -> None:
    problem = only(b"name: a\ntargets:\n  nodes: 1\n  nodes: 2\n")
    assert (problem.line, problem.where, problem.value) == (4, "targets.nodes", "2")
    assert problem.message == "the key is written twice, first in line 3"


def test_aliases_cannot_multiply() -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    assert "more than 10000 values" in only("\n".join(rows).encode()).message


def test_an_alias_has_the_places_of_its_own_copy() -> None:
    source = parse("a: &x {b: 1}\nc: *x\n", "d.yaml")
    assert source.data == {"a": {"b": 1}, "c": {"b": 1}}
    assert source.place(("c",)).key == (2, 1)
    assert source.place(("c", "b")) == source.place(("a", "b"))


def test_a_missing_entry_has_the_place_of_its_nearest_parent() -> None:
    source = parse("a:\n  b: 1\n", "d.yaml")
    assert source.place(("a", "c", "d")) == source.place(("a",))
    assert source.place(("z",)) == source.place(())

"""Reading a document's bytes: what is no file, and what is too large, is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gameday.documents.read import decode, read
from gameday.documents.source import MAX_BYTES
from gameday.errors import DocumentError


def test_a_file_that_is_too_large_is_refused_unparsed() -> None:
    with pytest.raises(DocumentError) as caught:
        decode(b"#" * (MAX_BYTES + 1), "d.yaml")
    (problem,) = caught.value.problems
    assert problem.message == "larger than 256 KiB, the most a document may have"


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "nul"])
def test_a_path_that_is_no_readable_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "nul":
        path = Path("a\0b.yaml")
    with pytest.raises(DocumentError) as caught:
        read(path)
    assert caught.value.problems[0].line is None


def test_at_most_one_byte_more_than_a_document_may_have_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 100))
    assert len(read(path)) == MAX_BYTES + 1

"""Docstrings open with a phrase that makes sense alone: an imperative or a noun phrase.

"What the cluster said." or "Whether it is clean." make sense only beside the name above them, and a reader has to guess
the rest. The same holds for the docstrings of attributes and constants, which follow the assignment.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("gameday", "flows", "tasks", "packages", "scripts", "benchmarks")
MODULES = [
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "__pycache__" not in path.parts and "tests" not in path.parts
]
# "None", "True" and "False" are left out: "True once the pod has left." is a sentence about a property.
ELLIPTICAL = (
    "After", "Also", "As", "Asked", "Because", "Before", "By", "For", "From", "Given", "How", "If", "In", "Of", "Once",
    "One", "Only", "Raises", "Returns", "Said", "So", "That", "Those", "Told", "Until", "What", "Whatever", "When",
    "Where", "Whether", "Which", "While", "Who", "Whoever", "Whom", "Whose", "Why", "With", "Without",
)  # fmt: skip
OPENER = re.compile(rf"(?:{'|'.join(ELLIPTICAL)})\b")
# "If true, a person must approve." is a whole sentence.
ATTRIBUTE_OPENER = re.compile(rf"\.|(?!If true, ){OPENER.pattern}")


def attribute_docstrings(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring that follows an assignment."""
    for statement, following in pairwise(body):
        match statement, following:
            case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                yield following.lineno, inspect.cleandoc(text)


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first line of every docstring that breaks the rules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if OPENER.match(text):
                yield getattr(node, "lineno", 1), text.partition("\n")[0]
        if isinstance(node, ast.Module | ast.ClassDef):
            for line, text in attribute_docstrings(node.body):
                if ATTRIBUTE_OPENER.match(text):
                    yield line, text.partition("\n")[0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_open_with_an_imperative_or_a_noun(folder: str) -> None:
    modules = [path for path in MODULES if path.parts[0] == folder]
    assert modules
    found = [f"{path}:{line}: {text}" for path in modules for line, text in findings((ROOT / path).read_text("utf-8"))]
    assert not found, "\n".join(["rewrite as an imperative or a noun phrase, in plain words:", *found])


FOUND = ("What the node offers.", "Whether it is clean.", "Of one metric.", "Whatever happens, undo.")
LEFT_ALONE = ("Offer one GPU.", "Often the same node.")
FOUND_BELOW = (
    "Where work may run.",
    "Whether it is seen.",
    "For pings: the interface.",
    "...and above it.",
    "If it is true.",
)
LEFT_ALONE_BELOW = (
    "If true, a person must approve the run.",
    "`node`: the target.",
    "Effects on work.",
    "None: every namespace.",
)


def test_the_rules_find_riddles_and_leave_plain_sentences_alone() -> None:
    texts = FOUND + LEFT_ALONE
    assert [text for text in texts if list(findings(f'def f() -> None:\n    """{text}"""\n'))] == list(FOUND)


@pytest.mark.parametrize(
    "source", ['LIMIT = 3\n"""{}"""\n', 'LIMIT: int = 3\n"""{}"""\n', 'class Plan:\n    limit: int\n    """{}"""\n']
)
def test_the_rules_hold_for_the_docstrings_of_attributes(source: str) -> None:
    texts = FOUND_BELOW + LEFT_ALONE_BELOW
    assert [text for text in texts if list(findings(source.format(text)))] == list(FOUND_BELOW)

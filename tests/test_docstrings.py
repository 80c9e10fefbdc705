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
FOLDERS = ("gameday", "flows", "tasks", "kubesim", "scripts", "benchmarks")
MODULES = [
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "__pycache__" not in path.parts
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
# "stands for" means "represents" and stays; "stands in a file" means "is written there".
WORD = re.compile(r"\b(?:tells|told|whoever|stands(?! for\b))\b", re.IGNORECASE)
CODE = re.compile(r"`[^`]*`")


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
            if OPENER.match(text) or WORD.search(CODE.sub("", text)):
                yield getattr(node, "lineno", 1), text.partition("\n")[0]
        if isinstance(node, ast.Module | ast.ClassDef):
            for line, text in attribute_docstrings(node.body):
                if ATTRIBUTE_OPENER.match(text) or WORD.search(CODE.sub("", text)):
                    yield line, text.partition("\n")[0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_open_with_an_imperative_or_a_noun(folder: str) -> None:
    modules = [path for path in MODULES if path.parts[0] == folder]
    assert modules
    found = [f"{path}:{line}: {text}" for path in modules for line, text in findings((ROOT / path).read_text("utf-8"))]
    assert not found, "\n".join(["rewrite as an imperative or a noun phrase, in plain words:", *found])


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("What the node offers.", True),
        ("Whether it is clean.", True),
        ("Of one metric.", True),
        ("Return what a plan tells.", True),
        ("The result; it stands in report.json.", True),
        ("The server stands for all exporters.", False),
        ("Call `told` with the result.", False),
        ("Whatever happens, undo.", True),
        ("Offer one GPU.", False),
        ("Often the same node.", False),
    ],
)
def test_the_rules_find_riddles_and_leave_plain_sentences_alone(text: str, is_found: bool) -> None:
    source = f'def f() -> None:\n    """{text}"""\n'
    assert bool(list(findings(source))) is is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("Where work may run.", True),
        ("Whether the fault is seen.", True),
        ("For pings: the interface.", True),
        ("...and at least this many seconds above it.", True),
        ("The place where this stands.", True),
        ("If it is true.", True),
        ("If true, a person must approve the run.", False),
        ("`node`: the alert names the target.", False),
        ("Effects on the GPU work of the node.", False),
        ("None: every namespace.", False),
    ],
)
@pytest.mark.parametrize(
    "source", ['LIMIT = 3\n"""{}"""\n', 'LIMIT: int = 3\n"""{}"""\n', 'class Plan:\n    limit: int\n    """{}"""\n']
)
def test_the_rules_hold_for_the_docstrings_of_attributes(source: str, text: str, is_found: bool) -> None:
    assert [found for _, found in findings(source.format(text))] == ([text] if is_found else [])

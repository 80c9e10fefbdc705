"""The names that flows and packages of other people import from gameday, and what each says of itself."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gameday

ROOT = Path(__file__).parents[1]
FUNCTIONS = {
    "approve": {"Args", "Raises"},
    "await_alert": {"Raises"},
    "baseline": {"Returns", "Raises"},
    "find_plan": {"Raises"},
    "inject": {"Raises"},
    "invocation": {"Args"},
    "load_complete_plan": {"Args", "Raises"},
    "load_profile": {"Args", "Raises"},
    "new_run_id": set(),
    "open_run": {"Args", "Yields", "Raises"},
    "publish_run": set(),
    "qa_node": {"Raises"},
    "reap_flow_run": {"Raises"},
    "recover": {"Returns", "Raises"},
    "since_fault": set(),
    "start_record": {"Args", "Raises"},
    "under_guardrails": set(),
    "undo_at_the_end": {"Args", "Raises"},
    "verify_taint": {"Raises"},
    "write_report": set(),
}
"""Every function, with the parts of its docstring that its signature cannot express."""
CLASSES = {
    # faults, remediations
    "CanaryJob", "Claim", "Evidence", "Fault", "FaultParameters", "GpuSample", "Host", "Layer", "NodeNeeds",
    "PodSecurity", "ProgramResult", "Reach", "Remediation",
    # expectations
    "Expectation", "PodSignal", "Sighting", "Signal",
    # checks, guardrails, report sections
    "Figure", "Frames", "Guardrail", "History", "Measurement", "Observation", "Plan", "RunFolder", "Status", "Step",
    "Verdict",
    # flows
    "ChosenTarget", "Cleanliness", "ClusterProfile", "InjectedFault", "Invocation", "LoadedPlan", "Repair", "Run",
    "RunOutcome", "RunRecord", "RunResult",
    # errors
    "AbortedError", "AdapterError", "DocumentError", "GamedayError", "HostError", "ProfileError", "RefusedError",
    "StepFailedError", "StopRunError",
}  # fmt: skip
TYPES = {"Bound"}
"""Types of fields, which have no docstring of their own."""
SECTION = re.compile(r"^(Args|Returns|Yields|Raises):$", re.MULTILINE)


def imported(statement: str) -> set[str]:
    """Return the modules that a fresh Python has loaded after the statement."""
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_the_list_is_the_public_api() -> None:
    assert set(gameday.__all__) == FUNCTIONS.keys() | CLASSES | TYPES
    assert sorted(gameday.__all__) == gameday.__all__


def test_each_name_is_what_a_type_checker_takes_it_for() -> None:
    """The imports that only a type checker reads lead to the object that is loaded at the first use."""
    tree = ast.parse((ROOT / "gameday/__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    places = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for name in gameday.__all__:
        module, own_name = places[name]
        assert module is not None
        assert getattr(gameday, name) is getattr(sys.modules[module], own_name), name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_each_function_says_what_its_signature_does_not(name: str) -> None:
    text = inspect.getdoc(getattr(gameday, name)) or ""
    assert text.partition("\n")[0].endswith(".")
    assert set(SECTION.findall(text)) == FUNCTIONS[name]


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_each_class_has_a_docstring_of_its_own(name: str) -> None:
    text = vars(getattr(gameday, name)).get("__doc__") or ""
    assert text.strip() and not text.startswith(f"{name}("), "dataclasses write their own"


@pytest.mark.parametrize("base", ["Fault", "Remediation", "Guardrail"])
def test_each_method_that_a_package_must_write_says_what_it_must_do(base: str) -> None:
    kind = getattr(gameday, base)
    assert {name for name in kind.__abstractmethods__ if not inspect.getdoc(getattr(kind, name))} == set()


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'gameday' has no attribute 'nothing'"):
        gameday.nothing  # noqa: B018


def test_the_names_are_listed_for_a_person_who_explores() -> None:
    assert set(gameday.__all__) <= set(dir(gameday))


@pytest.mark.slow
def test_importing_gameday_loads_nothing_else() -> None:
    ours = {module for module in imported("import gameday") if module.startswith("gameday")}
    assert ours == {"gameday"}
    assert not imported("import gameday") & {"prefect", "pydantic", "pandas", "kubernetes"}


@pytest.mark.slow
def test_a_fault_of_a_package_waits_for_neither_prefect_nor_the_kubernetes_client() -> None:
    loaded = imported(
        "from gameday import Claim, Evidence, Fault, FaultParameters, Host, HostError, Layer, PodSecurity"
    )
    assert not loaded & {"prefect", "kubernetes", "pandas"}


@pytest.mark.parametrize("name", ["Fault", "Verdict", "Guardrail", "Remediation", "RunFolder", "Run", "baseline"])
@pytest.mark.slow
def test_a_name_can_be_the_first_that_is_imported(name: str) -> None:
    assert "gameday" in imported(f"from gameday import {name}")


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("**/*.py")), ids=lambda path: path.name)
def test_an_example_needs_nothing_of_ours_that_is_neither_public_nor_a_door(example: Path) -> None:
    tree = ast.parse(example.read_text(encoding="utf-8"))
    from_ours = [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gameday"
    ]
    whole = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert set(from_ours) <= {"gameday", *(ROOT / "packages/doors.txt").read_text(encoding="utf-8").split()}
    assert {name for name in whole if name.startswith("gameday")} <= {"gameday"}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gd"
    }
    assert used <= set(gameday.__all__)

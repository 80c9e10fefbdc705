"""`dcgmi diag` in QA: both forms of its JSON, what is no pass, and hostile output.

The outputs have the form that the source of DCGM 3.3.9 and 4.6.0 gives them (dcgmi/Diag.cpp); none is of a real GPU.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gameday.agent.qa.checks import judge
from gameday.agent.qa.dcgm_diag import DcgmDiag, diagnose, read_diag
from gameday.agent.qa.readings import Pace, read_node
from gameday.agent.task import Proof, QaResult, proof_of
from gameday.errors import HostError
from gameday.faults.dcgm_pause import DcgmPauseFault, DcgmPauseParameters
from gameday.host.base import ProgramResult
from gameday.plan.qa import DIAG_LIMITS, Qa, QaFloors
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost, result

EUD = {"status": "Skip", "info": "EUD is not installed"}
DCGM_3 = {
    "DCGM GPU Diagnostic": {
        "Driver Version Detected": "535.183.01",
        "GPU Device IDs": ["2330", "2330"],
        "GPU Device Serials": {"0": "1652822000001"},
        "test_categories": [
            {
                "category": "Deployment",
                "tests": [
                    {"name": "Denylist", "results": [{"status": "Pass"}]},
                    {"name": "NVML Library", "results": [{"status": "Pass"}]},
                    None,
                    {"name": "Persistence Mode", "results": [{"status": "Pass"}]},
                ],
            },
            {
                "category": "Integration",
                "tests": [
                    {
                        "name": "PCIe",
                        "results": [
                            {"gpu_id": "0", "status": "Pass", "info": "GPU to Host bandwidth:\t\t55.31 GB/s"},
                            {"gpu_id": "1", "status": "Pass"},
                        ],
                    }
                ],
            },
            {
                "category": "Hardware",
                "tests": [
                    {
                        "name": "GPU Memory",
                        "results": [{"gpu_id": "0", "status": "Pass"}, {"gpu_id": "1", "status": "Pass"}],
                    },
                    {"name": "EUD Test", "results": [{"gpu_id": "0", **EUD}, {"gpu_id": "1", **EUD}]},
                ],
            },
        ],
        "version": "3.3.9",
    }
}


def of_gpus(*statuses: str, warning: str = "") -> list[dict[str, Any]]:
    error = [{"error_category": 9, "error_id": 86, "error_severity": 2, "warning": warning}] if warning else []
    return [
        {"entity_group": "GPU", "entity_group_id": 0, "entity_id": gpu, "status": status}
        | ({"warnings": error} if error and status == "Fail" else {})
        for gpu, status in enumerate(statuses)
    ]


def dcgm_4(memory: Sequence[str] = ("Pass", "Pass"), warning: str = "") -> dict[str, Any]:
    summary = {"status": "Fail" if "Fail" in memory else memory[0]}
    software = {"name": "software", "results": of_gpus("Pass", "Pass"), "test_summary": {"status": "Pass"}}
    tests = [{"name": "memory", "results": of_gpus(*memory, warning=warning), "test_summary": summary}]
    cpu = [{"entity_group": "CPU", "entity_group_id": 7, "entity_id": 0, "status": "Skip"}]
    return {
        "DCGM Diagnostic": {
            "test_categories": [
                {"category": "Deployment", "tests": [software]},
                {"category": "Hardware", "tests": [*tests, {"name": "cpu_eud", "results": cpu}]},
            ]
        },
        "entity_groups": [{"entities": [{"device_id": "2330", "entity_id": 0}], "entity_group": "GPU"}],
        "metadata": {"Driver Version Detected": "570.133.20", "version": "4.6.0"},
    }


def printed(output: object, exit_status: int = 0, level: int = 2) -> DcgmDiag:
    text = output if isinstance(output, str) else json.dumps(output, indent=3)
    return read_diag(level, result(["dcgmi"], exit_status, stdout=text))


def qa_of(diag: DcgmDiag) -> dict[tuple[str, int | None], QaResult]:
    """The results of QA that come from a diagnosis."""
    readings = read_node(FakeHost(), "m", None, threading.Event(), proof(None))
    object.__setattr__(readings, "diag", diag)
    return {(one.check, one.gpu): one for one in judge(readings, QaFloors()) if one.check.startswith("dcgm-")}


def proof(level: Any, burn_in_s: float | None = None) -> Proof:
    return Proof(floors=QaFloors(), burn_in_s=burn_in_s, virtual_burn_in_s=0.02, dcgm_diag=level)


def test_each_test_of_dcgm_3_is_a_check_and_what_it_left_out_is_named() -> None:
    found = qa_of(printed(DCGM_3))
    whole = found.pop(("dcgm-diag", None))
    assert (whole.value, whole.unit, whole.ok) == ("7 of 7", "results", True)
    assert whole.detail == "left out by DCGM: eud-test"
    assert set(found) == {
        ("dcgm-denylist", None),
        ("dcgm-nvml-library", None),
        ("dcgm-persistence-mode", None),
        *((name, gpu) for name in ("dcgm-pcie", "dcgm-gpu-memory") for gpu in (0, 1)),
    }
    assert found["dcgm-pcie", 0].detail == "GPU to Host bandwidth: 55.31 GB/s"
    assert all((one.ok, one.value, one.bound) == (True, "pass", "pass") for one in found.values())


def test_each_test_of_dcgm_4_is_a_check_of_its_gpu() -> None:
    found = qa_of(printed(dcgm_4()))
    assert found["dcgm-diag", None].ok
    assert {key for key in found if key[1] is not None} == {
        (name, gpu) for name in ("dcgm-software", "dcgm-memory") for gpu in (0, 1)
    }


def test_a_failed_test_fails_its_gpu_and_says_why() -> None:
    found = qa_of(printed(dcgm_4(("Pass", "Fail"), "GPU 1 memory test failed\nat 0x7f"), 226))
    assert (found["dcgm-memory", 0].ok, found["dcgm-memory", 1].ok) == (True, False)
    assert found["dcgm-memory", 1].detail == "GPU 1 memory test failed at 0x7f"
    assert (found["dcgm-diag", None].value, found["dcgm-diag", None].ok) == ("3 of 4", False)


def test_a_warning_of_dcgm_3s_first_level_is_read_by_its_other_name() -> None:
    first = {"status": "Fail", "gpu_id": 0, "warnings": [None, {"warnings": "persistence mode is off", "error_id": 8}]}
    tests = [{"name": "Persistence Mode", "results": [first]}]
    report = {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}}
    found = qa_of(printed(report, 226, level=1))
    assert found["dcgm-persistence-mode", 0].detail == "persistence mode is off"


def test_an_error_that_only_the_summary_has_fails_the_node() -> None:
    report = dcgm_4()
    test = report["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
    test["test_summary"] = {"status": "Fail", "warnings": [{"warning": "the fabric manager does not run"}]}
    found = qa_of(printed(report, 226))
    assert (found["dcgm-software", None].ok, found["dcgm-diag", None].ok) == (False, False)
    assert "fabric manager" in found["dcgm-software", None].detail


@pytest.mark.parametrize(
    ("output", "exit_status", "why"),
    [
        ("", 0, "no JSON can be read; it printed: nothing"),
        ("Segmentation fault\n", 139, "ended with 139, and no JSON can be read; it printed: Segmentation fault"),
        ('{"DCGM Diagnostic": {"test_cat', 0, "no JSON can be read"),
        ("[" * 100_000, 0, "no JSON can be read"),
        ('{"a": ' * 100_000, 0, "no JSON can be read"),
        ({"other": 1}, 0, "an unknown form"),
        ({"DCGM Diagnostic": {"test_categories": {"a": 1}}}, 0, "an unknown form (test_categories:"),
        ({"DCGM Diagnostic": {"runtime_error": "Error: GPU 0 is\nbusy", "version": "4.6.0"}}, 226, "GPU 0 is busy"),
        ({"DCGM Diagnostic": {"test_categories": []}}, 0, "no test was run"),
        (dcgm_4(), 205, "ended with 205, and names no test that failed"),
        (dcgm_4(("Skip", "Skip")), 0, "no test of level 2 was run, only those of level 1"),
    ],
)
def test_a_diagnosis_without_an_end_is_unknown_and_never_a_pass(output: object, exit_status: int, why: str) -> None:
    found = qa_of(printed(output, exit_status))["dcgm-diag", None]
    assert (found.value, found.ok) == (None, None)
    assert why in found.detail
    assert len(found.detail) < 500


def test_lines_before_the_json_do_no_harm() -> None:
    assert qa_of(printed("WARNING: fabric manager\n" + json.dumps(DCGM_3)))["dcgm-diag", None].ok


def test_a_word_that_nobody_knows_is_no_pass() -> None:
    found = qa_of(printed(dcgm_4(("Pass", "Fine"))))
    assert (found["dcgm-memory", 1].ok, found["dcgm-diag", None].ok) == (None, None)


def test_a_gpu_that_dcgm_leaves_out_of_a_test_is_said() -> None:
    assert qa_of(printed(dcgm_4(("Pass", "Skip"))))["dcgm-diag", None].detail == (
        "left out by DCGM: memory on some GPUs, cpu-eud"
    )


def test_hostile_names_texts_and_numbers_are_bounded() -> None:
    hostile = {"status": "Pass" + "\x1b[31m" * 99, "gpu_id": 10**9, "info": ["<script>" * 999, "\x00"]}
    tests = [{"name": "</td><script>" * 99, "results": [hostile] * 600}]
    diag = printed({"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}})
    assert "printed 600 results, more than the 512" in diag.why_unproved
    (one,) = set(diag.results)
    assert one.gpu is None
    assert set(one.test) <= set("abcdefghijklmnopqrstuvwxyz-")
    assert max(map(len, (one.test, one.status, one.detail))) < 1000
    assert one.ok is None
    assert not qa_of(diag)["dcgm-diag", None].ok


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["Pass", "Fail"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list("ab")), inner, max_size=3),
    max_leaves=10,
)
NAMED = st.fixed_dictionaries(
    {},
    optional={
        "name": JSON,
        "results": st.lists(
            st.fixed_dictionaries({"status": JSON}, optional={"gpu_id": JSON, "warnings": JSON}) | JSON
        ),
        "test_summary": JSON,
    },
)


@given(tests=st.lists(NAMED | JSON, max_size=3), exit_status=st.sampled_from([0, 226]))
def test_whatever_dcgmi_prints_is_judged(tests: list[Any], exit_status: int) -> None:
    diag = printed({"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}}, exit_status)
    passes = not diag.why_unproved and all(one.ok for one in diag.ran)
    assert not passes or (diag.ran and {one.status for one in diag.ran} == {"pass"} and not exit_status)


def test_a_node_without_dcgmi_is_unknown_and_does_not_pass() -> None:
    host = FakeHost()
    host.programs = lambda argv: result(argv, 127, stderr="nsenter: failed to execute dcgmi")
    diag = diagnose(host, 1, threading.Event())
    assert "no dcgmi on this node" in diag.why_unproved
    assert qa_of(diag)["dcgm-diag", None].ok is None


def test_the_level_has_its_time_limit_and_one_that_does_not_end_is_unknown() -> None:
    host, limits = FakeHost(), []

    def run(argv: Sequence[str], timeout_s: float, _: threading.Event) -> ProgramResult:
        limits.append((tuple(argv), timeout_s))
        raise HostError("'dcgmi diag' did not end within 480 s and was killed")

    host.run = run  # type: ignore[method-assign]
    assert "did not end within" in diagnose(host, 2, threading.Event()).why_unproved
    assert limits == [(("dcgmi", "diag", "-r", "2", "-j"), DIAG_LIMITS[2].total_seconds())]


def test_qa_runs_no_diagnosis_that_nobody_asked_for_and_none_after_it_was_stopped() -> None:
    stopped = threading.Event()
    stopped.set()
    for level, ended in ((None, threading.Event()), (1, stopped)):
        host = FakeHost()
        assert read_node(host, "m", None, ended, proof(level)).diag is None
        assert host.ran == []


@pytest.fixture
def model() -> ModelHost:
    return ModelHost(gpus=2)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_model_of_a_node_passes_every_level(model: ModelHost, level: int) -> None:
    diag = diagnose(model, level, threading.Event())
    assert not diag.why_unproved
    assert {one.ok for one in diag.ran} == {True}
    assert len({one.test for one in diag.ran}) == {1: 1, 2: 3, 3: 5}[level]


def test_the_model_fails_for_what_is_broken_in_it(model: ModelHost) -> None:
    model.fleet.remap_pending[0, 1] = True
    model.fleet.pcie_width[0, 0] = 8
    failed = {(one.test, one.gpu) for one in diagnose(model, 2, threading.Event()).ran if not one.ok}
    assert failed == {("software", 1), ("pcie", 0)}


def test_a_paused_engine_runs_no_diagnosis(model: ModelHost) -> None:
    DcgmPauseFault().inject(DcgmPauseParameters(), 0, model)
    assert "paused" in diagnose(model, 1, threading.Event()).why_unproved
    model.machine.set_unit("nvidia-dcgm", active=False)
    assert "establish a connection" in diagnose(model, 1, threading.Event()).why_unproved


def test_qa_of_the_model_judges_burn_in_and_diagnosis_together(model: ModelHost) -> None:
    readings = read_node(model, "m", None, threading.Event(), proof(2, 300), Pace(model.clock, model.clock.pass_by))
    found = {one.check: one.ok for one in judge(readings, QaFloors())}
    assert found["dcgm-diag"] and found["dcgm-memory"] and found["burn-in"]


def test_a_plan_names_the_level_and_the_step_lasts_longer() -> None:
    qa = Qa.model_validate({"within": "60s", "dcgm_diag": 2})
    assert proof_of(qa).dcgm_diag == 2
    assert qa.longest - Qa.model_validate({"within": "60s"}).longest == DIAG_LIMITS[2]
    assert Qa().dcgm_diag is None


@pytest.mark.parametrize("level", [0, 4, "2", 1.5])
def test_other_levels_are_refused(level: object) -> None:
    with pytest.raises(ValidationError):
        Qa.model_validate({"dcgm_diag": level})


def test_a_level_that_loads_the_gpus_needs_a_burn_in() -> None:
    assert Qa.model_validate({"burn_in": None, "dcgm_diag": 1}).longest_work == DIAG_LIMITS[1]
    with pytest.raises(ValidationError, match="level 2 puts work on the GPUs"):
        Qa.model_validate({"burn_in": None, "dcgm_diag": 2})

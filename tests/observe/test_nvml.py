"""The sampler: where it is sent, what is kept of its log, and what is said where it saw nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.task import SampledGpu, SampledNote
from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from gameday.faults.registry import parameter_models
from gameday.guard.preview import planned_changes
from gameday.history.events import FaultUndone, Problem
from gameday.history.frames import Frames, conform
from gameday.host.base import GpuSample
from gameday.ledger.termination_message import termination_message as termination_message_of
from gameday.observe.nvml import end_samplers, keep_samples, start_sampler
from gameday.plan.catalogue import load_shipped
from gameday.run.agents import samples_nvml
from gameday.run.nvml_samples import NvmlSamples
from gameday.run.run import Run
from gameday.values.results import Cleanliness
from tests.support.runs import follow_as_target
from tests.support.world import Kubelet, World, termination_message

AT = datetime(2026, 3, 3, 9, 0, tzinfo=UTC)
GPUS = (
    GpuSample(index=0, uuid="u0", name="n", pci_bus_id="p", temperature_c=41, power_w=350.5, ecc_sbe_volatile=0),
    GpuSample(index=1, uuid="", name="", pci_bus_id="", lost=True),
)
NOTE = SampledNote(at=AT, gpus=tuple(map(SampledGpu.of, GPUS)))
LOG = f"starting\n{NOTE.model_dump_json()}\n{{\n"


@pytest.fixture
def run(world: World, new_run: Callable[..., Run]) -> Iterator[Run]:
    """A run with its sampler on its target."""
    made = new_run()
    target = follow_as_target(made, world.add_node())
    said = {
        "sample": termination_message(
            Cleanliness.CLEAN, role="sample", error="NVML not found (no file): is the driver in?"
        )
    }
    with made.pods, Kubelet(world, made.id, said):
        made.pods.require_synced()
        start_sampler(made, target)
        yield made


def log_of(run: Run, monkeypatch: pytest.MonkeyPatch, log: str | KubernetesError) -> list[str]:
    """Let every pod have this log; return the list of the pods whose log is read."""
    read: list[str] = []

    def pod_log(_: Kubernetes, name: str) -> str:
        read.append(name)
        if isinstance(log, KubernetesError):
            raise log
        return log

    monkeypatch.setattr(Kubernetes, "pod_log", pod_log)
    return read


def problems(run: Run) -> list[str]:
    return [event.what for event in run.history().of(Problem)]


def test_what_it_noted_is_in_the_frame_and_its_pod_is_gone(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (pod,) = world.pods(run.id)
    read = log_of(run, monkeypatch, LOG)
    end_samplers(run)
    end_samplers(run)
    assert read == [pod]
    assert world.pods(run.id) == []
    assert [event.cleanliness for event in run.history().of(FaultUndone)] == ["clean"]
    assert problems(run) == []
    rows = [(row["gpu"], row["metric"], row["value"], row["source"]) for row in run.nvml.rows()]
    assert rows == [
        ("0", "lost", 0.0, pod),
        ("0", "temperature_c", 41.0, pod),
        ("0", "power_w", 350.5, pod),
        ("0", "ecc_sbe_volatile", 0.0, pod),
        ("1", "lost", 1.0, pod),
    ]
    Frames(nvml=conform("nvml", run.nvml.rows())).save(tmp_path)
    assert Frames.load(tmp_path).nvml["value"].tolist() == [0.0, 41.0, 350.5, 0.0, 1.0]


def test_a_sampler_without_notes_is_a_problem_with_its_own_reason(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_of(run, monkeypatch, "")
    (entry,) = run.ledger.open_entries()
    (pod,) = world.pods(run.id)
    world.report(pod, termination_message(Cleanliness.CLEAN, role="sample", error="NVML not found"), "Failed")
    assert run.wait("the end", timedelta(seconds=20), lambda: termination_message_of(run.pods, pod))
    keep_samples(run, entry)
    keep_samples(run, entry)
    assert problems(run) == [f"the agent did not sample NVML on {entry.node}: NVML not found"]
    assert run.nvml.rows() == []


def test_a_pod_that_never_ran_is_named(run: Run, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log_of(run, monkeypatch, "")
    (entry,) = run.ledger.open_entries()
    keep_samples(run, entry)
    assert problems(run) == [
        f"the agent did not sample NVML on {entry.node}: pod {world.pods(run.id)[0]} noted nothing"
    ]


def test_an_undo_that_is_tried_again_tells_nothing_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read = log_of(run, monkeypatch, LOG)
    (entry,) = run.ledger.open_entries()
    keep_samples(run, entry)
    keep_samples(run, entry)
    assert len(read) == 1 and len(run.nvml.rows()) == 5


def test_a_log_that_cannot_be_read_costs_the_samples_and_not_the_undo(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_of(run, monkeypatch, KubernetesError("read the log", "https://api", "kubelet is gone", 502))
    end_samplers(run)
    assert world.pods(run.id) == []
    (problem,) = problems(run)
    assert "NVML samples" in problem and "are lost" in problem and "kubelet is gone" in problem


def test_a_note_with_impossible_figures_is_no_note() -> None:
    huge = NOTE.model_dump(mode="json")
    huge["gpus"][0]["memory_used_bytes"] = 10**400
    many = NOTE.model_dump(mode="json") | {"gpus": huge["gpus"][1:] * 100}
    for hostile in (huge, many):
        with pytest.raises(ValueError, match=r"less than|at most"):
            SampledNote.model_validate(hostile)


def test_figures_of_several_targets_stay_apart() -> None:
    samples = NvmlSamples()
    samples.add("a", "pod-a", [NOTE])
    samples.add("b", "pod-b", [NOTE])
    assert {(row["node"], row["source"]) for row in samples.rows()} == {("a", "pod-a"), ("b", "pod-b")}


def test_no_plan_is_sampled_whose_gpus_nobody_may_open() -> None:
    plans = [loaded.plan for loaded in load_shipped(parameter_models())]
    unsampled = {plan.name for plan in plans if not samples_nvml(plan) and plan.fault.runs_on == "GPU node"}
    assert unsampled == {
        "ecc-off",
        "gpu-removed",
        "gpu-removed-whole-node",
        "persistence-off",
        "kubelet-stopped",
        "node-reboot",
        "node-shutdown",
        "rack-loses-power",
        *(plan.name for plan in plans if plan.recover.is_hands_off),
    }


@pytest.mark.parametrize("nested", ["compound", "repeated"])
def test_a_fault_within_another_is_asked_too(nested: str) -> None:
    plans = {loaded.plan.name: loaded.plan for loaded in load_shipped(parameter_models())}
    models, base = parameter_models(), plans["xid-94-contained-ecc"]
    inner: dict[str, Any] = {"type": "gpu_removed"}
    shapes = {
        "compound": {"type": "compound", "parts": [inner, {"type": "xid", "xid": 79}]},
        "repeated": {"type": "repeated", "fault": {"type": "persistence_off"}, "times": 2, "every": "20s"},
    }
    fault = models[nested].model_validate(shapes[nested], context={"faults": models})
    assert samples_nvml(base) and not samples_nvml(base.model_copy(update={"fault": fault}))


def test_the_dry_run_shows_the_pod_that_the_run_creates(run: Run, world: World) -> None:
    target = follow_as_target(run, run.ledger.open_entries()[0].node or "")
    planned = {change.object for change in planned_changes(run, [target])}
    assert {f"pod/{name}" for name in world.pods(run.id)} <= planned

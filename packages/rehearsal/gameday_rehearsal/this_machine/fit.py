"""The plans that this machine can take, and how a plan is changed so that it can.

A changed plan is written to a file of its own, which the run keeps: its report, too, is about the plan that was played.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

from ruamel.yaml import YAML

from gameday.documents.fields import format_duration
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.faults.registry import parameter_models
from gameday.plan.load import LoadedPlan, parse_plan
from gameday.plan.models import NO_REMEDIATION, Plan
from gameday.remediations.registry import known_remediations
from gameday.shipped import shipped
from gameday_rehearsal.this_machine import NODE
from gameday_rehearsal.this_machine.sight import Sight

CHANGE, RESET = "change", "reset"
"""The permissions, in the words of `make test-gpu MAY=`: to set what is set back, and to reset a GPU."""
_NEEDS: dict[str, tuple[str, ...]] = {
    "noop": (),
    "xid": (),
    "sxid": (),
    "gpu_burn": (),
    "gpu_memory": (),
    "cuda_crash": (),
    "power_cap": (CHANGE,),
    "clock_lock": (CHANGE,),
    "persistence_off": (CHANGE,),
    "ecc_off": (CHANGE, RESET),
}
"""The permissions that a fault needs, by its type; a fault that is not here is never played on this machine."""
_COMPUTE = frozenset({"gpu_burn", "gpu_memory", "cuda_crash"})
"""Faults that need CuPy and a GPU."""
_MADE_OF_OTHERS = frozenset({"compound", "repeated"})
_LONGEST_BURN_IN = timedelta(seconds=60)
"""Our own choice: a die has the temperature of its load after 5 s, memory after about 15 s (docs/sources.md, A recorded
GPU), and somebody waits."""
_WHY_NEVER = {
    "node_reboot": "it would end this game-day with the machine",
    "node_shutdown": "it would end this game-day with the machine",
    "gpu_removed": "the machine may hang, and only a reboot may bring the GPU back",
    "dcgm_field": "no DCGM host engine is part of this cluster, which reads NVML",
    "dcgm_pause": "no DCGM host engine is part of this cluster, which reads NVML",
    "component_frozen": "exporter, device plugin and log shipper are one process here, and no pods",
    "unit_stopped": "no unit of this machine is part of the cluster",
    "critical_unit_stopped": "no unit of this machine is part of the cluster",
}


def default_plan(sight: Sight) -> str:
    """Return the plan that is played if none is named, by its name or its file.

    With a GPU that computes, the driver itself writes the Xid.
    """
    if sight.computes:
        return "real-xid-31-application-error"
    return str(shipped("plans") / "detectors/konduktor-xid-31-alert.yaml")


def permissions(may: str | None) -> frozenset[str]:
    """Return the permissions of `--may`. Raises CommandError."""
    words = frozenset(word.strip() for word in may.split(",")) if may is not None else frozenset()
    if words - {CHANGE, RESET}:
        raise CommandError(f"--may {may!r}: write {CHANGE}, {RESET} or both, as in --may {CHANGE},{RESET}")
    return words


def faults_here(may: Collection[str]) -> tuple[str, ...]:
    """Return the types of the faults that may be played with these permissions."""
    return tuple(name for name, needs in _NEEDS.items() if set(needs) <= set(may))


def refuse_unfit(loaded: LoadedPlan, sight: Sight, may: Collection[str]) -> None:
    """Raise CommandError if the plan cannot be played on this machine."""
    if why := next(_unfit(loaded, sight, may), ""):
        raise CommandError(f"plan {loaded.plan.name} cannot be played on this machine: {why}", ExitCode.REFUSED)


def _unfit(loaded: LoadedPlan, sight: Sight, may: Collection[str]) -> Iterator[str]:
    plan = loaded.plan
    if loaded.arms:
        yield "it compares arms; name a plan without them"
    if plan.targets.nodes > 1 or plan.targets.domain:
        yield f"it aims at several nodes, and {NODE} is the only one"
    if plan.targets.selector or plan.targets.names not in ((), (NODE,)):
        yield f"it aims at chosen nodes (targets), and {NODE} is not one of them"
    during = plan.recover.fault_during
    for fault in sorted(plan.fault.types() | (during.types() if during else frozenset())):
        yield from _unfit_fault(fault, sight, may)
    yield from _unfit_repair(plan, may)


def _unfit_fault(fault: str, sight: Sight, may: Collection[str]) -> Iterator[str]:
    if fault in _MADE_OF_OTHERS:
        return
    if fault not in _NEEDS:
        yield f"fault {fault}: {_WHY_NEVER.get(fault, 'it needs more than one machine and its GPUs')}"
    elif missing := {*_NEEDS[fault]} - {*may}:
        yield f"fault {fault} changes a setting of the GPU; to allow that: --may {','.join(sorted({*may, *missing}))}"
    elif fault in _COMPUTE and not sight.computes:
        yield f"fault {fault} computes on the GPU, which needs CuPy and a GPU that the driver knows"


def _unfit_repair(plan: Plan, may: Collection[str]) -> Iterator[str]:
    repair = plan.recover.remediation
    if plan.recover.is_hands_off:
        yield "its node is repaired by the cluster, and nobody here may reset the GPU or boot the machine"
    elif repair == "gpu-reset" and RESET not in may:
        words = ",".join(sorted({*may, RESET}))
        yield f"its repair resets the GPU, and without that the node stays quarantined; to allow that: --may {words}"
    elif repair not in ("gpu-reset", NO_REMEDIATION):
        yield f"its repair, {repair}, would end this game-day with the machine"


def fitted(loaded: LoadedPlan, sight: Sight) -> tuple[LoadedPlan, list[str]]:
    """Return the plan as it is played here, and a sentence for each change."""
    yaml = YAML()
    yaml.width = 1000  # lines stay as they are
    document = yaml.load(loaded.source)
    changes = list(_changes(document, loaded.plan, sight))
    if not changes:
        return loaded, []
    text = io.BytesIO()
    text.write("".join(f"# Changed for this machine: {one}.\n" for one in changes).encode())
    yaml.dump(document, text)
    return parse_plan(text.getvalue(), str(loaded.file), parameter_models(), known_remediations()), changes


def _changes(document: Any, plan: Plan, sight: Sight) -> Iterator[str]:
    """Change the document, and yield what was changed and why."""
    # A plan without a quarantine, in which no job is resubmitted, may only get the taint from a detector's profile.
    if plan.expect.expects_quarantine or plan.names_detector:
        document["expect"].setdefault("workloads", {})["resubmitted_within"] = None
        yield "expect.workloads.resubmitted_within is null, because there is no other node for a job to go to"
    if plan.expect.workloads.running_pods != "any":
        document["expect"]["workloads"]["running_pods"] = "any"
        yield "expect.workloads.running_pods is any, because no job has pods here"
    qa = document.setdefault("qa", {})
    if plan.qa.burn_in and not sight.computes:
        qa["burn_in"] = None
        for key in plan.qa.floors.of_load():
            qa["floors"].pop(key)
        yield "qa.burn_in is null, because nothing can compute on the GPU"
    elif plan.qa.burn_in and plan.qa.burn_in > _LONGEST_BURN_IN:
        qa["burn_in"] = format_duration(_LONGEST_BURN_IN)
        yield f"qa.burn_in is {format_duration(_LONGEST_BURN_IN)} and not {format_duration(plan.qa.burn_in)}"
    for key, sampled, name in (("persistence", "persistence_mode", "persistence mode"), ("ecc", "ecc_mode", "ECC")):
        if getattr(plan.qa.floors, key) and not all(getattr(gpu, sampled) for gpu in sight.gpus):
            qa.setdefault("floors", {})[key] = None
            yield f"qa.floors.{key} is null, because {name} is not on here"

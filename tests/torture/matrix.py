"""Which blows fall where: every combination by name, so that any can be played again, and a seeded choice of them."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from typing import Any

from gameday.values.results import Step
from tests.game_days.conftest import QUICK
from tests.torture.proxy import Asked

Plan = dict[str, Any]

POWER_LIMIT_W = 650
"""Power limit of every lane's GPUs at the beginning. QA would not pass the maker's own by default."""
_QA = {**QUICK["qa"], "floors": {"power_limit_w": POWER_LIMIT_W}}
_QUIET: Plan = {
    **{key: value for key, value in QUICK.items() if key not in ("fault", "expect", "recover")},
    "expect": {
        "alerts": [],
        "taints": [],
        "stays_schedulable_for": "1s",
        "allow_other_alerts": True,
        "workloads": {"running_pods": "any"},
    },
    "recover": {"remediation": "none", "within": "30s"},
    "qa": _QA,
}
"""A plan that expects nothing: only what a run leaves behind is measured."""

PLANS: dict[str, Plan] = {
    "xid": {**QUICK, "qa": _QA, "fault": {"type": "xid", "xid": 95, "gpu": 0, "hold": "40s"}},
    "dcgm_field": {
        **_QUIET,
        "fault": {"type": "dcgm_field", "field": "DCGM_FI_DEV_XID_ERRORS", "value": 95, "gpu": 1, "hold": "40s"},
    },
    "dcgm_pause": {**_QUIET, "fault": {"type": "dcgm_pause", "hold": "40s"}},
    "power_cap": {**_QUIET, "fault": {"type": "power_cap", "watts": 300, "gpu": 3, "hold": "40s"}},
    "clock_lock": {**_QUIET, "fault": {"type": "clock_lock", "sm_clock_mhz": 510, "gpu": 0, "hold": "40s"}},
    "persistence_off": {**_QUIET, "fault": {"type": "persistence_off", "gpu": 3, "hold": "40s"}},
    "gpu_memory": {
        **_QUIET,
        "fault": {"type": "gpu_memory", "gpu": 3, "leave_mib": 1024, "hold": "40s"},
        "guardrails": {"max_duration": "3m", "allow_dangerous": ["gpu_memory"]},
    },
    "unit_stopped": {**_QUIET, "fault": {"type": "unit_stopped", "unit": "nvidia-dcgm-exporter", "hold": "40s"}},
    "kubelet_stopped": {
        **_QUIET,
        "fault": {"type": "critical_unit_stopped", "unit": "kubelet", "hold": "6s"},
        "guardrails": {"max_duration": "3m", "allow_dangerous": ["critical_unit_stopped"]},
    },
    "net_netem": {
        **_QUIET,
        "fault": {"type": "net_netem", "interface": "ib0", "delay": "50ms", "loss": "1%", "hold": "40s"},
    },
    "net_down": {
        **_QUIET,
        "fault": {"type": "net_interface_down", "interface": "ib0", "hold": "40s"},
        "guardrails": {"max_duration": "3m", "allow_dangerous": ["net_interface_down"]},
    },
    "nccl_conf": {**_QUIET, "fault": {"type": "nccl_conf", "variables": {"NCCL_P2P_DISABLE": 1}, "hold": "40s"}},
    "component_frozen": {**_QUIET, "fault": {"type": "component_frozen", "component": "device-plugin", "hold": "40s"}},
    "compound": {
        **_QUIET,
        "fault": {
            "type": "compound",
            "hold": "40s",
            "parts": [
                {"type": "power_cap", "watts": 300, "gpu": 3},
                {"type": "net_tbf", "interface": "ib0", "rate_mbit": 100},
                {"type": "component_frozen", "component": "dcgm-exporter"},
            ],
        },
    },
    "repeated": {
        **_QUIET,
        "fault": {
            "type": "repeated",
            "times": 10,
            "every": "4s",
            "hold": "40s",
            "fault": {"type": "clock_lock", "sm_clock_mhz": 510, "gpu": 0},
        },
    },
}
"""Plans by name, for every layer: kernel log, DCGM cache, NVML, hardware load, network, telemetry, node, and several
together."""

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGINT-twice")
UNDER_A_WORKER = ("prefect-cancel", "worker-gone", "flow-killed")
BLOWS = (*SIGNALS, *UNDER_A_WORKER, "prefect-gone", "api-restart", "agent-killed", "asleep", "asleep-killed")

STEPS = tuple(f"step:{step.name.lower()}" for step in Step)
_INTENTS = ("mark", "inject", "qa")
# Plans under which no agent samples NVML: the fault takes the node down, or shows on unused GPUs only.
_NOT_SAMPLED = ("kubelet_stopped", "persistence_off")
# Faults whose undo needs to know nothing of what was before.
_NOTHING_TO_LEARN = ("xid", "gpu_memory")
# Where an agent lives that can be killed.
_WITH_AGENT = ("act:mark", "act:inject", "learned:inject", "step:await_alert", "step:verify_taint", "act:qa")


@dataclass(frozen=True, order=True)
class Combination:
    plan: str
    blow: str
    place: str

    def __str__(self) -> str:
        return f"{self.plan}/{self.blow}/{self.place}"

    @classmethod
    def parse(cls, text: str) -> Combination:
        """Raises ValueError for what is none."""
        found = next((one for one in everything() if str(one) == text), None)
        if found is None:
            raise ValueError(f"no combination {text!r}; they are PLAN/BLOW/PLACE, e.g. {everything()[0]}")
        return found


def places(plan: str) -> tuple[str, ...]:
    """The steps, and around every intent: before it is written, between it and its act, after the act."""
    quarantined, remediated = bool(PLANS[plan]["expect"].get("taints")), plan == "xid"
    sampled = plan not in _NOT_SAMPLED
    intents = [
        *_INTENTS,
        *(["sample"] if sampled else []),
        *(["canary"] if quarantined else []),
        *(["remediate"] if remediated else []),
    ]
    return (
        *STEPS,
        "open:lease",
        *(f"{when}:{intent}" for intent in intents for when in ("before", "between", "act")),
        *(["between:resubmit", "act:resubmit"] if quarantined else []),
        *([] if plan in _NOTHING_TO_LEARN else ["learned:inject"]),
        "undo:inject",
        *(["undo:node"] if quarantined else []),
        "close:ledger",
    )


def everything() -> list[Combination]:
    return [
        Combination(plan, blow, place)
        for plan in PLANS
        for blow in BLOWS
        for place in places(plan)
        if blow != "agent-killed" or place in _WITH_AGENT
    ]


def chosen(seed: int, runs: int) -> list[Combination]:
    """A repeatable choice in which every plan and every blow come as evenly as `runs` allows."""
    dice = random.Random(seed)
    left = everything()
    dice.shuffle(left)
    taken: list[Combination] = []
    met: dict[str, int] = {}
    while left and len(taken) < runs:
        best = min(left, key=lambda one: met.get(one.blow, 0) + met.get(one.plan, 0) + met.get(_kind(one.place), 0))
        left.remove(best)
        taken.append(best)
        for key in (best.blow, best.plan, _kind(best.place)):
            met[key] = met.get(key, 0) + 1
    return taken


def _kind(place: str) -> str:
    return place.partition(":")[0]


def stops_at(place: str) -> tuple[Any, bool] | None:
    """(which request, whether with its answer in hand); None for a step, which the history shows."""
    when, _, what = place.partition(":")
    entry = re.compile(rf'"\d{{4}}-{what}(-0)?\.json"')

    def ledger(asked: Asked, *, learned: bool = False) -> bool:
        if "/configmaps" not in asked.path or not asked.writes or not entry.search(asked.body):
            return False
        texts = [
            text for key, text in (json.loads(asked.body).get("data") or {}).items() if entry.fullmatch(f'"{key}"')
        ]
        return any(bool(json.loads(text)["undo"].get("undo_state")) is learned for text in texts)

    def act(asked: Asked) -> bool:
        noun = "/jobs" if what == "resubmit" else "/pods"
        return asked.method == "POST" and asked.path.endswith(noun) and f"-{what}" in asked.body

    matches = {
        "before": ledger,
        "between": ledger,
        "act": act,
        "learned": lambda asked: ledger(asked, learned=True),
        "open": lambda asked: asked.writes and asked.path.endswith("/leases"),
        "undo": lambda asked: (
            asked.method == "PATCH" and "/nodes/" in asked.path
            if what == "node"
            else asked.method == "DELETE" and asked.path.endswith(f"-{what}")
        ),
        "close": lambda asked: asked.method == "DELETE" and "/configmaps/" in asked.path,
    }
    return None if when == "step" else (matches[when], when != "before")

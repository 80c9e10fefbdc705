"""The files that a rehearsal's cluster writes for others: for game-days, its own detectors, and people."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gameday.detectors.models import DetectorProfile
from gameday.faults.registry import parameter_models
from gameday_rehearsal.blueprint import Blueprint, ControlPlane, Detector
from gameday_rehearsal.folder import STATE
from gameday_rehearsal.guests.load import LoadedGuest
from gameday_rehearsal.guests.order import GuestOrder
from gameday_rehearsal.nodes.gpu_operator import RUNTIME_CLASS
from gameday_rehearsal.observability import ALERTMANAGER_USER


def write_profile(path: Path, blueprint: Blueprint, urls: Mapping[str, str], kubeconfig: Path) -> None:
    """Write the cluster profile of a started cluster.

    Args:
        path: The profile's file.
        blueprint: The cluster's choices.
        urls: The URL of each server of the cluster, by name.
        kubeconfig: The account for the profile's users.

    Raises:
        OSError: The file cannot be written.
    """
    name = "lab" if blueprint.control_plane is ControlPlane.LAB else "rehearsal"
    name = "this-machine" if blueprint.this_machine else name
    profile: dict[str, Any] = {
        "name": name,
        # UID and port are new each time, but runs should stay comparable.
        "identity": f"gameday-{name}",
        "rehearsal": str(blueprint.folder),
        "kubeconfig": str(kubeconfig),
        "this_machine": blueprint.this_machine is not None and blueprint.this_machine.has_gpus,
        # No fault can do harm to virtual nodes.
        "allow_dangerous": sorted(blueprint.this_machine.faults if blueprint.this_machine else parameter_models()),
        "agent_image": "ghcr.io/gpu-gameday/agent:rehearsal",
        "quarantine_taint_keys": blueprint.quarantine_keys,
        "prometheus_node_label": blueprint.exporter.node_label,
        **{server: {"url": urls[server]} for server in ("prometheus", "loki")},
        "alertmanager": {
            "url": urls["alertmanager"],
            "username": ALERTMANAGER_USER,
            "password_file": str(blueprint.alertmanager_password_file),
        },
    }
    if blueprint.gpu_operator.runtime_classes:
        profile["agent_runtime_class"] = RUNTIME_CLASS
    if blueprint.lab_control:
        profile["lab_control"] = str(blueprint.lab_control)
    profile |= _detector_entries(blueprint, urls)
    if blueprint.lab.api_server_memory:
        # An API server that is killed for its memory fails our own requests, too. A real cluster is spared that by
        # this limit; here it is what the plan wants to see.
        profile["guardrails"] = {"max_api_error_percent": 100}
    _write_yaml(path, profile)


def _detector_entries(blueprint: Blueprint, urls: Mapping[str, str]) -> dict[str, Any]:
    """Return the profile's keys about a detector other than ours; none if ours watches."""
    if blueprint.guest:
        shown = blueprint.guest.guest.model_dump(include={"name", "version", "says"})
        entries: dict[str, Any] = {"guest": {**shown, "url": urls["guests"]}}
        if blueprint.guest.profile:
            entries["detector"] = str(blueprint.guest.profile_file or blueprint.guest.profile.name)
        return entries
    if blueprint.fake_detector:
        return {"detector": blueprint.fake_detector.name, "detector_profiles": [str(blueprint.detector_profiles)]}
    return {"detector": "konduktor"} if blueprint.detector is Detector.KONDUKTOR else {}


def write_detector_profile(folder: Path, detector: DetectorProfile) -> Path:
    """Make the folder, write into it the profile of the detector that a stand-in plays, and return the file.

    Raises OSError if the folder exists or cannot be written.
    """
    folder.mkdir()
    path = folder / f"{detector.name}.yaml"
    _write_yaml(path, detector.model_dump(mode="json", exclude_unset=True))
    return path


def write_guest_order(outputs: Path, loaded: LoadedGuest, urls: Mapping[str, str], kubeconfig: Path) -> Path:
    """Write the file with which the nodes start a guest, and return it.

    Args:
        outputs: A new folder, readable only for us, for this file and the guest's output.
        loaded: The guest.
        urls: The URLs of `loki` and `prometheus`, among others.
        kubeconfig: The guest's account.

    Raises:
        OSError: The folder exists or cannot be written.
    """
    outputs.mkdir(mode=0o700)
    order = GuestOrder(
        guest=loaded.guest,
        folder=loaded.folder,
        outputs=outputs,
        kubeconfig=kubeconfig,
        loki_url=urls["loki"],
        prometheus_url=urls["prometheus"],
    )
    file = outputs / "guest.json"
    file.write_text(order.model_dump_json(indent=1), encoding="utf-8")
    return file


def write_state(blueprint: Blueprint, urls: Mapping[str, str], kube_state_metrics: str) -> None:
    """Write the file that `gameday rehearsal status` shows.

    Args:
        blueprint: The cluster's choices.
        urls: The URL of each server of the cluster, by name.
        kube_state_metrics: The program that plays kube-state-metrics, if that is scraped.

    Raises:
        OSError: The file cannot be written.
    """
    state = {
        "pid": os.getpid(),
        "kubeconfig": str(blueprint.admin_kubeconfig),
        "profile": str(blueprint.profile),
        "urls": urls,
        "nodes": blueprint.size.nodes,
        "gpus": blueprint.size.gpus,
        "detector": blueprint.watcher,
        "control_plane": blueprint.control_plane,
        "kube_state_metrics": kube_state_metrics if blueprint.has_kube_state_metrics else None,
        "gpu_operator": blueprint.gpu_operator,
    }
    (blueprint.folder / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")


def _write_yaml(path: Path, content: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(content, file)

"""The choices that make a rehearsal's cluster, as one value, and what follows from them before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gameday.cluster.lab_control import SOCKET
from gameday.cluster.profile import ClusterProfile
from gameday.detectors.models import DetectorProfile
from gameday.guests.load import LoadedGuest
from gameday.rehearsal.folder import ALERTMANAGER_PASSWORD
from gameday.rehearsal.lab.settings import STOCK, LabSettings
from gameday.rehearsal.nodes.exporter_release import ExporterRelease
from gameday.rehearsal.nodes.gpu_operator import GpuOperator
from gameday.rehearsal.slow_gpus import SlowGpu

OFFENDER = "gpu-node-2"
"""The repeat offender: the first node without the log store."""
WEAKLY_COOLED = "gpu-node-1"
"""The node whose last GPU gets too little air, if there is one."""


class ControlPlane(StrEnum):
    """The control plane (API server, scheduler, controllers) that the nodes join."""

    EMBEDDED = "embedded"
    """Our own stand-in, which starts in a second and needs nothing installed."""
    LAB = "lab"
    """Kubernetes' own programs and etcd, as `make lab` builds them."""


class Detector(StrEnum):
    """The detector that watches the rehearsal's kernel logs."""

    DEFAULT = "default"
    KONDUKTOR = "konduktor"
    """Konduktor as released: our controller under its policy takes its part. It has no metrics, so none are scraped."""
    CONSERVATIVE = "conservative"
    OFF = "off"


@dataclass(frozen=True)
class Size:
    nodes: int = 8
    gpus: int = 8
    spare: int = 0
    """Number of nodes that are left free of training work, so that pods that many game-days evict together find
    room."""
    hold_outs: int = 0
    """Number of the nodes that are spares of the hold-out pool."""
    client_nodes: int = 0
    """Number of nodes without GPUs besides, for API clients."""
    offender: bool = False
    """True for a cluster with a node that was repaired and returned again and again within a day."""
    weakly_cooled: bool = False
    """True for a cluster with a node whose last GPU gets too little air for full load."""
    slow_gpus: tuple[SlowGpu, ...] = ()
    """GPUs that compute more slowly than the others."""
    gpu_classes: bool = False
    """True for a cluster whose nodes have labels of GPU classes: the last quarter is fast, the first node slow."""

    @property
    def all_nodes(self) -> int:
        """The number of nodes with GPUs and without."""
        return self.nodes + self.client_nodes


@dataclass(frozen=True)
class Blueprint:
    """The choices that make a rehearsal's cluster, and the places of its files."""

    folder: Path
    """Folder for kubeconfigs, profiles and logs."""
    size: Size
    detector: Detector
    """The policy of our node-health controller."""
    control_plane: ControlPlane = ControlPlane.EMBEDDED
    lab: LabSettings = STOCK
    """The settings of `ControlPlane.LAB`."""
    prefect: bool = True
    """True for a cluster with a Prefect server."""
    prefect_port: int = 0
    """Port of Prefect's pages, or the next one that is free; 0: any."""
    fake_detector: DetectorProfile | None = None
    """The profile of a foreign detector, which a stand-in plays beside `detector`."""
    repair: bool = False
    """True for a cluster whose quarantined nodes are repaired and given back, by our repairer (which needs Prefect) or
    by the stand-in."""
    exporter: ExporterRelease = ExporterRelease.CODED
    """The release of dcgm-exporter that the nodes' metrics are written like."""
    kernel_logs: Path | None = None
    """The folder that gets each node's kernel log and GPUs as files; None: in `folder` for a guest, else nowhere."""
    guest: LoadedGuest | None = None
    """The real detector that watches, beside `detector`."""
    kube_state_metrics: bool | None = None
    """True if kube-state-metrics is scraped; None: if a detector other than ours watches, whose work no other
    metrics show."""
    gpu_operator: GpuOperator = GpuOperator.NONE
    """The way in which containers come by GPUs, and whether the GPU operator's pods keep GPUs open."""

    @property
    def profile(self) -> Path:
        """The file of the cluster profile that game-days are given."""
        return self.folder / "profile.yaml"

    @property
    def credentials(self) -> Path:
        """The folder of the control plane's certificates and kubeconfigs."""
        return self.folder / "control-plane"

    @property
    def admin_kubeconfig(self) -> Path:
        """The kubeconfig that may do everything."""
        return self.credentials / "admin.kubeconfig"

    @property
    def alertmanager_password_file(self) -> Path:
        """The file with the password that the cluster's Alertmanager asks for."""
        return self.folder / ALERTMANAGER_PASSWORD

    @property
    def detector_profiles(self) -> Path:
        """The folder with the profile of the detector that a stand-in plays."""
        return self.folder / "detectors"

    @property
    def lab_control(self) -> Path | None:
        """The lab's control socket; None if the control plane is another one."""
        return self.credentials / SOCKET if self.control_plane is ControlPlane.LAB else None

    @property
    def kernel_log_folder(self) -> Path | None:
        """The folder that gets each node's kernel log and GPUs as files; None: nobody needs them."""
        return self.kernel_logs or (self.folder / "kernel-logs" if self.guest else None)

    @property
    def has_controller(self) -> bool:
        """True if our own node-health controller runs, under whichever policy."""
        return self.detector is not Detector.OFF

    @property
    def has_repairer(self) -> bool:
        """True if our own repairer runs; a stand-in repairs by itself."""
        return self.repair and self.has_controller

    @property
    def has_other_detector(self) -> bool:
        """True if a detector other than ours watches, in our controller's place."""
        return self._has_foreign_detector and self.detector in (Detector.KONDUKTOR, Detector.OFF)

    @property
    def has_kube_state_metrics(self) -> bool:
        """True if kube-state-metrics is scraped."""
        return self._has_foreign_detector if self.kube_state_metrics is None else self.kube_state_metrics

    @property
    def _has_foreign_detector(self) -> bool:
        return bool(self.guest or self.fake_detector) or self.detector is Detector.KONDUKTOR

    @property
    def watcher(self) -> str:
        """The detector in words."""
        if self.guest:
            return f"{self.guest.guest.name} (guest)"
        return f"{self.fake_detector.name} (stand-in)" if self.fake_detector else self.detector

    @property
    def quarantine_keys(self) -> list[str]:
        """The keys of the taints that quarantine a node here: the default ones, and those of a foreign detector."""
        own: tuple[str, ...] = ClusterProfile.model_fields["quarantine_taint_keys"].default
        foreign = self.guest.profile if self.guest else self.fake_detector
        rules = foreign.rules if foreign else ()
        return list(dict.fromkeys((*own, *(taint.key for rule in rules for taint in rule.taints))))

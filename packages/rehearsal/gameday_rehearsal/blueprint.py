"""The choices that make a rehearsal's cluster, as one value, and everything that follows from them before the start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gameday.cluster.lab_control import SOCKET
from gameday.cluster.profile import ClusterProfile
from gameday.detectors.models import DetectorProfile
from gameday_rehearsal.folder import ALERTMANAGER_PASSWORD
from gameday_rehearsal.guests.load import LoadedGuest
from gameday_rehearsal.lab.settings import STOCK, LabSettings
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.gpu_operator import GpuOperator
from gameday_rehearsal.slow_gpus import SlowGpu

OFFENDER = "gpu-node-2"
"""The repeat offender: the first node without the log store."""
WEAKLY_COOLED = "gpu-node-1"
"""The node with a last GPU that gets too little air, if there is one."""


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
    """Konduktor as released, played by our controller under its policy. It has no metrics, so none are scraped."""
    CONSERVATIVE = "conservative"
    OFF = "off"


@dataclass(frozen=True)
class Size:
    nodes: int = 8
    gpus: int = 8
    spare: int = 0
    """Number of nodes left free of training work, so that pods that many game-days evict together find room."""
    hold_outs: int = 0
    """Number of nodes that are spares of the hold-out pool."""
    client_nodes: int = 0
    """Number of further nodes without GPUs, for API clients."""
    offender: bool = False
    """True for a cluster with a node that was repaired and returned several times within a day."""
    weakly_cooled: bool = False
    """True for a cluster with a node on which the last GPU gets too little air for full load."""
    slow_gpus: tuple[SlowGpu, ...] = ()
    """GPUs that compute more slowly than the others."""
    gpu_classes: bool = False
    """True for a cluster with nodes that have labels of GPU classes: the last quarter is fast, the first node slow."""

    @property
    def all_nodes(self) -> int:
        """The number of nodes with and without GPUs."""
        return self.nodes + self.client_nodes


@dataclass(frozen=True)
class MachineUse:
    """The use that a game-day makes of the machine which is the cluster's only node."""

    faults: tuple[str, ...] = ()
    """Types of the faults that the machine's owner lets it take, dangerous ones too."""
    has_gpus: bool = False
    """True if the driver knows the GPUs; False if only a mock NVML shows them."""
    resets_gpu: bool = False
    """True if a GPU will be reset: nobody may hold NVML open then."""


@dataclass(frozen=True)
class Blueprint:
    """The choices that make a rehearsal's cluster, and where its files are."""

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
    """The profile of a foreign detector that a stand-in plays beside `detector`."""
    repair: bool = False
    """True for a cluster in which quarantined nodes are repaired and given back, by our repairer (which needs Prefect)
    or by the stand-in.
    """
    exporter: ExporterRelease = ExporterRelease.CODED
    """The release of dcgm-exporter that the nodes' metrics follow."""
    kernel_logs: Path | None = None
    """Folder that gets each node's kernel log and GPUs as files; None: in `folder` for a guest, else nowhere."""
    guest: LoadedGuest | None = None
    """The real detector that watches, beside `detector`."""
    kube_state_metrics: bool | None = None
    """True if kube-state-metrics is scraped; None to scrape it if a detector other than ours watches, because no other
    metrics show its work.
    """
    gpu_operator: GpuOperator = GpuOperator.NONE
    """The way in which containers get GPUs, and if the GPU operator's pods keep GPUs open."""
    this_machine: MachineUse | None = None
    """The use of this machine, if it is the only node; None for virtual nodes."""

    @property
    def profile(self) -> Path:
        """File of the cluster profile for game-days."""
        return self.folder / "profile.yaml"

    @property
    def credentials(self) -> Path:
        """Folder of the control plane's certificates and kubeconfigs."""
        return self.folder / "control-plane"

    @property
    def admin_kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.credentials / "admin.kubeconfig"

    @property
    def alertmanager_password_file(self) -> Path:
        """File with the password that the cluster's Alertmanager asks for."""
        return self.folder / ALERTMANAGER_PASSWORD

    @property
    def detector_profiles(self) -> Path:
        """Folder with the profile of the detector that a stand-in plays."""
        return self.folder / "detectors"

    @property
    def lab_control(self) -> Path | None:
        """The lab's control socket; None without a lab."""
        return self.credentials / SOCKET if self.control_plane is ControlPlane.LAB else None

    @property
    def kernel_log_folder(self) -> Path | None:
        """Folder that gets each node's kernel log and GPUs as files; None if nobody needs them."""
        return self.kernel_logs or (self.folder / "kernel-logs" if self.guest else None)

    @property
    def has_controller(self) -> bool:
        """True if our own node-health controller runs, under any policy."""
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
        """Keys of the taints that quarantine a node here: the default ones, and those of a foreign detector."""
        own: tuple[str, ...] = ClusterProfile.model_fields["quarantine_taint_keys"].default
        foreign = self.guest.profile if self.guest else self.fake_detector
        rules = foreign.rules if foreign else ()
        return list(dict.fromkeys((*own, *(taint.key for rule in rules for taint in rule.taints))))

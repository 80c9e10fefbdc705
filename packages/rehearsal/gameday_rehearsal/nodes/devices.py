"""The part of a kubelet and a DRA driver that decides which container gets which GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gameday.errors import ClaimError, PodRejectedError
from gameday.host.cpus import parse_cpus
from gameday_rehearsal.nodes.numa import CPUS_OF_NODE, numa_node

RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True)
class GpuHolder:
    uid: str
    namespace: str
    pod: str
    container: str


class GpuDevices:
    """A node's GPUs; `healthy` says which the driver still serves, `changed` gets each hand-over."""

    def __init__(
        self,
        count: int,
        healthy: Callable[[int], bool],
        changed: Callable[[int, GpuHolder | None], None],
    ) -> None:
        self.count = count
        self._healthy = healthy
        self._changed = changed
        self._holders: dict[int, GpuHolder] = {}

    @property
    def allocatable(self) -> int:
        return sum(self._healthy(gpu) for gpu in range(self.count))

    def is_healthy(self, gpu: int) -> bool:
        """Return True if the driver still serves this GPU."""
        return self._healthy(gpu)

    def holder(self, gpu: int) -> GpuHolder | None:
        return self._holders.get(gpu)

    def held_by(self, uid: str) -> list[int]:
        return sorted(gpu for gpu, holder in self._holders.items() if holder.uid == uid)

    def allocate(self, wants: Sequence[tuple[GpuHolder, int]], exclusive_cpus: Mapping[str, int] | None = None) -> None:
        """Give every container its GPUs, the lowest free ones, or none at all. Raises PodRejectedError.

        `exclusive_cpus` is the number of CPUs that each container gets for itself, if the Topology Manager's policy is
        single-numa-node; None if its policy is none.
        """
        total = sum(number for _, number in wants)
        if not total:
            return
        usable = [gpu for gpu in range(self.count) if self._healthy(gpu)]
        free = [gpu for gpu in usable if gpu not in self._holders]
        if exclusive_cpus is not None:
            free = self._aligned(wants, exclusive_cpus, free)
        if total > len(usable):
            # The kubelet's own check (lifecycle/predicate.go): more than the node ever has.
            raise PodRejectedError(
                f"OutOf{RESOURCE}",
                f"Node didn't have enough resource: {RESOURCE}, requested: {total}, "
                f"used: {len(self._holders)}, capacity: {len(usable)}",
            )
        if total > len(free):
            # The device manager's refusal (cm/devicemanager): enough in total, but not enough free.
            raise PodRejectedError(
                "UnexpectedAdmissionError",
                f"Allocate failed due to requested number of devices unavailable for {RESOURCE}. "
                f"Requested: {total}, Available: {len(free)}, which is unexpected",
            )
        for holder, number in wants:
            for _ in range(number):
                self._set(free.pop(0), holder)

    def _aligned(
        self, wants: Sequence[tuple[GpuHolder, int]], exclusive_cpus: Mapping[str, int], free: Sequence[int]
    ) -> list[int]:
        """Return GPUs for one container after the other, each container's from one NUMA node, as in scope `container`.

        Exclusive CPUs of other pods are not counted. Raises PodRejectedError with the kubelet's message
        (cm/topologymanager).
        """
        chosen: list[int] = []
        for holder, number in wants:
            cpus = exclusive_cpus.get(holder.container, 0)
            for node, listed in CPUS_OF_NODE.items():
                near = [gpu for gpu in free if gpu not in chosen and numa_node(gpu, self.count) == node]
                if len(near) >= number and len(parse_cpus(listed)) >= cpus:
                    chosen += near[:number]
                    break
            else:
                raise PodRejectedError("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
        return chosen

    def give(self, wants: Sequence[tuple[GpuHolder, Sequence[int]]]) -> None:
        """Give every container exactly these GPUs, or none at all. Raises ClaimError if another pod has one.

        Two pods cannot share a claim here: in the model each GPU has one holder.
        """
        for holder, gpus in wants:
            for gpu in gpus:
                other = self._holders.get(gpu)
                if other and other.uid != holder.uid:
                    raise ClaimError(f"GPU {gpu} is still with pod {other.namespace}/{other.pod}")
        for holder, gpus in wants:
            for gpu in gpus:
                self._set(gpu, holder)

    def release(self, uid: str) -> None:
        for gpu in self.held_by(uid):
            self._set(gpu, None)

    def _set(self, gpu: int, holder: GpuHolder | None) -> None:
        if holder:
            self._holders[gpu] = holder
        else:
            self._holders.pop(gpu, None)
        self._changed(gpu, holder)

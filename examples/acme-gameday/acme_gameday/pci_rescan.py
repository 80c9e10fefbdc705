"""A rescan of the PCI bus, which brings back a GPU that was taken off it."""

from gameday import Host, HostError, PodSecurity, Remediation


class PciRescan(Remediation):
    """Writes 1 to the bus's rescan file, and looks for the GPU."""

    name = "pci-rescan"
    summary = "Rescans the PCI bus"
    security = PodSecurity(privileged=True, host_pid=True, why="it writes the host's sysfs and asks NVML")

    def repair(self, gpu: int | None, host: Host, lines: list[str]) -> None:
        host.write_file("/sys/bus/pci/rescan", "1")
        found = [sample.index for sample in host.gpus() if not sample.lost]
        lines.append(f"after the rescan these GPUs answer: {found}")
        if gpu is not None and gpu not in found:
            raise HostError(f"GPU {gpu} does not answer after the rescan; use remediation: reboot")

"""A node that loses what programs write to its kernel log, as printk.devkmsg=off on its command line does."""

from datetime import UTC, datetime
from typing import Literal

from gameday import Claim, Evidence, Fault, FaultParameters, Host, HostError, Layer, PodSecurity

PATH = "/proc/sys/kernel/printk_devkmsg"


class DevkmsgOffParameters(FaultParameters):
    type: Literal["devkmsg_off"] = "devkmsg_off"


class DevkmsgOffFault(Fault[DevkmsgOffParameters]):
    """Sets printk_devkmsg to off, and back to what it was."""

    parameters = DevkmsgOffParameters
    layer = Layer.TELEMETRY
    summary = "Lets nobody open /dev/kmsg, and mutes those who have it open"
    does_not_reach = "the kernel's own lines, NVIDIA's driver among them, and who reads them already"
    seen_by = ("nobody by default",)
    security = PodSecurity(privileged=True, host_pid=True, why="it writes the host's /proc/sys")

    def claims(self, parameters: DevkmsgOffParameters) -> tuple[Claim, ...]:
        return (Claim(PATH),)

    def prior_state(self, parameters: DevkmsgOffParameters, gpu: int, host: Host) -> dict[str, str]:
        before = host.read_file(PATH).strip()
        if before == "off":
            raise HostError(f"{PATH} is off already: there is nothing to mute")
        return {"before": before}

    def inject(self, parameters: DevkmsgOffParameters, gpu: int, host: Host) -> Evidence:
        state = self.prior_state(parameters, gpu, host)
        written_at = datetime.now(UTC)
        host.write_file(PATH, "off\n")
        if (now := host.read_file(PATH).strip()) != "off":
            raise HostError(f"{PATH} is {now} after off was written")
        return Evidence(lines=(f"{PATH}: {state['before']} -> off",), written_at=written_at, undo_state=state)

    def undo(self, parameters: DevkmsgOffParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        if "before" not in undo_state:
            return Evidence(lines=(f"{PATH} was not touched",))
        host.write_file(PATH, undo_state["before"] + "\n")
        return Evidence(lines=(f"{PATH}: {undo_state['before']} written",))

    def verify_undone(self, parameters: DevkmsgOffParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return "before" not in undo_state or host.read_file(PATH).strip() == undo_state["before"]

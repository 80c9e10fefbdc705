"""The fault that writes given lines, on a host in memory."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gameday.errors import HostError
from gameday.faults.kernel_lines import KernelLinesFault, KernelLinesParameters
from tests.host.fake import FakeHost

FAULT = KernelLinesFault()
XID = "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
SWITCH = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20009, Non-fatal, Link 04 RX Short Error Rate"


def of(*lines: str) -> KernelLinesParameters:
    return KernelLinesParameters(lines=lines)


def test_the_lines_are_written_in_order_about_the_chosen_gpu_and_a_switch_keeps_its_address() -> None:
    host = FakeHost()
    evidence = FAULT.inject(of(XID, SWITCH), 0, host)
    pci = host.gpus()[0].pci_bus_id
    assert [line[15:] for line in host.log] == [XID.replace("0009:01:00", pci), SWITCH]
    assert evidence.written_at and len(evidence.lines) == 6
    assert "nothing to undo" in FAULT.undo(of(XID), 0, host, {}).lines[0]
    assert FAULT.verify_undone(of(XID), 0, host, {})


def test_a_swallowed_write_is_an_error() -> None:
    host = FakeHost()
    host.write_kernel_log = lambda record: None  # type: ignore[method-assign]
    with pytest.raises(HostError, match="found 0 new"):
        FAULT.inject(of(SWITCH), 0, host)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "at least 1"),
        ([SWITCH] * 11, "at most 10"),
        (["NVRM: a\nNVRM: b"], "printable"),
        ([" NVRM: indented"], "without blanks"),
        (["x" * 974], "976 bytes"),
        (["gameday-agent: GPU reset executed: PCI:0000:03:00, success: true"], "note of ours"),
    ],
)
def test_lines_that_the_log_or_the_controller_would_misread_are_refused(lines: list[str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        of(*lines)

"""Every documented form of an Xid and SXid line is read, and hostile lines do no harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.xid.catalogue import xids
from gameday.xid.lines import Form, Kind, Severity, format_xid, recognise
from gameday.xid.record import MAX_LINE_CHARACTERS

LOST = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "line",
    [
        LOST,
        "kernel: " + LOST,
        "<3>kernel: " + LOST,
        "[6085126.134786] " + LOST,
        "[  123.456789] kernel: " + LOST,
        "kern  :err   : [12.000001] " + LOST,
        "[  1.0] [6085126.134786] " + LOST,
        "Jan  1 00:00:00 n1 kernel: " + LOST,
        "NVRM: Xid (PCI:0000:4e:00.0): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:4E:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:00000000:4E:00.0): 79, GPU has fallen off the bus.",
        "NVRM: Xid (0000:4e:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:4e:00): 79 GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:4e:00): 79",
        "NVRM: Xid (PCI:0000:4e:00 GPU-I:01): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:4e:00 GPU-I:01 GPU-CI:00): 79, pid=12, name=python3, GPU has fallen off the bus.",
        "\x1b[31m" + LOST + "\x1b[0m",
        LOST.replace(" ", "\t", 0) + "\r\n",
    ],
)
def test_an_xid_is_read_in_every_form(line: str) -> None:
    event = recognise(line)
    assert event is not None
    assert (event.kind, event.code, event.pci) == (Kind.XID, 79, "0000:4e:00")
    assert recognise(line.encode()) == event


def test_process_instances_and_stamp_of_an_xid_line_are_read() -> None:
    mig = recognise("NVRM: Xid (PCI:0000:4e:00 GPU-I:01 GPU-CI:00): 13, pid=1234, name=nvc:[driver], Graphics SM")
    assert mig is not None
    assert (mig.gpu_instance, mig.compute_instance, mig.pid, mig.process) == (1, 0, 1234, "nvc:[driver]")
    assert mig.text == "Graphics SM"
    old = recognise("NVRM: Xid (0000:03:00): 14, Channel 00000001")
    assert old is not None
    assert (old.code, old.pci, old.text, old.pid) == (14, "0000:03:00", "Channel 00000001", None)
    stamped = recognise("[  123.456] " + LOST)
    assert stamped is not None and stamped.uptime_s == 123.456
    unknown = recognise(LOST)
    assert unknown is not None and (unknown.pid, unknown.process) == (None, None)


@pytest.mark.parametrize("tail", ["pid=1234, Ch 00000008", "pid='1234', Ch 00000008", "pid=1234 Ch 00000008"])
def test_a_process_id_without_a_name_is_read(tail: str) -> None:
    event = recognise(f"NVRM: Xid (PCI:0000:4e:00): 31, {tail}")
    assert event is not None
    assert (event.pid, event.process, event.text) == (1234, None, "Ch 00000008")


def test_a_process_id_that_no_process_has_stays_in_the_text() -> None:
    event = recognise("NVRM: Xid (PCI:0000:4e:00): 31, pid=12345678901, Ch 00000008")
    assert event is not None
    assert (event.pid, event.text) == (None, "pid=12345678901, Ch 00000008")


def test_recovery_action_and_nvlink5_fields_are_read() -> None:
    line = format_xid(154, "0000:1b:00")
    event = recognise(line)
    assert event is not None and event.recovery == "GPU Reset Required"
    nvlink = recognise(
        "NVRM: Xid (PCI:0008:01:00): 145, RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x80000000 0x0 0x0)"
    )
    assert nvlink is not None
    assert (nvlink.unit, nvlink.severity, nvlink.link) == ("RLW_REMAP", Severity.NON_FATAL, 10)
    assert nvlink.error_status == 0x80000000


def test_any_run_of_blanks_separates_the_fields_of_an_nvlink5_line() -> None:
    event = recognise(
        "NVRM: Xid (PCI:0000:4e:00): 150, MSE \t Degraded \t\t   Fatal      XC0   i0   Link    07   (0x1    0xffffffff)"
    )
    assert event is not None
    assert (event.unit, event.severity, event.link) == ("MSE Degraded", Severity.FATAL, 7)
    assert event.error_status == 0xFFFFFFFF


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize(
    ("code", "severity"),
    [(144, Severity.FATAL), (145, Severity.NON_FATAL), (146, Severity.FATAL), (147, Severity.NON_FATAL),
     (148, Severity.NON_FATAL), (149, Severity.FATAL), (150, Severity.FATAL)],
)  # fmt: skip
def test_an_nvlink5_line_that_we_write_is_read_with_its_severity(code: int, severity: Severity, form: Form) -> None:
    event = recognise(format_xid(code, "0000:4e:00", form))
    assert event is not None
    assert (event.code, event.severity) == (code, severity)


@pytest.mark.parametrize(
    ("line", "code", "severity", "link"),
    [
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
            12028,
            Severity.NON_FATAL,
            32,
        ),
        (
            "kernel: nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            20034,
            Severity.FATAL,
            30,
        ),
        ("[9.5] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10003, Fatal, Host_unhandled", 10003, Severity.FATAL, None),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 22013, Link 3 Minion", 22013, None, 3),
    ],
)
def test_an_sxid_is_read_with_and_without_link(line: str, code: int, severity: Severity | None, link: int) -> None:
    event = recognise(line)
    assert event is not None
    assert (event.kind, event.code, event.severity, event.link) == (Kind.SXID, code, severity, link)
    assert event.pci == "0000:c1:00"


def test_follow_up_lines_of_an_sxid_are_details_only() -> None:
    for tail in ("Severity 1 Engine instance 30 Sub-engine instance 00", "Data {0x00000001, 0x00000001}"):
        event = recognise(f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, {tail}")
        assert event is not None and event.detail_only


@pytest.mark.parametrize(
    ("line", "pci"),
    [
        ("NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.", "0000:4e:00"),
        ("NVRM: GPU at PCI:0000:4e:00 has fallen off the bus.", "0000:4e:00"),
        ("NVRM: The NVIDIA GPU 0000:4e:00.0 has fallen off the bus and is not responding to commands.", "0000:4e:00"),
        ("NVRM: GPU 18:00.0: GPU has fallen off the bus.", "0000:18:00"),
        ("NVRM: GPU at PCI:18:00 has fallen off the bus.", "0000:18:00"),
        ("NVRM: fallen off the bus and is not responding to commands.", None),
    ],
)
def test_a_lost_gpu_is_recognised_without_an_xid(line: str, pci: str | None) -> None:
    event = recognise("[1.5] " + line)
    assert event is not None
    assert (event.kind, event.code, event.pci) == (Kind.GPU_LOST, 79, pci)


def test_a_peermem_error_and_a_gpu_reset_are_recognised() -> None:
    peermem = recognise(
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
    )
    assert peermem is not None and peermem.kind is Kind.PEERMEM
    reset = recognise("[8.0] gameday-agent: GPU reset executed: PCI:0000:4e:00, success: true")
    assert reset is not None and (reset.kind, reset.pci, reset.success) == (Kind.GPU_RESET, "0000:4e:00", True)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "NVRM: GPU at PCI:0000:4e:00: GPU-7f3c",
        "the bicycle has fallen off the bus",
        LOST.removeprefix("NVRM: "),  # the driver's tracepoint, and what journald leaves of a bare injected line
        "SXid (PCI:0000:c1:00.0): 22013, Link 3 Minion",
        "NVRM: Xid (somewhere): many",
        "gameday: marker 0123abcd",
        "[90001.250000] gameday: beat",
        "[12.5] kernel: gameday: marker NVRM: Xid (PCI:0000:4e:00): 79, x",
        "<6>gameday: marker 0123abcd",
    ],
)
def test_other_lines_are_not_recognised(line: str) -> None:
    assert recognise(line) is None


def test_a_line_in_an_undocumented_form_is_an_event_without_a_code() -> None:
    event = recognise("NVRM: Xid (PCI:0000:4e:00): many")
    assert event is not None and (event.kind, event.code) == (Kind.XID, None)


@given(st.one_of(st.text(), st.binary()))
def test_no_input_raises(line: str | bytes) -> None:
    recognise(line)


@given(
    st.lists(
        st.sampled_from(
            ["NVRM: ", "Xid (", "SXid (", "PCI:", "0000:4e:00", ".0", " GPU-I:01", "): ", "79", ", ", "pid=", "name=",
             "Fatal", "Non-fatal", " Link ", "[1.5]", "\x1b[", "\x00", "\udcff", "fallen off the bus", "154, ", "(0x1 "]
        ),
        max_size=40,
    )
)  # fmt: skip
def test_no_scrambled_line_raises(parts: list[str]) -> None:
    event = recognise("".join(parts))
    assert event is None or len(event.line) <= MAX_LINE_CHARACTERS


def test_a_megabyte_is_cut_before_it_is_read() -> None:
    for filler in ("NVRM: Xid (PCI:", "SXid (", "GPU at ", "\x1b[0;0;0;", "[", "recovery action changed from "):
        event = recognise(LOST + filler * (1_000_000 // len(filler)))
        assert event is not None and event.code == 79
        recognise(filler * (1_000_000 // len(filler)))


@given(st.sampled_from(sorted(xids())), st.sampled_from(Form), st.integers(0, 0xFFFF), st.integers(0, 0xFF))
def test_a_written_line_is_read_back(code: int, form: Form, domain: int, bus: int) -> None:
    pci = f"{domain:04x}:{bus:02x}:00"
    event = recognise(format_xid(code, pci, form))
    assert event is not None
    assert (event.kind, event.code, event.pci) == (Kind.XID, code, pci)
    assert (event.gpu_instance is not None) == (form is Form.MIG)


def test_the_default_line_is_the_drivers_own() -> None:
    assert format_xid(79, "0000:4e:00") == "kernel: " + LOST
    assert format_xid(79, "0000:4e:00", Form.BARE) == LOST
    assert format_xid(14, "0000:03:00", Form.OLD) == "NVRM: Xid (0000:03:00): 14, Channel 00000001"


@pytest.mark.parametrize(
    ("code", "pci", "text"),
    [(79, "4e:00", None), (79, "0000:4E:00", None), (0, "0000:4e:00", None), (79, "0000:4e:00", "a\nb"),
     (79, "0000:4e:00", "x" * 1000)],
)  # fmt: skip
def test_a_line_that_the_kernel_log_cannot_carry_is_refused(code: int, pci: str, text: str | None) -> None:
    with pytest.raises(ValueError, match=r"PCI id|codes lie|printable|kernel log takes"):
        format_xid(code, pci, text=text)

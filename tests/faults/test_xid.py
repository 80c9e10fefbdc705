"""The Xid fault on a host in memory."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gameday.errors import HostError
from gameday.faults.xid import XidFault, XidParameters
from gameday.xid.catalogue import xids
from gameday.xid.lines import Form, recognise
from tests.host.fake import FakeHost


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("xid", [13, 48, 79, 119, 149, 154, 999])
def test_the_line_is_in_the_log_and_names_the_gpu(form: Form, xid: int) -> None:
    host = FakeHost()
    evidence = XidFault().inject(XidParameters(xid=xid, form=form), 1, host)
    (line,) = host.log
    event = recognise(line)
    assert event
    assert (event.code, event.pci) == (xid, host.samples[1].pci_bus_id)
    assert evidence.written_at
    assert [part.split(":")[0].split(" ")[0] for part in evidence.lines] == ["before", "written", "after"]
    assert line.split("] ", 1)[1] in evidence.lines[1]


@pytest.mark.parametrize("form", list(Form))
def test_every_code_of_the_catalogue_goes_in_and_is_recognised(form: Form) -> None:
    host = FakeHost()
    for xid in xids():
        XidFault().inject(XidParameters(xid=xid, form=form), 0, host)
    assert [event.code for line in host.log if (event := recognise(line))] == list(xids())


def test_a_burst_is_no_larger_than_the_kernel_lets_through() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 10"):
        XidParameters(xid=13, repeat=11)


def test_the_plans_gpu_counts_more_than_the_runs() -> None:
    host = FakeHost()
    XidFault().inject(XidParameters(xid=79, gpu=0), 1, host)
    assert host.samples[0].pci_bus_id in host.log[0]


def test_repeats_are_counted_even_when_the_line_was_there_before() -> None:
    host = FakeHost()
    XidFault().inject(XidParameters(xid=79), 0, host)
    evidence = XidFault().inject(XidParameters(xid=79, repeat=3), 0, host)
    assert len(host.log) == 4
    assert evidence.lines[0].startswith("before: 1 ")
    assert evidence.lines[2].startswith("after: 4 ")


def test_a_swallowed_write_is_not_called_an_injection() -> None:
    host = FakeHost()
    host.write_kernel_log = lambda record: None  # type: ignore[method-assign]
    with pytest.raises(HostError, match=r"wrote 1 kernel-log record\(s\) and found 0 new"):
        XidFault().inject(XidParameters(xid=79), 0, host)


def test_a_gpu_that_is_not_there_writes_nothing() -> None:
    host = FakeHost()
    with pytest.raises(HostError, match=r"no GPU 7 on this node; NVML knows \[0, 1\]"):
        XidFault().inject(XidParameters(xid=79), 7, host)
    assert host.log == []


@pytest.mark.parametrize("pci", ["", "0000:4e:00); reboot"])
def test_a_gpu_without_a_usable_pci_id_writes_nothing(pci: str) -> None:
    host = FakeHost()
    host.samples[0] = host.samples[0].model_copy(update={"pci_bus_id": pci, "lost": True})
    with pytest.raises(HostError, match="PCI id"):
        XidFault().inject(XidParameters(xid=79), 0, host)
    assert host.log == []


def test_undo_says_that_a_record_stays() -> None:
    host = FakeHost()
    fault, parameters = XidFault(), XidParameters(xid=79)
    fault.inject(parameters, 0, host)
    before = list(host.log)
    assert "nothing to undo" in fault.undo(parameters, 0, host, {}).lines[0]
    assert fault.verify_undone(parameters, 0, host, {})
    assert host.log == before


@pytest.mark.parametrize(
    ("form", "xid", "dangerous"), [("bare", 119, True), ("bare", 79, True), ("bare", 48, False), ("kernel", 119, False)]
)
def test_the_bare_forms_that_dcgm_acts_on_are_called_dangerous(form: str, xid: int, dangerous: bool) -> None:
    warnings = XidFault().warnings(XidParameters(xid=xid, form=Form(form)))
    assert bool(warnings) is dangerous
    assert all("dangerous" in warning and "DCGM" in warning for warning in warnings)

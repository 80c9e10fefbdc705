"""The virtual host's client, against a server that speaks its protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gameday.errors import HostError
from gameday.host import open_host
from gameday.host.virtual import VirtualHost
from tests.host.fake import FakeHost, VirtualHostServer, result


@pytest.fixture
def server() -> Iterator[VirtualHostServer]:
    server = VirtualHostServer(FakeHost())
    yield server
    server.close()


def test_every_call_reaches_the_host_and_returns_its_answer(server: VirtualHostServer) -> None:
    host = open_host({"GAMEDAY_VIRTUAL_HOST": server.url})
    assert isinstance(host, VirtualHost)
    server.host.programs = lambda argv: result(argv, 3, "out", "err")
    host.write_kernel_log("<3>kernel: NVRM: ünïcode")
    host.write_file("/sys/a", "1")
    assert host.read_kernel_log() == ["[    0.000000] kernel: NVRM: ünïcode"]
    assert host.read_file("/sys/a") == "1"
    assert host.boot_id() == "boot-1"
    assert host.run(["nvidia-smi", "-q; rm -rf /"], 5) == result(["nvidia-smi", "-q; rm -rf /"], 3, "out", "err")
    assert host.gpus() == server.host.samples
    assert host.measure_load(1, 0.1) == server.host.measure_load(1, 0.1)


def test_gpus_are_ordered_by_index(server: VirtualHostServer) -> None:
    server.host.samples.reverse()
    assert [gpu.index for gpu in VirtualHost(server.url).gpus()] == [0, 1]


def test_a_refusal_has_the_hosts_own_message(server: VirtualHostServer) -> None:
    server.host.refuse["gpus"] = "node is rebooting"
    with pytest.raises(HostError, match="HTTP 503: node is rebooting"):
        VirtualHost(server.url).gpus()


def test_a_path_is_a_parameter_and_not_part_of_the_url(server: VirtualHostServer) -> None:
    server.host.files["/sys/a b?c&path=/etc/shadow"] = "x"
    assert VirtualHost(server.url).read_file("/sys/a b?c&path=/etc/shadow") == "x"


def test_an_answer_of_another_shape_is_a_host_error(server: VirtualHostServer) -> None:
    server.host.boot = None  # type: ignore[assignment]
    with pytest.raises(HostError, match="unexpected answer"):
        VirtualHost(server.url).boot_id()


def test_a_host_that_does_not_answer_is_a_host_error() -> None:
    server = VirtualHostServer(FakeHost())
    server.close()
    with pytest.raises(HostError, match=r"boot_id: .*[Rr]efused"):
        VirtualHost(server.url).boot_id()


@pytest.mark.parametrize("url", ["ftp://x/hosts/a", "node-1", "http://"])
def test_a_value_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(HostError, match="GAMEDAY_VIRTUAL_HOST"):
        open_host({"GAMEDAY_VIRTUAL_HOST": url})


def test_a_record_that_the_kernel_would_refuse_is_refused(server: VirtualHostServer) -> None:
    with pytest.raises(HostError, match="at most 976"):
        VirtualHost(server.url).write_kernel_log("<3>" + "x" * 974)
    assert server.host.log == []

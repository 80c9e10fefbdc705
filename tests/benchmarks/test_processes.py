"""The cost of a rehearsal's processes, by part."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.processes import Part, PartsCost, Seen, Watched, part_of, resident, tree
from gameday.rehearsal.nodes import guest_launcher


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("/x/.tools/bin/kube-apiserver --etcd-servers=https://127.0.0.1:1", Part.API_SERVERS),
        ("/x/python -m gameday.api_clients.steady", Part.CLIENTS),
        ("/x/python -m gameday.rehearsal.nodes.launch gameday.agent -m gameday.agent", Part.CLIENTS),
        ("/x/python -m gameday.rehearsal.nodes --kubeconfig /x/gameday.agent", Part.OTHERS),
        ("/x/etcd --name=kube-apiserver", Part.OTHERS),
    ],
)
def test_the_part_of_a_process(command: str, part: Part) -> None:
    assert part_of(command) is part


def test_memory_is_the_most_at_one_moment_and_time_that_of_ended_processes_too() -> None:
    cost = PartsCost()
    cost.take([Seen(1, Part.CLIENTS, 1.0, 100), Seen(2, Part.API_SERVERS, 5.0, 30)])
    cost.take([Seen(1, Part.CLIENTS, 2.0, 50), Seen(3, Part.CLIENTS, 0.5, 60), Seen(2, Part.API_SERVERS, 6.0, 20)])
    cost.take([Seen(3, Part.CLIENTS, 1.5, 70)])
    assert cost.peak_memory == {Part.CLIENTS: 110, Part.API_SERVERS: 30}
    assert cost.cpu_s(Part.CLIENTS) == 3.5
    assert cost.cpu_s(Part.API_SERVERS) == 6.0
    assert cost.cpu_s(Part.OTHERS) == 0


def test_a_guests_part_is_its_launcher_and_all_below() -> None:
    sleeper = ["sh", "-c", "sleep 600 & wait"]
    launcher = [sys.executable, "-I", "-S", guest_launcher.__file__, str(os.getpid()), "1", *sleeper]
    guest = subprocess.Popen(launcher)
    watched = Watched(os.getpid())
    try:
        while len(below := tree(guest.pid)) < 3:
            assert guest.poll() is None
        while watched.cost.peak_memory.get(Part.GUESTS, 0) < sum(map(resident, below)):
            assert guest.poll() is None
    finally:
        watched.stop()
        guest.terminate()
        guest.wait()
    assert Part.CLIENTS not in watched.cost.peak_memory


def test_this_process_is_in_its_parents_tree() -> None:
    assert os.getpid() in tree(os.getppid())
    assert resident(os.getpid()) > 1_000_000

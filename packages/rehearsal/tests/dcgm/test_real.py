"""A DCGM that the user names (`make test-dcgm`): the table once more, and our faults in and out of it.

GAMEDAY_DCGM names its host engine as `host:port`, GAMEDAY_DCGM_EXPORTER its exporter's page as a URL, if there is one;
`dcgmi` is on PATH. It injects values and pauses the collection for seconds: take one that nobody relies on.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from gameday.agent.inject import Injection
from gameday.faults.optional import keep_in
from gameday.host.base import ProgramResult
from tests.host.fake import FakeHost
from tests.rehearsal.dcgm.model import ModelNode
from tests.rehearsal.dcgm.real import ENGINE, RealNode, Unplayable, the_users_node
from tests.rehearsal.dcgm.table import Answer, Exchange, comparable, play, read_table

SCRIPTS = read_table()
FAULTS = [
    {"type": "dcgm_field", "field": "DCGM_FI_DEV_GPU_TEMP", "value": 97},
    {"type": "dcgm_field", "field": "DCGM_FI_DEV_POWER_USAGE", "value": 1234},
    {"type": "dcgm_field", "field": "DCGM_FI_DEV_ROW_REMAP_FAILURE", "value": 1},
    {"type": "dcgm_field", "field": "DCGM_FI_DEV_XID_ERRORS", "value": 13},
    {"type": "dcgm_pause"},
]
_HOLD_S = 4.0


@pytest.fixture
def node() -> Iterator[RealNode]:
    node = the_users_node()
    if node is None:
        pytest.skip(f"no DCGM to play with: {ENGINE}=host:port names its host engine, and dcgmi has to be on PATH")
    yield node
    node.dcgmi("test", "--resume")


class RealDcgm(FakeHost):
    """A host with this dcgmi, and GPUs and engines that nobody looks at."""

    def __init__(self, node: RealNode) -> None:
        super().__init__()
        self.node = node

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        answer = self.node.dcgmi(*argv[1:])
        return ProgramResult(argv=tuple(argv), exit_status=answer.exit, stdout=answer.stdout, stderr=answer.stderr)


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_answers_as_the_recorded_one_did(node: RealNode, name: str) -> None:
    script = SCRIPTS[name]
    for number, exchange in enumerate(script):
        try:
            found = comparable(script, number, play(node, exchange.do))
        except Unplayable as why:
            pytest.skip(str(why))
        assert found == comparable(script, number, exchange.answer), exchange.do


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.get("field", fault["type"]))
def test_our_fault_goes_in_stays_and_comes_out(node: RealNode, fault: dict[str, object]) -> None:
    host = RealDcgm(node)
    injection = Injection(fault, 0, host)
    state = injection.fault.inject(injection.parameters, 0, host).undo_state
    ended = threading.Event()
    timer = threading.Timer(_HOLD_S, ended.set)
    timer.start()
    keep_in(injection.parameters, 0, host, ended, lambda _: None)
    timer.join()
    assert not injection.fault.verify_undone(injection.parameters, 0, host, state), "held until here"
    assert injection.take_out(state).cleanliness == "clean"


def test_an_undo_waits_for_the_end_of_somebody_elses_pause(node: RealNode) -> None:
    host = RealDcgm(node)
    injection = Injection(FAULTS[0], 0, host)
    state = injection.fault.inject(injection.parameters, 0, host).undo_state
    node.dcgmi("test", "--pause")
    resume = threading.Timer(3.0, node.dcgmi, ("test", "--resume"))
    resume.start()
    outcome = injection.take_out(state)
    resume.join()
    assert outcome.cleanliness == "clean"
    assert any("collection is paused" in line for line in outcome.evidence)


def acts(seed: int) -> list[str]:
    """Injections with values that no GPU shows, reads, pauses and waits."""
    chosen, gpu = random.Random(seed), f"{seed % 8}"
    values = {"150": (901, 999), "155": (9001, 9999), "203": (901, 999)}
    found = []
    for _ in range(9):
        field = chosen.choice(list(values))
        value, offset = chosen.randint(*values[field]), chosen.randint(1, 5)
        inject = f"dcgmi test --inject --gpuid {gpu} -f {field} -v {value} --offset {offset}"
        read = f"dcgmi dmon -i {gpu} -e {','.join(values)} -c 1"
        others = ("wait 1", "wait 2", "dcgmi test --pause", "dcgmi test --resume", "dcgmi modules -l -j")
        found.append(chosen.choice((*[inject, read] * 3, *others)))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_random_sequence_reads_the_same_as_on_the_model(node: RealNode, seed: int) -> None:
    """Stamps are whole seconds, so each act begins early in one, on both clocks."""
    model, script = ModelNode(), list[Exchange]()
    model.cache.exporting[:] = bool(node.exporter)
    time.sleep(7)  # until what the last one injected is out
    began = int(time.time()) - int(model.clock.now)
    for number, act in enumerate(acts(seed)):
        time.sleep((1.15 - time.time()) % 1)
        model.clock.now = int(time.time()) - began + 0.15
        script.append(Exchange("", act, Answer()))
        real, ours = (comparable(script, number, play(one, act)) for one in (node, model))
        assert real == ours, [exchange.do for exchange in script]

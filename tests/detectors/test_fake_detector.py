"""A stand-in's decisions, with its writes recorded: what it acts on, what it takes back, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from gameday.cluster.loki import LogLine
from gameday.detectors.facts import matching
from gameday.detectors.load import load_detector
from gameday.detectors.models import DetectorProfile
from gameday.faults.base import Layer
from gameday.values.results import RepairKind
from gameday.xid.lines import format_xid, recognise
from gameday_health.detect import Detection
from gameday_rehearsal.fake_detector.actions import Actions, Effect
from gameday_rehearsal.fake_detector.detector import FakeDetector, fields_of
from gameday_rehearsal.fake_detector.repair import FakeRepairer
from gameday_rehearsal.fake_detector.sources import Cause, DcgmFields
from gameday_rehearsal.nodes.dcgm import DcgmCache
from gameday_rehearsal.nodes.gpus import GpuFleet
from gameday_rehearsal.nodes.host_engines import render
from kubesim.client import Reflector
from kubesim.errors import ApiError
from tests.detectors.profiles import profile

PCI = "0000:4e:00"


class Recorder:
    """In place of the API: what was done and taken back, in order; `refusals` answers so many writes with a 500."""

    def __init__(self, refusals: int = 0) -> None:
        self.said: list[tuple[str, str]] = []
        self.refusals = refusals

    async def do(self, node: Any, effect: Effect, facts: Mapping[str, object], said: str) -> None:
        self._write("do", effect)

    async def take_back(self, node: Any, effect: Effect) -> None:
        self._write("take back", effect)

    def _write(self, verb: str, effect: Effect) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ApiError(500, "InternalError", "not now")
        self.said.append((verb, type(effect).__name__))


class Nodes:
    """In place of the watch: one node, and its changes by hand."""

    def __init__(self) -> None:
        self.store = {"n1": self.booted("a")}
        self._update: Callable[[Any, Any], None] = lambda old, new: None

    def on(self, update: Callable[[Any, Any], None]) -> None:
        self._update = update

    def booted(self, boot: str) -> Any:
        return {"metadata": {"name": "n1"}, "status": {"nodeInfo": {"bootID": boot}}}

    def reboot(self) -> None:
        old, self.store["n1"] = self.store["n1"], self.booted("b")
        self._update(old, self.store["n1"])


def line(text: str) -> Detection:
    return Detection("n1", LogLine(0, (), text), recognise(text))


def quick(tmp_path: Path, old: str = "", new: str = "") -> DetectorProfile:
    """The team's profile without any latency."""
    found = profile(tmp_path, old, new)
    data = found.model_dump(mode="json", exclude_unset=True)
    for rule in data["rules"]:
        for part in ("taints", "conditions", "labels", "events"):
            for effect in rule.get(part, ()):
                effect["typically"] = "0s"
    return DetectorProfile.model_validate(data)


class Repairer:
    """In place of the machine's repair: it waits until it may go on, and gives the node back."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, RepairKind, str]] = []
        self.may_end = asyncio.Event()

    async def repair(self, node: str, kind: RepairKind, pci: str, give_back: Callable[[], Awaitable[None]]) -> None:
        self.begun.append((node, kind, pci))
        await self.may_end.wait()
        await give_back()


def play(
    found: DetectorProfile,
    act: Callable[[FakeDetector, Nodes], None],
    refusals: int = 0,
    repairer: Repairer | None = None,
) -> list[tuple[str, str]]:
    """What the stand-in does about an Xid 79, and then about `act`."""

    async def run() -> list[tuple[str, str]]:
        nodes, recorder = Nodes(), Recorder(refusals)
        repairs = cast(FakeRepairer | None, repairer)
        fake_detector = FakeDetector(found, cast(Actions, recorder), cast(Reflector, nodes), repairs)
        fake_detector.on_line(line(format_xid(79, PCI)))
        await _settled() if repairer is None else await _begun(repairer)
        act(fake_detector, nodes)
        await _settled()
        return recorder.said

    return asyncio.run(run())


async def _settled() -> None:
    """Until no task but this one is left to run."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


async def _begun(repairer: Repairer) -> None:
    while not repairer.begun:
        await asyncio.sleep(0)


DONE = [("do", "Condition"), ("do", "Taint"), ("do", "Label"), ("do", "Event")]
TAKEN_BACK = [("take back", "Condition"), ("take back", "Taint"), ("take back", "Label"), ("take back", "Event")]


def test_it_does_what_its_profile_says_about_a_line(tmp_path: Path) -> None:
    assert play(quick(tmp_path), lambda fake_detector, nodes: None) == DONE


def test_the_same_line_again_is_the_same_fault(tmp_path: Path) -> None:
    assert play(quick(tmp_path), lambda fake_detector, _: fake_detector.on_line(line(format_xid(79, PCI)))) == DONE


def test_what_it_cannot_see_and_what_it_does_nothing_about_leave_no_trace(tmp_path: Path) -> None:
    assert play(quick(tmp_path), lambda fake_detector, _: fake_detector.on_line(line(format_xid(13, PCI)))) == DONE


def test_a_reboot_makes_it_take_back_what_it_set(tmp_path: Path) -> None:
    assert play(quick(tmp_path), lambda _, nodes: nodes.reboot()) == DONE + TAKEN_BACK


def test_the_reset_of_that_gpu_and_of_no_other_makes_it_take_back_what_it_set(tmp_path: Path) -> None:
    def reset(pci: str) -> Callable[[FakeDetector, Nodes], None]:
        said = f"gameday-agent: GPU reset executed: PCI:{pci}, success: true"
        return lambda fake_detector, _: fake_detector.on_line(line(said))

    assert play(quick(tmp_path), reset(PCI)) == DONE + TAKEN_BACK
    assert play(quick(tmp_path), reset("0000:5f:00")) == DONE


def test_what_nothing_ends_stays(tmp_path: Path) -> None:
    forever = quick(tmp_path, "    ends_with: [gpu-reset, reboot]\n", "")
    assert play(forever, lambda _, nodes: nodes.reboot()) == DONE


def test_a_write_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    assert play(quick(tmp_path), lambda fake_detector, nodes: None, refusals=1) == DONE


def test_a_dcgm_value_that_changes_is_a_cause_until_it_is_what_it_was() -> None:
    name = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
    fields = DcgmFields("http://127.0.0.1:9", frozenset({name}))

    def look(value: int) -> list[tuple[Cause, bool]]:
        return list(fields._changes(f'{name}{{node="n1",gpu="3"}} {value}\n'))

    assert [is_over for _, is_over in look(0)] == [True]
    (cause, is_over), *rest = look(1)
    assert (cause.node, cause.fault, cause.layer, is_over, rest) == ("n1", "dcgm_field", Layer.DCGM_CACHE, False, [])
    assert dict(cause.facts)["field"] == name
    assert [is_over for _, is_over in look(0)] == [True]


def test_a_counter_that_grows_in_the_host_engine_is_a_cause_under_its_own_name() -> None:
    name = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
    fleet = GpuFleet(["n1"], 2)
    cache, fields = DcgmCache(fleet), DcgmFields("http://127.0.0.1:9", frozenset({name}))

    def look() -> list[tuple[Cause, bool]]:
        return list(fields._changes(render(cache, ["n1"], [name, "DCGM_FI_DEV_NO_SUCH_FIELD"])))

    assert [is_over for _, is_over in look()] == [True, True]
    fleet.dbe_volatile[0, 1] += 1
    (cause,) = [cause for cause, is_over in look() if not is_over]
    assert (cause.node, dict(cause.facts)) == ("n1", {"field": name, "value": 1})
    rule = matching(load_detector("nvsentinel"), cause.fault, cause.layer, dict(cause.facts))
    assert rule is not None
    assert rule.cordoned, "NVSentinel cordons for it"
    fleet.reset((0, 1))
    assert [is_over for _, is_over in look()] == [True, True]


def test_it_asks_only_for_fields_about_which_its_profile_does_something() -> None:

    asked = fields_of(load_detector("nvsentinel"))
    assert "DCGM_FI_DEV_ROW_REMAP_FAILURE" in asked
    assert "DCGM_FI_DEV_GPU_TEMP" not in asked


def test_a_node_in_repair_keeps_its_quarantine_over_the_reboot_until_it_is_given_back(tmp_path: Path) -> None:
    repairer = Repairer()

    def reboot(_: FakeDetector, nodes: Nodes) -> None:
        nodes.reboot()
        repairer.may_end.set()

    assert play(quick(tmp_path), reboot, repairer=repairer) == DONE + TAKEN_BACK
    assert repairer.begun == [("n1", RepairKind.REBOOT, PCI)]


class FailingRepairer(Repairer):
    """A repair that fails, so that the node is not given back."""

    async def repair(self, node: str, kind: RepairKind, pci: str, give_back: Callable[[], Awaitable[None]]) -> None:
        self.begun.append((node, kind, pci))


def test_a_repair_that_fails_keeps_the_quarantine_until_something_else_ends_it(tmp_path: Path) -> None:
    assert play(quick(tmp_path), lambda *_: None, repairer=FailingRepairer()) == DONE
    reboot = play(quick(tmp_path), lambda _, nodes: nodes.reboot(), repairer=FailingRepairer())
    assert reboot == DONE + TAKEN_BACK


def test_a_fault_that_is_left_to_a_person_is_not_repaired(tmp_path: Path) -> None:
    person = quick(tmp_path, "    ends_with: [gpu-reset, reboot]\n", "    repaired_by: []\n")
    repairer = Repairer()

    async def run() -> None:
        recorder = Recorder()
        fake_detector = FakeDetector(
            person, cast(Actions, recorder), cast(Reflector, Nodes()), cast(FakeRepairer, repairer)
        )
        fake_detector.on_line(line(format_xid(79, PCI)))
        await _settled()
        assert recorder.said == DONE

    asyncio.run(run())
    assert repairer.begun == []

"""Parts of other packages: found by their entry points, and never able to break ours."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoints, distributions
from pathlib import Path
from types import ModuleType

import pytest

from gameday import plugins
from gameday.checks import run as checks
from gameday.checks.verdict import Status
from gameday.cli import build_app, run, virtual_clusters
from gameday.detectors import load as detectors
from gameday.errors import DocumentError
from gameday.exit_codes import ExitCode
from gameday.expect.registry import found_expectations
from gameday.faults import registry as faults
from gameday.guard import check as guard_check
from gameday.guard import registry as guardrails
from gameday.guard.observation import Observation
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.expectations import every_expectation
from gameday.plan.load import parse_plan
from gameday.plan.models import Plan
from gameday.plugins import Group, find
from gameday.report import figure
from gameday.report.figure import Figure
from gameday.tasks import moments
from tests.guard.observations import FakeRun, node, plan, profile
from tests.support.plans import QUICK, changed

# The package's attribute of this name is the function.
render = import_module("gameday.report.render")
CACHES = (
    plugins._installed,
    found_expectations,
    every_expectation,
    moments._acts,
    faults.found_faults,
    checks._found,
    guardrails.guardrails,
    render._found,
    figure._found,
    detectors._packaged,
)
FAULT = """
from typing import ClassVar, Literal
from gameday.faults.base import Evidence, Fault, Layer
from gameday.plan.fault import FaultParameters

class P(FaultParameters):
    type: Literal["{name}"] = "{name}"

class F(Fault[P]):
    parameters, layer, summary = P, Layer.NODE, "Does nothing"
    def inject(self, parameters, gpu, host): return Evidence()
    def undo(self, parameters, gpu, host, undo_state): return Evidence()
    def verify_undone(self, parameters, gpu, host, undo_state): return True
"""


class Site:
    """A folder whose distributions count as installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, group: Group, module: str, files: Mapping[str, str], name: str = "acme") -> None:
        """Lay out a distribution with one entry point, as pip does."""
        for path, source in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(source, encoding="utf-8")
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[{group}]\nours = {module}\n", encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(tmp_path)
    found = partial(distributions, path=[str(tmp_path)])
    monkeypatch.setattr(
        plugins, "entry_points", lambda: EntryPoints(one for dist in found() for one in dist.entry_points)
    )
    loaded = set(sys.modules)
    for cache in CACHES:
        cache.cache_clear()
    yield Site(tmp_path)
    for cache in CACHES:
        cache.cache_clear()
    for name in set(sys.modules) - loaded:
        if name.startswith("acme"):
            del sys.modules[name]


def test_a_fault_of_another_package_is_known_with_the_package_it_is_from(site: Site) -> None:
    site.install(Group.FAULTS, "acme.idle", {"acme/idle.py": FAULT.format(name="idle")})
    found = faults.found_faults()
    assert {"idle", "xid"} <= found.parts.keys()
    assert found.packages == {"idle": "acme 1.0"}
    assert found.broken == ()
    assert faults.parse_parameters({"type": "idle", "hold": "5s"}).type == "idle"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", "the module acme.broken holds nothing for this group"),
        (FAULT.format(name="xid"), "'xid' is defined twice: in gameday.faults.xid and in acme.broken; rename one"),
        (FAULT.replace("Literal[", "Literal[3, "), "must be a Literal of one name"),
        (FAULT.replace("def verify_undone", "def verified").format(name="idle"), "acme.broken.F lacks verify_undone"),
        ("def (", "SyntaxError"),
    ],
)
def test_a_package_that_cannot_be_used_is_named_and_leaves_ours_as_they_are(
    site: Site, caplog: pytest.LogCaptureFixture, source: str, why: str
) -> None:
    # A test of the command line may have imported Prefect quietly, which silences the root logger of the process.
    caplog.set_level(logging.WARNING, plugins.__name__)
    site.install(Group.FAULTS, "acme.broken", {"acme/broken.py": source})
    found = faults.found_faults()
    assert found.packages == {}
    assert type(found.parts["xid"]).__module__ == "gameday.faults.xid"
    (broken,) = found.broken
    assert why in broken.why
    assert (broken.name, broken.package) == ("ours", "acme 1.0")
    assert caplog.messages == [str(broken)]
    assert str(broken).endswith("; mend or uninstall it")


def test_an_entry_point_that_names_no_module_is_not_used(site: Site) -> None:
    site.install(Group.FAULTS, "acme.idle:F", {"acme/idle.py": FAULT.format(name="idle")})
    (broken,) = faults.found_faults().broken
    assert "acme.idle:F is no module" in broken.why


def test_a_broken_package_prints_nothing_that_a_terminal_would_obey(site: Site) -> None:
    site.install(Group.FAULTS, "acme.broken", {"acme/broken.py": "raise ValueError('\\x1b[2J')"})
    (broken,) = faults.found_faults().broken
    assert "\x1b" not in str(broken)


def test_two_modules_of_ours_with_one_name_are_a_bug_that_is_raised() -> None:
    with pytest.raises(ValueError, match="'same' is defined twice: in a and in b; rename one"):
        find(Group.CHECKS, [ModuleType("a"), ModuleType("b")], lambda module: {"same": module})


def test_a_package_of_which_a_part_cannot_be_imported_is_told_from_a_whole_one(site: Site) -> None:
    site.install(Group.FAULTS, "acme.idle", {"acme/idle.py": FAULT.format(name="idle")})
    files = {"acme/moments/__init__.py": "", "acme/moments/late.py": "raise SystemExit(3)"}
    site.install(Group.MOMENTS, "acme.moments", files, name="acme-moments")
    assert plugins.installed_packages() == {"acme": "1.0", "acme-moments": "1.0"}
    assert plugins.broken_parts("acme", Group) == []
    assert plugins.broken_parts("acme-moments", [Group.FAULTS, Group.UNDOS]) == []
    (broken,) = plugins.broken_parts("acme-moments", Group)
    assert (broken.group, broken.name, broken.package) == (Group.MOMENTS, "ours", "acme-moments 1.0")
    assert broken.why == "SystemExit: 3"


COMMAND = """
def register(app):
    app.command()(acme)
def acme():
    print("acme's own")
"""


def test_a_command_of_another_package_is_one_of_ours(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.install(Group.COMMANDS, "acme.command", {"acme/command.py": COMMAND})
    names = [one.name or one.callback.__name__ for one in build_app().registered_commands if one.callback]
    assert {"acme", "run"} <= set(names)


def test_a_command_that_cannot_be_loaded_leaves_ours(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, plugins.__name__)
    site.install(Group.COMMANDS, "acme.command", {"acme/command.py": "import nothing_of_this_name"})
    assert "run" in [one.name or one.callback.__name__ for one in build_app().registered_commands if one.callback]
    assert "nothing_of_this_name" in caplog.text


DOCUMENT = """
KIND = "AcmeList"
def checked(parsed, path):
    return parsed.data["name"]
"""


def test_a_kind_of_file_of_another_package_is_validated(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.install(Group.DOCUMENTS, "acme.lists", {"acme/lists.py": DOCUMENT})
    file = site.folder / "list.yaml"
    file.write_text("kind: AcmeList\nname: ours\n", encoding="utf-8")
    assert run(["validate", str(file)]) == 0
    assert capsys.readouterr().out.split()[-1] == "ours"


def test_a_kind_of_file_that_nobody_knows_is_named_with_those_that_are_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("apiVersion: gameday/v1\nkind: HealthPolicy\nname: ours\nrules: []\n", encoding="utf-8")
    monkeypatch.setattr(plugins, "_installed", lambda: dict.fromkeys(Group, ()))
    assert run(["validate", str(file)]) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines() == [
        f"{file}: no package that is installed here knows the kind 'HealthPolicy'; known: DetectorProfile, "
        "DetectorCase",
        "    suggestion: install the package that it is for",
    ]
    file.write_text("kind: DetectorProfil\n", encoding="utf-8")
    assert run(["validate", str(file)]) == ExitCode.USAGE
    assert "suggestion: did you mean DetectorProfile?" in capsys.readouterr().err


def test_without_a_package_that_starts_virtual_clusters_a_rehearsal_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plugins, "_installed", lambda: dict.fromkeys(Group, ()))
    assert run(["coverage", "power-cap", "--rehearse"]) == ExitCode.REFUSED
    assert "pip install gpu-gameday-rehearsal" in capsys.readouterr().err


@pytest.mark.parametrize("lacks", ["embedded", "kept"])
def test_virtual_clusters_that_lack_a_function_are_not_used(lacks: str, site: Site) -> None:
    source = "".join(f"def {name}(): ...\n" for name in virtual_clusters._FUNCTIONS if name != lacks)
    site.install(Group.VIRTUAL_CLUSTERS, "acme.virtual", {"acme/virtual.py": source})
    found = find(Group.VIRTUAL_CLUSTERS, (), virtual_clusters._functions)
    assert found.parts == {}
    assert f"lacks {lacks}" in found.broken[0].why


CHECK = """
from gameday.checks.verdict import Status, Verdict
def check(plan, history, frames):
    return [Verdict(check="acme", expectation="Something", status=Status.HELD)]
"""


def test_a_check_of_another_package_runs_behind_ours(site: Site) -> None:
    site.install(Group.CHECKS, "acme.judge", {"acme/judge.py": CHECK})
    verdicts = checks.run_checks(plan(), History(()), Frames())
    assert (verdicts[-1].check, verdicts[-1].status) == ("acme", Status.HELD)


def test_a_check_that_cannot_be_loaded_is_an_unknown_verdict(site: Site) -> None:
    site.install(Group.CHECKS, "acme.judge", {"acme/judge.py": "import nothing_of_this_name"})
    last = checks.run_checks(plan(), History(()), Frames())[-1]
    assert (last.check, last.status) == ("ours", Status.UNKNOWN)
    assert "nothing_of_this_name" in last.why


GUARDRAIL = """
from typing import ClassVar
from gameday.guard.base import Guardrail, Measurement

class Moon(Guardrail):
    name: ClassVar[str] = "the moon"
    def limit(self, observation): return "no full moon"
    def measure(self, observation): return Measurement(False, "full")
"""


def test_a_guardrail_of_another_package_is_looked_at(site: Site) -> None:
    site.install(Group.GUARDRAILS, "acme.moon", {"acme/moon.py": GUARDRAIL})
    checked = {one.name: one for one in guard_check.check_all(FakeRun(plan(), profile(), node("a")), [])}
    assert checked["the moon"].measurement.ok is False


def test_a_guardrail_that_cannot_be_loaded_counts_as_unmeasured(site: Site) -> None:
    site.install(Group.GUARDRAILS, "acme.moon", {"acme/moon.py": "import nothing_of_this_name"})
    (rail,) = [rail for rail in guardrails.guardrails() if rail.name == "ours"]
    checked = guard_check.check(rail, Observation(FakeRun(plan(), profile(), node("a")), ()))
    assert checked is not None
    assert checked.measurement.ok is None
    assert "nothing_of_this_name" in checked.message()


SECTION = """
from pydantic import BaseModel
ORDER, TITLE = 5, "Cost centre"
TEMPLATE = "<p>{{ data.words }}</p>"
class Data(BaseModel):
    words: str
def build(run):
    return Data(words="<b>bold</b>")
"""


def test_a_section_of_another_package_brings_its_own_template_which_is_escaped(site: Site) -> None:
    site.install(Group.REPORT_SECTIONS, "acme.cost_centre", {"acme/cost_centre.py": SECTION})
    module = next(module for module in render.section_modules() if module.__name__ == "acme.cost_centre")
    section = render.build_section(module, None, render.environment())  # type: ignore[arg-type]
    assert (section.id, section.title, section.failure) == ("cost-centre", "Cost centre", "")
    assert str(section.body) == "<p>&lt;b&gt;bold&lt;/b&gt;</p>"


def test_a_section_without_a_title_is_not_used(site: Site) -> None:
    site.install(Group.REPORT_SECTIONS, "acme.cost", {"acme/cost.py": SECTION.replace("TITLE", "NAME")})
    (broken,) = render._found().broken
    assert "acme.cost lacks TITLE" in broken.why


FIGURE = """
from gameday.report.figure import Figure
def figures(plan, history, frames):
    return [Figure(name="power drawn", unit="kWh", value=1.5)]
"""


def test_a_figure_of_another_package_is_asked_for(site: Site) -> None:
    site.install(Group.FIGURES, "acme.power", {"acme/power.py": FIGURE})
    found = figure.figures_of(None, History(()), None)  # type: ignore[arg-type]
    assert Figure(name="power drawn", unit="kWh", value=1.5) in found.figures


EXPECTATION = """
from typing import ClassVar
from gameday.documents.fields import Bound
from gameday.expect.base import Expectation, PodSignal
class ExpectedDisruption(PodSignal):
    check: ClassVar = "pod-disrupted"
    within: Bound
class Disruption(Expectation):
    {key}: ExpectedDisruption | None = None
"""


def quick_plan(key: str) -> Plan:
    text = json.dumps(changed(QUICK, f"expect.{key}", {"within": "5s"}))
    return parse_plan(text.encode(), "quick.yaml", faults.parameter_models()).plan


def test_an_expectation_of_another_package_is_a_key_of_a_plan(site: Site) -> None:
    site.install(Group.EXPECTATIONS, "acme.disruption", {"acme/disruption.py": EXPECTATION.format(key="disruption")})
    assert quick_plan("disruption").expect.signals_awaited()[-1].check == "pod-disrupted"
    with pytest.raises(DocumentError, match=r"suggestion: did you mean `disruption`\?"):
        quick_plan("disrupton")


def test_a_module_of_another_package_acts_at_the_moments_that_it_names(site: Site) -> None:
    source = "def contained(run, result):\n    result.append(run)\n"
    site.install(Group.MOMENTS, "acme.disruption", {"acme/disruption.py": source})
    (act,) = [one for one in moments._acts()[moments.Moment.CONTAINED] if one.__module__ == "acme.disruption"]
    act("run", seen := [])
    assert seen == ["run"]


def test_without_its_package_a_key_is_refused(site: Site) -> None:
    with pytest.raises(DocumentError, match=r"expect\.disruption: this key is not known here"):
        quick_plan("disruption")


def test_a_key_of_ours_stays_ours(site: Site) -> None:
    site.install(Group.EXPECTATIONS, "acme.taints", {"acme/taints.py": EXPECTATION.format(key="taints")})
    (broken,) = found_expectations().broken
    assert "'taints' is defined twice: in gameday.expect.taints and in acme.taints" in broken.why
    assert quick_plan("resource_health").expect.taints


PROFILE = """
apiVersion: gameday/v1
kind: DetectorProfile
name: acme-watch
title: Acme's watch
configuration: none
reads: [kernel log]
quiet_for: 30s
source: our manual
rules:
  - {faults: [xid], taints: [{key: acme/gpu, within: 30s}], source: our manual}
"""


def test_a_detector_profile_of_another_package_is_found_by_its_name(site: Site) -> None:
    site.install(Group.DETECTORS, "acme.profiles", {"acme/profiles/acme-watch.yaml": PROFILE, "acme/__init__.py": ""})
    assert detectors.load_detector("acme-watch").title == "Acme's watch"
    with pytest.raises(DocumentError, match="did you mean acme-watch"):
        detectors.load_detector("acme-wach")

"""The report of a complete run: its content, that it is one safe file, and that its JSON says the same."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gameday.history.events import FaultInjected, HopSeen, QaChecked
from gameday.history.frames import Frames
from gameday.report.render import render, section_modules
from gameday.values.results import Hop
from tests.report import run_builder as build
from tests.report.page import Page, drawn

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
MODULES = sorted(section_modules(), key=lambda module: not getattr(module, "OPEN", False))
SECTIONS = [module.__name__.rpartition(".")[2].replace("_", "-") for module in MODULES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = build.write(tmp_path_factory.mktemp("run"), build.passing(), build.frames())
    render(folder, NOW)
    return folder


@pytest.fixture(scope="module")
def page(folder) -> Page:
    return Page((folder / "report.html").read_text())


def test_what_has_content_is_drawn_and_the_rest_is_named_in_a_line(page):
    shown = [attrs["id"] for attrs in page.attributes("section")]
    assert set(SECTIONS) - set(shown) == {
        *("problems", "actions", "people", "learning", "comparison", "repair-chain", "control-plane"),
        *("canary", "probes", "nvml", "appendix"),
    }
    assert "could not be drawn" not in page.text()
    assert "Canary (no canary job ran beside this fault)" in page.text()


def test_the_navigation_has_the_summary_and_the_headings_of_the_evidence(page):
    links = [attrs["href"][1:] for attrs in page.attributes("a") if (attrs["href"] or "").startswith("#")]
    named = links[1:8]
    assert named[:3] == ["verdict", "expectations", "chain"]
    assert named[3:] == ["group-1", "group-2", "group-3", "group-4"]
    assert set(named) <= {attrs["id"] for tag in ("section", "div") for attrs in page.attributes(tag) if "id" in attrs}


def test_the_verdict_strip_says_it_all(page):
    text = page.text("verdict")
    for words in (
        *("Passed", "Cluster clean", "Rehearsal", "Virtual GPUs", "All 14 expectations held"),
        *("5.4 s", "0.97 s", "10.1 s", "34.6 s"),
    ):
        assert words in text


def test_it_is_one_file_that_asks_for_nothing(page, folder):
    assert not [tag for tag, _ in page.tags if tag in {"link", "iframe", "object", "embed", "img", "form"}]
    handlers = [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert handlers == []
    addresses = [
        attrs[name] for _, attrs in page.tags for name in ("src", "href", "xlink:href", "action") if attrs.get(name)
    ]
    assert [address for address in addresses if not address.startswith("#")] == []
    html = (folder / "report.html").read_text()
    assert "url(" not in html and "@import" not in html and "@font-face" not in html
    policy = next(a["content"] for a in page.attributes("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert scripts_that_run(html) == [re.search("script-src '(sha256-[^']+)'", policy)[1]]
    assert len(html.encode()) < 2_000_000


def scripts_that_run(html: str) -> list[str]:
    """The CSP hash of every script of the page that is not data."""
    bodies = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(bodies) + html.count('<script type="application/json">') == html.count("<script")
    return ["sha256-" + base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]


def test_it_is_well_formed_and_navigable(page):
    assert page.unbalanced == []
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {"main", "nav", "header", "footer"} <= {tag for tag, _ in page.tags}
    tables = len(page.attributes("table"))
    assert tables == len(page.attributes("caption"))
    assert all(attrs.get("scope") in ("col", "row") for attrs in page.attributes("th"))
    targets = {attrs["href"][1:] for attrs in page.attributes("a")}
    assert targets <= set(ids), targets - set(ids)
    charts = [attrs for attrs in page.attributes("svg") if attrs["class"] == "chart-svg"]
    assert len([attrs for attrs in charts if "GPUs over time" in attrs["aria-label"]]) == 6
    assert all(attrs["role"] == "img" and "over time" in attrs["aria-label"] for attrs in charts)


def test_the_chain_is_timed_hop_by_hop_and_names_the_slowest(page, folder):
    text = page.text("chain")
    assert "Slowest hop: rule firing , 3.0 s of the 6.1 s" in text
    data = json.loads((folder / "report.json").read_text())["sections"]["chain"]["chains"][0]
    rows = {row["hop"]: row for row in data["rows"]}
    assert rows["node tainted"]["since"] == "detector decided"
    assert rows["node tainted"]["took_s"] == pytest.approx(0.14)
    assert rows["sampled by Prometheus"]["since"] == "detector decided"
    assert [row["hop"] for row in data["rows"] if row["slowest"]] == ["rule firing"]


def test_a_real_xid_has_two_hops_more(tmp_path):
    timed = list(build.passing())
    for hop, after in ((Hop.LOGGED, 0.002), (Hop.NVML_EVENT, 0.023)):
        seen = HopSeen(hop=hop, node=build.NODE, at=build.at(build.FAULT_AT + after), source="injector")
        timed.append(build.Timed(build.FAULT_AT + 0.2, seen))
    _, data = drawn(build.write(tmp_path, timed), "chain")
    took = {row["hop"]: (row["since"], row["took_s"]) for row in data["chain"]["chains"][0]["rows"]}
    assert took["in the kernel log"] == ("fault written", 0.002)
    assert took["event of NVML"] == ("in the kernel log", 0.021)
    assert took["in log store"] == ("in the kernel log", 0.608)


def test_unseen_hops_are_marked(tmp_path):
    page, _ = drawn(build.write(tmp_path, build.detector_off()), "chain")
    assert page.text("chain").count("not seen") == 6
    # The hops that came are no news where the chain breaks.
    assert "The chain breaks after “in log store” : “detector decided” did not follow" in page.text("chain")
    assert "Slowest hop" not in page.text("chain")
    only_fault = build.without(build.passing(), lambda e: isinstance(e, HopSeen))
    page, _ = drawn(build.write(tmp_path, only_fault), "chain")
    chain = page.text("chain")  # by the alert's and the taint's own events
    assert chain.count("not seen") == 4 and "gameday-health" in chain
    unseen = build.without(build.detector_off(), lambda e: isinstance(e, HopSeen))
    page, _ = drawn(build.write(tmp_path, unseen), "chain")
    assert "breaks after “fault written” : “in log store” did not follow" in page.text("chain")


def test_signals_that_never_came_have_lanes_with_their_bounds(tmp_path, folder):
    missed = build.write(tmp_path / "missed", build.detector_off())
    page, data = drawn(missed, "verdict")
    assert "never came" in page.text("verdict") and "bound T+" in page.text("verdict")
    lanes = data["verdict"]["story"]["lanes"]
    ghosts = [lane for lane in lanes if lane["missed"]]
    assert {lane["bars"][0]["end_s"] for lane in ghosts} == {lane["bound_s"] for lane in ghosts}
    assert len(ghosts) == 2
    came = json.loads((folder / "report.json").read_text())["sections"]["verdict"]["story"]
    assert not any(lane["missed"] for lane in came["lanes"])
    assert {lane["label"].partition(" ")[0] for lane in came["lanes"] if lane["bound_s"]} == {"Alert", "Taint"}
    steps = {round(after["at"] - before["at"], 6) for before, after in itertools.pairwise(came["ticks"])}
    assert steps <= {5.0, 10.0, 15.0, 30.0}


def test_the_summary_is_open_and_the_evidence_is_folded(page):
    folded = {attrs["id"] for attrs in page.attributes("section") if attrs.get("class") == "folded"}
    shown = [attrs["id"] for attrs in page.attributes("section") if attrs.get("class") != "folded"]
    assert shown == ["verdict", "expectations", "chain"]
    assert {"timeline", "gpus", "identity", "undo"} <= folded


def test_a_hop_before_its_cause_is_a_clock_that_disagrees(tmp_path):
    early = build.replacing(
        build.passing(), lambda e: isinstance(e, HopSeen) and e.hop == "in log store", at=build.at(build.FAULT_AT - 3)
    )
    page, _ = drawn(build.write(tmp_path, early), "chain")
    assert "clocks disagree" in page.text("chain")


def test_the_alert_matrix(page):
    text = page.text("alerts")
    for words in ("GpuXidCritical", "T+2.4 s", "T+5.4 s", "T+24.6 s", "severity=critical", "gameday", "Watchdog"):
        assert words in text
    assert "Other alerts: none seen." in text


def test_charts_mark_the_target_the_window_and_the_moments(folder):
    data = json.loads((folder / "report.json").read_text())["sections"]["gpus"]["nodes"][0]
    assert data["target_gpu"] == "5"
    assert [m["letter"] for m in data["moments"]] == ["F", "T", "A", "U", "R", "Q"]
    assert data["fault_s"] == [0.0, pytest.approx(12.9)]
    power = next(chart for chart in data["charts"] if chart["metric"] == "DCGM_FI_DEV_POWER_USAGE")
    assert power["unit"] == "W" and power["of"] == "GPU 5"
    assert power["before"]["n"] == 70 and power["before"]["median"] > 550
    assert power["during"]["median"] < 150
    assert data["constant"] == ["DCGM_FI_DEV_ROW_REMAP_FAILURE = 0"]
    html = (folder / "report.html").read_text().partition('<section id="gpus"')[2].partition("</section>")[0]
    assert html.count('class="curve target"') == 5  # in each of the five line charts
    assert ">Xid 79</text>" in html


def test_gpus_of_which_no_metric_moved_were_measured(tmp_path):
    moved = build.frames().metrics
    still = moved[moved["metric"] == "DCGM_FI_DEV_ROW_REMAP_FAILURE"]
    page, _ = drawn(build.write(tmp_path, build.passing(), Frames(metrics=still)), "gpus")
    assert f"No metric moved, so no chart is drawn: {len(still)} samples" in page.text("gpus")
    assert "Not measured" not in page.text("gpus")


def test_undo_and_node_state_are_proved(page):
    assert page.text("undo").count("Clean") == 4
    state = page.text("node-state")
    assert "ended as it began" in state and "gameday-health" in state
    assert "no residue" in state  # the boot id


def test_qa_is_a_matrix_of_checks_and_gpus(page, folder, tmp_path):
    text = page.text("qa")
    assert "83 passed" in text and "GPU 7" in text and "memory bandwidth" in text
    weak = build.replacing(
        build.passing(),
        lambda e: isinstance(e, QaChecked) and (e.check, e.gpu) == ("GEMM BF16", 3),
        ok=False,
        value=120.0,
    )
    lost = build.replacing(
        weak, lambda e: isinstance(e, QaChecked) and (e.check, e.gpu) == ("SM clock", 1), ok=None, value=None
    )
    other = drawn(build.write(tmp_path, lost), "qa")[0].text("qa")
    assert "81 passed" in other and "1 failed" in other and "1 not measured" in other
    assert "120 failed" in other


def test_reproduce_holds_command_plan_and_hashes(page, folder):
    text = page.text("reproduce")
    assert "gameday rehearse plans/gpu-fell-off-the-bus.yaml" in text
    assert "within: 30s" in text and "frames/metrics.parquet" in text
    data = json.loads((folder / "report.json").read_text())["sections"]["reproduce"]
    assert {row["name"] for row in data["files"]} >= {"plan.yaml", "plan.json", "history.jsonl"}
    assert all(re.fullmatch(r"[0-9a-f]{64}", row["sha256"]) for row in data["files"])


def test_json_files_say_what_the_page_says(folder):
    verdicts = json.loads((folder / "verdicts.json").read_text())
    report = json.loads((folder / "report.json").read_text())
    assert report["result"] == {
        "outcome": "passed",
        "cleanliness": "clean",
        "exit_code": 0,
        "why": report["result"]["why"],
    }
    assert report["sections"]["expectations"]["verdicts"] == verdicts
    assert len(verdicts) == 14
    assert "svg" not in json.dumps(report)


def test_rendering_again_from_a_copy_gives_the_same_bytes(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "a-year-later")
    render(copy, NOW)
    for name in ("report.html", "report.json", "verdicts.json"):
        assert (copy / name).read_bytes() == (folder / name).read_bytes(), name


def test_a_changed_plan_is_noticed(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "edited")
    (copy / "plan.yaml").write_text("title: something else\n")
    assert "plan.yaml is not the file that ran" in drawn(copy)[0].text("problems")


def test_a_fault_without_a_stated_reach_is_not_recorded(tmp_path):
    quiet = build.replacing(build.passing(), lambda e: isinstance(e, FaultInjected), does_not_reach="", seen_by=())
    page, _ = drawn(build.write(tmp_path, quiet), "hypothesis")
    assert page.text("hypothesis").count("not recorded") == 2


def test_adding_a_section_is_adding_a_module():
    modules = [module for module in section_modules() if module.__name__.startswith("gameday.")]
    files = {path.stem for path in Path(modules[0].__file__).parent.glob("*.py") if "def build(" in path.read_text()}
    assert {module.__name__.rpartition(".")[2] for module in modules} == files
    assert len({module.ORDER for module in modules}) == len(modules)
    assert SECTIONS[0] == "verdict"


@pytest.mark.slow
def test_the_engine_of_the_report_imports_no_fault_and_no_client():
    import subprocess
    import sys

    code = (
        "import sys; from gameday.report.render import render; from gameday.report.render import section_modules;"
        "section_modules(); "
        "print([m for m in sys.modules if m.split('.')[0] in ('kubernetes','httpx','prefect','aiohttp')"
        " or m.startswith(('gameday.faults','gameday.cluster','gameday_rehearsal','gameday.agent'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_undo_moment_is_the_faults_own_not_another_pods(tmp_path):
    marker = [
        build.Timed(
            2.0,
            build.IntentRecorded(
                intent="mark", act="mark", undo="delete", object="pod/m", node=build.NODE, expires=build.at(60)
            ),
        ),
        build.Timed(
            3.0, build.FaultUndone(intent="mark", node=build.NODE, by="flow", cleanliness="clean", evidence=())
        ),
    ]
    folder = build.write(tmp_path, [*build.passing(), *marker])
    (node,) = drawn(folder, "gpus")[1]["gpus"]["nodes"]
    assert {m["letter"]: m["offset_s"] for m in node["moments"]}["U"] == pytest.approx(12.9)

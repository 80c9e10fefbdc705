"""Write into each runbook of docs/runbooks what its alert's rule and the shipped plans say; the rest is by hand.

That is the title and the first paragraph; a page for a new alert needs both, too, before the text by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
RUNBOOKS = ROOT / "docs" / "runbooks"
URGENCY = {
    "critical": "Page.",
    "warning": "Ticket.",
    "info": "Note.",
}
_INDEX = "## All alerts\n"


def pages() -> dict[Path, str]:
    """Return the text of every page, by its path; a page's sections that are written by hand stay as they are."""
    groups = [
        group for file in sorted((ROOT / "deploy/alerts").glob("*.rules.yaml")) for group in _read(file)["groups"]
    ]
    plans = _plans()
    made = {}
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        path = RUNBOOKS / f"{rule['alert']}.md"
        *_, by_hand = path.read_text(encoding="utf-8").split("\n\n", 2)
        made[path] = "\n\n".join(
            [f"# {rule['alert']}", " ".join(_sentences(rule, plans.get(rule["alert"], []))), by_hand]
        )
    readme = RUNBOOKS / "README.md"
    by_hand_only = readme.read_text(encoding="utf-8").partition(_INDEX)[0]
    made[readme] = "\n".join([f"{by_hand_only}{_INDEX}", *map(_listed, groups)]) + "\n"
    return made


def _read(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def _plans() -> dict[str, list[str]]:
    """Return links to the plans that expect an alert, by the alert's name."""
    found: dict[str, list[str]] = {}
    for path in sorted((*ROOT.glob("plans/**/*.yaml"), *ROOT.glob("packages/*/*/plans/*.yaml"))):
        plan = _read(path)
        dangerous = " (dangerous)" if plan.get("guardrails", {}).get("allow_dangerous") else ""
        link = f"[{path.stem}](../../{path.relative_to(ROOT)}){dangerous}"
        for name in {alert.get("name") for alert in plan.get("expect", {}).get("alerts", [])}:
            found.setdefault(name, []).append(link)
    return found


def _sentences(rule: dict[str, Any], plans: list[str]) -> Iterator[str]:
    yield URGENCY[rule["labels"]["severity"]]
    keeps = f", and keeps firing for {rule['keep_firing_for']}" if "keep_firing_for" in rule else ""
    if rule["for"] != "0s":
        yield f"Fires after {rule['for']}{keeps}."
    if plans:
        yield f"Rehearsed by {', '.join(plans)}."


def _listed(group: dict[str, Any]) -> str:
    alerts = [f"[{rule['alert']}]({rule['alert']}.md)" for rule in group["rules"] if "alert" in rule]
    return f"### {group['name']}\n\n{', '.join(alerts)}.\n"


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")

"""`gameday alerts`: write the shipped alert rules as your own files, with links to runbooks that open for you."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Annotated

import typer

from gameday.cli.console import console
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written
from gameday.text import shown

PROMETHEUS_ITSELF = "{{ $externalURL }}/user/runbooks"
"""Base URL of the shipped rules' links: Prometheus serves the folder of --web.user-assets there (docs/alerts.md)."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = "gameday alerts my-alerts --runbooks https://git.example/gpu-gameday/blob/main/docs/runbooks"
    add_command(app, alerts, "gameday alerts my-alerts", example, panel=Panel.CLUSTER)


def alerts(
    folder: Annotated[
        Path, typer.Argument(help="Folder to write the files to. Files with the same names are replaced.")
    ],
    runbooks: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="URL where you publish the runbooks. Without it, Prometheus itself serves them."
        ),
    ] = None,
) -> int:
    """Write the alert rules as plain files, as PrometheusRules with a kustomization, and the runbooks they link to."""
    from gameday.shipped import shipped

    base = PROMETHEUS_ITSELF if runbooks is None else _checked(runbooks)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        manifests = []
        for source in sorted((shipped("deploy") / "alerts").glob("*.rules.yaml")):
            rules = folder / source.name
            rules.write_text(source.read_text(encoding="utf-8").replace(PROMETHEUS_ITSELF, base), encoding="utf-8")
            manifests.append(manifest_of(rules))
            manifests[-1].write_text(manifest(rules), encoding="utf-8")
        listed = "".join(f"  - {path.name}\n" for path in manifests)
        (folder / "kustomization.yaml").write_text(
            f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{listed}", encoding="utf-8"
        )
        shutil.copytree(shipped("docs") / "runbooks", folder / "runbooks", dirs_exist_ok=True)
    except OSError as error:
        raise CommandError(f"the rules cannot be written: {not_written(error, folder)}") from None
    console().print(f"written: {folder}; its runbook_url is {base}/ALERT.md", soft_wrap=True, markup=False)
    return ExitCode.PASSED


def _checked(url: str) -> str:
    """Return the URL without its last slash. It goes into a template and into YAML, so it must not break these."""
    if not re.fullmatch(r"https?://[^\s\"'\\{}<>?#]+", url):
        raise CommandError(
            f"--runbooks {shown(url)} is not the http(s) URL of a folder, such as https://host/docs/runbooks"
        )
    return url.rstrip("/")


def manifest_of(rules: Path) -> Path:
    """Return where a rule file's PrometheusRule is: beside it."""
    return rules.with_name(rules.name.replace(".rules.yaml", ".prometheusrule.yaml"))


def manifest(rules: Path) -> str:
    """Return the text of a rule file's PrometheusRule, for the Prometheus Operator; comments stay in the rule file."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": rules.name.removesuffix(".rules.yaml"),
            "namespace": "gameday",
            "labels": {"app.kubernetes.io/name": "gpu-gameday", "app.kubernetes.io/component": "alerts"},
        },
        "spec": {"groups": yaml.load(rules.read_text(encoding="utf-8"))["groups"]},
    }
    out = io.StringIO()
    yaml.dump(document, out)
    return f"# Made from {rules.name} by `make alerts` or `gameday alerts`; edit that one.\n{out.getvalue()}"

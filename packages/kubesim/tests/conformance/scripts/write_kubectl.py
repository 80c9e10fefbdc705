"""kubectl 1.32 in a script: its exit code and everything that it prints are what is compared, ages apart."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.kubesim.conformance.exchange import Client

Json = dict[str, Any]
# kubectl's words change with its releases.
_RELEASE = ("1", "32")
_WITHIN_S = 60
_AGE = re.compile(r"(?<![\w.:=-])(\d+[smhd]){1,2}(?![\w.:-])")
_TIME = re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}")


@cache
def _program() -> str:
    """Return the path of the kubectl whose release recorded the goldens; skip the test without it."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("kubectl is not on PATH")
    printed = subprocess.run(
        [found, "version", "--client", "-o", "json"], capture_output=True, check=True, timeout=_WITHIN_S
    )
    version = json.loads(printed.stdout)["clientVersion"]
    if (version["major"], version["minor"].rstrip("+")) != _RELEASE:
        pytest.skip(f"kubectl is {version['gitVersion']}; the goldens are of {'.'.join(_RELEASE)}")
    return found


class Kubectl:
    """Runs kubectl in the script's namespace and records what it says."""

    def __init__(self, c: Client) -> None:
        self._client = c
        self._program = _program()
        self._home = tempfile.TemporaryDirectory()

    def __call__(
        self, step: str, *arguments: str, stdin: str | Json = "", files: dict[str, Json] | None = None, lines: int = -1
    ) -> None:
        """`files` are written to where kubectl runs; `lines` is how many of its output are compared."""
        here = Path(self._home.name)
        for name, content in (files or {}).items():
            (here / name).write_text(json.dumps(content), encoding="utf-8")
        given = stdin if isinstance(stdin, str) else json.dumps(stdin)
        server = self._client.server
        flags = [f"--kubeconfig={server.kubeconfig}", f"--namespace={self._client.ns}", f"--cache-dir={here}/cache"]
        environment = {"PATH": os.environ["PATH"], "HOME": str(here), "TZ": "UTC"}
        done = subprocess.run(
            [self._program, *flags, *arguments], input=given, capture_output=True, text=True, cwd=here, env=environment,
            timeout=_WITHIN_S, check=False,
        )  # fmt: skip
        response = {
            "exit": done.returncode,
            "stdout": self._lines(done.stdout)[: lines if lines > 0 else None],
            "stderr": self._lines(done.stderr),
        }
        request: Json = {"kubectl": " ".join(arguments)}
        if given:
            request["stdin"] = stdin
        self._client.record(step, request, {key: value for key, value in response.items() if value not in ([], "")})

    def _lines(self, text: str) -> list[str]:
        text = text.replace(self._home.name, "<here>").replace(str(self._client.server.kubeconfig), "<kubeconfig>")
        lines = [_TIME.sub("<time>", _AGE.sub("<age>", line.rstrip())) for line in text.splitlines()]
        # Columns are as wide as the widest age.
        return [re.sub(r" {2,}", "  ", line) for line in lines]

    def close(self) -> None:
        """Remove what kubectl left."""
        self._home.cleanup()


def configmap(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}

"""What a real DCGM answered, an exchange a line, and the form in which its answers and the model's are compared.

`exchanges.jsonl` is played in order, each script on a fresh host engine with eight GPUs and an exporter that reads them
every second. A line says what was done: a call of `dcgmi`, `wait SECONDS`, `kernel-log GPU TEXT` (a driver's line,
with the GPU's address for {pci}), `engine stop|start`, `lose GPU` (NVML loses it), or
`scrape METRIC GPU`.

Recorded on 28 November 2026: DCGM 4.6.0 (72fa3fe) on eight H100 of NVIDIA's mock NVML (k8s-test-infra 3b2b865), and
dcgm-exporter d5e5f51 with our counters file.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

TABLE = Path(__file__).parent / "exchanges.jsonl"
_LABELS = ("err_code", "health_watch", "health_error_code", "xid")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class Answer:
    """A program's end; a scrape's standard output are its series of the GPU, a line each."""

    stdout: str = ""
    stderr: str = ""
    exit: int = 0


@dataclass(frozen=True)
class Exchange:
    script: str
    do: str
    answer: Answer

    @property
    def line(self) -> str:
        return json.dumps({"script": self.script, "do": self.do, **asdict(self.answer)}) + "\n"


class Node(Protocol):
    """A node with a DCGM, real or the model's."""

    def dcgmi(self, *arguments: str) -> Answer: ...

    def wait(self, seconds: float) -> None: ...

    def kernel_log(self, gpu: int, text: str) -> None: ...

    def engine(self, verb: str) -> None: ...

    def lose(self, gpu: int) -> None: ...

    def scrape(self) -> str: ...


def read_table(path: Path = TABLE) -> dict[str, list[Exchange]]:
    """Return the exchanges of each script, in order."""
    scripts: dict[str, list[Exchange]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        answer = Answer(row.get("stdout", ""), row.get("stderr", ""), row.get("exit", 0))
        scripts.setdefault(row["script"], []).append(Exchange(row["script"], row["do"], answer))
    return scripts


def play(node: Node, do: str) -> Answer:
    """Do what a line says."""
    what, *words = do.split()
    match what:
        case "dcgmi":
            return node.dcgmi(*words)
        case "wait":
            node.wait(float(words[0]))
        case "engine":
            node.engine(words[0])
        case "lose":
            node.lose(int(words[0]))
        case "kernel-log":
            node.kernel_log(int(words[0]), " ".join(words[1:]))
        case "scrape":
            return Answer("".join(f"{line}\n" for line in _series(node.scrape(), words[0], words[1])))
        case _:
            raise ValueError(f"no such act: {do}")
    return Answer()


def comparable(script: list[Exchange], number: int, answer: Answer) -> object:
    """Return what has to be equal of an answer to a script's line of this number.

    Left out are readings, which are another GPU's, the short names of fields, the texts of the parser's complaints and
    of usage, and the modules that are loaded.
    """
    do = script[number].do
    if not do.startswith("dcgmi"):
        return answer
    for usage in ("PARSE ERROR", "ERROR: Invalid subsystem."):
        if (answer.stdout + answer.stderr).startswith(usage):
            return (usage, answer.exit)
    words = do.split()
    if words[1] == "dmon":
        injected = {value for line in script[:number] for value in _values(line.do)}
        return (_rows(answer.stdout, injected), answer.stderr, answer.exit)
    if words[1] == "modules":
        return (_core(answer.stdout), answer.stderr, answer.exit)
    if "--introspect" in words:
        return ("Number of Samples" in answer.stdout, answer.exit)
    return answer


def _values(do: str) -> tuple[str, ...]:
    """Return the value that a line injects, as an integer and as a number with decimals are shown."""
    value = re.search(r" -v (\d+)\b", do)
    return (value[1], f"{value[1]}.000") if value else ()


def _rows(stdout: str, injected: set[str]) -> list[list[str]]:
    rows = [line.split() for line in stdout.splitlines()]
    return [
        [row[0]] if row[0] in ("#Entity", "ID") else [*row[:2], *(_shown(value, injected) for value in row[2:])]
        for row in rows
    ]


def _shown(value: str, injected: set[str]) -> str:
    return "a reading" if _NUMBER.fullmatch(value) and value not in injected else value


def _core(stdout: str) -> str:
    """Return the state of the Core module, and the names of all; or another text as it is."""
    if stdout.startswith("{"):
        modules = json.loads(stdout)["body"]
        return f"{sorted(modules)}: {modules['Core']['children']['State']['value']}"
    if "| Module ID" not in stdout:
        return stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in stdout.splitlines() if line.startswith("| ")]
    names = [row[:2] for row in rows if len(row) == 3]
    return f"{names}: {next(row[2] for row in rows if row[1:2] == ['Core'])}"


def _series(text: str, metric: str, gpu: str) -> list[str]:
    """Return a GPU's series of a metric, by the labels that matter; of health only what does not pass."""
    found = [
        " ".join([*(sample.labels[name] for name in _LABELS if name in sample.labels), f"{sample.value:g}"])
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name == metric and sample.labels.get("gpu") == gpu
    ]
    return sorted(line for line in found if not line.endswith("DCGM_FR_OK 0") and "DCGM_FR_OK" not in line)

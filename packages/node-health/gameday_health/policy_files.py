"""Find and read health policies: shipped ones by name, a team's own by path."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from gameday.documents.explain import explain
from gameday.documents.problems import dotted
from gameday.documents.read import decode, read
from gameday.documents.source import Path as Where
from gameday.documents.source import Source, parse
from gameday.errors import DocumentError, DocumentProblem
from gameday.text import shown
from gameday.xid.decide import Response
from gameday.xid.lines import KernelEvent, recognise
from gameday.xid.record import clean
from gameday_health.dead_rules import dead_rules
from gameday_health.policy import Policy, Rule
from gameday_health.signal import Signal, SignalKind

KIND = "HealthPolicy"
"""The `kind:` that distinguishes a policy's file from a plan's."""
DEFAULT = "default"
"""The name of the policy that decides as NVIDIA's catalogue asks."""
_FOLDER = Path(__file__).parent / "policies"


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy with its file, so that a rule can be named by its line."""

    policy: Policy
    file: Path
    lines: tuple[int, ...]
    """The line of each rule, in order."""

    def place(self, rule: Rule) -> str:
        """Return the rule's `file:line`."""
        return f"{self.file}:{self.lines[self.policy.rules.index(rule)]}"


@cache
def shipped_policies() -> dict[str, Path]:
    """Map the name of every shipped policy to its file."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.yaml"))}


def find_policy(name_or_path: str) -> Path:
    """Return a policy's file.

    Raises:
        DocumentError: No shipped policy has this name, and the name is not a path.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) != 1:
        return path
    known = shipped_policies()
    if name_or_path in known:
        return known[name_or_path]
    near = difflib.get_close_matches(name_or_path[:64], known, n=1, cutoff=0.5)
    suggestion = f"did you mean {near[0]}?" if near else f"known are: {', '.join(known)}"
    message = "no health policy of this name, and no path of a .yaml file"
    raise DocumentError([DocumentProblem(name_or_path, None, None, "", None, message, suggestion)])


def load_policy(name_or_path: str = DEFAULT) -> LoadedPolicy:
    """Read the policy of this name, or in this file.

    Raises:
        DocumentError: There is none, or it cannot be used; every problem has its line.
    """
    path = find_policy(name_or_path)
    return parse_policy(parse(decode(read(path), str(path)), str(path)), path)


def checked(parsed: Source, path: Path) -> str:
    """Return the name of the policy in a parsed document. Raises DocumentError."""
    return parse_policy(parsed, path).policy.name


def parse_policy(parsed: Source, path: Path) -> LoadedPolicy:
    """Return the policy in a parsed document. Raises DocumentError."""
    try:
        policy = Policy.model_validate(parsed.data)
    except ValidationError as error:
        raise DocumentError(explain(error, parsed, str(path), Policy)) from None
    if problems := list(_contradictions(policy, parsed, path)):
        raise DocumentError(problems)
    lines = tuple(parsed.place(("rules", index)).value[0] for index in range(len(policy.rules)))
    return LoadedPolicy(policy, path, lines)


def kernel_signal(event: KernelEvent, node: str = "", at: datetime | None = None) -> Signal:
    """Return a recognised line of the kernel log as a signal.

    Args:
        event: The facts in the line.
        node: The node that wrote it.
        at: The time of the line; None for now.
    """
    now = datetime.now(UTC)
    text = event.text or event.line
    return Signal(node, SignalKind.KERNEL_LOG, "", at or now, now, text, event.pci, event=event)


def pod_log_signal(text: str, namespace: str, node: str = "", at: datetime | None = None, key: str = "") -> Signal:
    """Return a line of a pod's log as a signal; without a time, it is now."""
    now = datetime.now(UTC)
    text = clean(text)
    return Signal(node, SignalKind.POD_LOG, "", at or now, now, text, labels={"namespace": namespace}, key=key)


def _contradictions(policy: Policy, parsed: Source, path: Path) -> Iterator[DocumentProblem]:
    """Yield what models cannot see: a wrong file name, two rules of one name, negative controls that a rule acts on."""
    file = str(path)
    if path.suffix in (".yaml", ".yml") and path.stem != policy.name:
        yield _problem(parsed, file, ("name",), policy.name, f"the file is called {path.name}", "rename one")
    names = [rule.name for rule in policy.rules]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield _problem(parsed, file, ("rules", index, "name"), name, "an earlier rule has this name", "rename one")
    for index, why in dead_rules(policy):
        if names[index] not in names[:index]:
            fix = "take it out, or put it before a wider one"
            yield _problem(parsed, file, ("rules", index, "name"), names[index], why, fix)
    for index, line in enumerate(policy.never_quarantine):
        where: Where = ("never_quarantine", index)
        event = recognise(line) or policy.other_line(line)
        if event is None:
            message = "is not a line about a GPU that the controller would recognise"
            yield _problem(parsed, file, where, line, message, "copy one from a kernel log")
            continue
        decision = policy.decide(kernel_signal(event))
        if decision.rule and decision.response in (Response.WATCH, Response.QUARANTINE):
            message = f"rule {decision.rule.name} would {decision.response} on this line"
            yield _problem(parsed, file, where, line, message, "narrow that rule, or put one that ignores it before it")


def _problem(parsed: Source, file: str, at: Where, value: str, message: str, suggestion: str | None) -> DocumentProblem:
    line, column = parsed.place(at).value
    return DocumentProblem(file, line, column, dotted(at), shown(value), message, suggestion)

"""The DCGM host engines of a node, and whether the one that `dcgmi` asks is the one that counts.

An injected value or a pause is seen only by the clients of the engine that got it. A program with an engine of its own,
like dcgm-exporter by default, sees nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gameday.errors import HostError
from gameday.faults.component_pods import Component, containers_of, pods_of, ready_pods
from gameday.host.base import DcgmEngine, Host, HostModel

_REMOTE_ENGINE = "DCGM_REMOTE_HOSTENGINE_INFO"
_REMOTE_ENGINE_OPTIONS = {"-r", "--remote-hostengine-info"}
_EXPORTER = "dcgm-exporter"
_READERS = {
    _EXPORTER: f"set {_REMOTE_ENGINE} for it (GPU operator: dcgm.enabled=true)",
    "gpu-health-monitor": "give NVSentinel the DCGM source mode operator-service or external-hostengine",
    "node-monitoring-agent": "let the node have one host engine only, and the agent ask it",
    "healthagent": "let it ask the node's host engine",
}
"""The programs by which game-days see DCGM, by a word of their command or of their pod's name, with the remedy
(docs/sources.md, DCGM engines)."""


class EnginesSeen(HostModel):
    """The engines of a node other than the one that dcgmi asks."""

    blind: tuple[str, ...] = ()
    """Programs that game-days rely on but that have their own engine, each with the remedy."""
    others: tuple[str, ...] = ()
    """Other engines; their readers see nothing of a fault in the node's engine."""
    unseen: tuple[str, ...] = ()
    """Processes that could not be looked at, with the reason."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The warnings as lines of evidence."""
        return (
            *(f"not reached: {one}" for one in self.others),
            *(f"cannot see every DCGM engine: {one}" for one in self.unseen),
        )


def look_at_engines(host: Host) -> EnginesSeen:
    """Return the engines that run besides the one that dcgmi asks.

    It reads /proc. If a part of that cannot be seen, it also looks at the exporter's configuration.

    Raises:
        HostError: The host cannot be asked.
    """
    found = host.dcgm_engines()
    pods = _pod_names(host) if found.engines else {}
    blind, others = [], []
    for engine in (one for one in found.engines if one.embedded):
        reader = _reader(engine, pods)
        where = _described(engine, pods)
        if reader:
            blind.append(f"{where} runs a DCGM host engine of its own: {_READERS[reader]}")
        else:
            others.append(f"readers of the engine in {where}")
    node = [_described(engine, pods) for engine in found.engines if not engine.embedded]
    if node[1:]:
        others.append(f"readers of all but one of {len(node)} host engines ({', '.join(node)}): dcgmi asks one")
    unseen = found.unseen
    if unseen and not blind:
        configured, why_not = _blind_by_configuration(host)
        blind += configured
        unseen += why_not
    return EnginesSeen(blind=tuple(blind), others=tuple(others), unseen=unseen)


def refuse_blind_readers(host: Host) -> None:
    """Refuse a node if a program that game-days rely on would see nothing of the node's host engine.

    Raises:
        HostError: There is such a program, or the host cannot be asked.
    """
    if blind := look_at_engines(host).blind:
        raise HostError(f"{'; '.join(blind)}; without that it sees nothing of this fault")


def asks_another_engine(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return True if a dcgm-exporter with this command line uses another host engine than its own."""
    options = {argument.partition("=")[0] for argument in argv}
    return bool(environment.get(_REMOTE_ENGINE) or options & _REMOTE_ENGINE_OPTIONS)


def _reader(engine: DcgmEngine, pods: Mapping[str, str]) -> str:
    """Return the word that identifies a process as one of the readers; empty for any other process."""
    words = f"{engine.command} {pods.get(engine.pod, '')}".replace("_", "-")
    return next((word for word in _READERS if word in words), "")


def _described(engine: DcgmEngine, pods: Mapping[str, str]) -> str:
    pod = f", pod {pods.get(engine.pod, engine.pod)}" if engine.pod else ""
    return f"process {engine.pid} ({engine.command or 'no command line'}{pod})"


def _pod_names(host: Host) -> dict[str, str]:
    """Return the names of the node's pods by UID; empty if the container runtime cannot be asked."""
    try:
        return {pod.uid: str(pod) for pod in ready_pods(host)}
    except HostError:
        return {}


def _blind_by_configuration(host: Host) -> tuple[list[str], tuple[str, ...]]:
    """Return the exporters that are configured to run an engine, and the reason if that is not known."""
    try:
        blind = [
            f"pod {pod} is configured to run a DCGM host engine of its own: {_READERS[_EXPORTER]}"
            for pod in pods_of(host, Component.EXPORTER)
            if not any(asks_another_engine(one.argv, one.environment) for one in containers_of(host, pod))
        ]
    except HostError as error:
        return [], (f"how a dcgm-exporter is configured: {error}",)
    return blind, ()

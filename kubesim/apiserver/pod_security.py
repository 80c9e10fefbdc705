"""Pod Security admission: the baseline and restricted profiles that a namespace's labels ask for.

Left out of the profiles: AppArmor, SELinux, /proc mounts, Windows and hosts of probes, which no pod here sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Json = dict[str, Any]
Violation = tuple[str, str]
"""The violated rule, and the parts that violate it."""

LABEL = "pod-security.kubernetes.io/"
_CAPABILITIES = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
     "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)  # fmt: skip
_SYSCTLS = frozenset(
    {"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
     "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
     "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem",
     "net.ipv4.tcp_wmem", "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"}
)  # fmt: skip
_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)


def profile_of(namespace: Json, mode: str) -> str:
    """The profile that a namespace wants for a mode (enforce, warn): privileged, baseline or restricted."""
    found = (namespace["metadata"].get("labels") or {}).get(LABEL + mode, "privileged")
    return found if found in ("baseline", "restricted") else "privileged"


def violations(spec: Json, profile: str) -> list[Violation]:
    """Return the violations of a profile by a pod spec, in the real server's words and order."""
    checks = {"baseline": _BASELINE, "restricted": _RESTRICTED}.get(profile, ())
    return [found for check in checks if (found := check(spec))]


def violation_text(found: list[Violation], profile: str) -> str:
    """`violates PodSecurity "baseline:latest": …` without its verb."""
    details = ", ".join(f"{reason} ({detail})" for reason, detail in found)
    return f'PodSecurity "{profile}:latest": {details}'


def _containers(spec: Json) -> list[Json]:
    return [
        container
        for group in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(group) or []
    ]


def _security(part: Json) -> Json:
    found: Json = part.get("securityContext") or {}
    return found


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _named(containers: list[Json]) -> str:
    """`container "a"` or `containers "a", "b"`."""
    return f"container{'s' if len(containers) > 1 else ''} {_quoted(container['name'] for container in containers)}"


def _namespaces(spec: Json) -> Violation | None:
    found = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return ("host namespaces", ", ".join(found)) if found else None


def _privileged(spec: Json) -> Violation | None:
    bad = [container for container in _containers(spec) if _security(container).get("privileged")]
    return ("privileged", f"{_named(bad)} must not set securityContext.privileged=true") if bad else None


def _added(container: Json) -> list[str]:
    return (_security(container).get("capabilities") or {}).get("add") or []


def _default_capabilities(spec: Json) -> Violation | None:
    bad = [container for container in _containers(spec) if {*_added(container)} - _CAPABILITIES]
    if not bad:
        return None
    names = sorted({name for container in bad for name in _added(container)} - _CAPABILITIES)
    return (
        "non-default capabilities",
        f"{_named(bad)} must not include {_quoted(names)} in securityContext.capabilities.add",
    )


def _host_paths(spec: Json) -> Violation | None:
    bad = [volume["name"] for volume in spec.get("volumes") or [] if "hostPath" in volume]
    return ("hostPath volumes", f"volume{'s' if len(bad) > 1 else ''} {_quoted(bad)}") if bad else None


def _host_ports(spec: Json) -> Violation | None:
    bad = [
        container
        for container in _containers(spec)
        if any(port.get("hostPort") for port in container.get("ports") or [])
    ]
    if not bad:
        return None
    ports = sorted({str(port["hostPort"]) for one in bad for port in one["ports"] if port.get("hostPort")})
    verb = "uses" if len(bad) == 1 else "use"
    return "hostPort", f"{_named(bad)} {verb} hostPort{'s' if len(ports) > 1 else ''} {', '.join(ports)}"


def _sysctls(spec: Json) -> Violation | None:
    found = [one.get("name", "") for one in _security(spec).get("sysctls") or [] if one.get("name") not in _SYSCTLS]
    return ("forbidden sysctls", ", ".join(found)) if found else None


def _setters(pod: bool, containers: list[Json]) -> str:
    """`pod and container "a"`."""
    return " and ".join((["pod"] if pod else []) + ([_named(containers)] if containers else []))


def _seccomp_type(part: Json) -> str | None:
    profile = _security(part).get("seccompProfile")
    return None if profile is None else profile.get("type", "")


def _confined(spec: Json) -> Violation | None:
    allowed = (None, "RuntimeDefault", "Localhost")
    pod = _seccomp_type(spec) not in allowed
    bad = [container for container in _containers(spec) if _seccomp_type(container) not in allowed]
    if not pod and not bad:
        return None
    values = sorted({_seccomp_type(part) or "" for part in ([spec] if pod else []) + bad})
    return (
        "seccompProfile",
        f"{_setters(pod, bad)} must not set securityContext.seccompProfile.type to {_quoted(values)}",
    )


def _seccomp(spec: Json) -> Violation | None:
    explicit = _confined(spec)
    if explicit or _seccomp_type(spec) is not None:
        return explicit
    bad = [container for container in _containers(spec) if _seccomp_type(container) is None]
    wanted = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return ("seccompProfile", f"pod or {_named(bad)} must set {wanted}") if bad else None


def _escalation(spec: Json) -> Violation | None:
    bad = [one for one in _containers(spec) if _security(one).get("allowPrivilegeEscalation") is not False]
    if not bad:
        return None
    return "allowPrivilegeEscalation != false", f"{_named(bad)} must set securityContext.allowPrivilegeEscalation=false"


def _capabilities(spec: Json) -> Violation | None:
    keeping: list[Json] = []
    adding: list[Json] = []
    for container in _containers(spec):
        if "ALL" not in ((_security(container).get("capabilities") or {}).get("drop") or []):
            keeping.append(container)
        if {*_added(container)} - {"NET_BIND_SERVICE"}:
            adding.append(container)
    details = [f'{_named(keeping)} must set securityContext.capabilities.drop=["ALL"]'] if keeping else []
    if adding:
        names = sorted({name for container in adding for name in _added(container)} - {"NET_BIND_SERVICE"})
        details.append(f"{_named(adding)} must not include {_quoted(names)} in securityContext.capabilities.add")
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def _restricted_volumes(spec: Json) -> Violation | None:
    found = [(volume["name"], [kind for kind in volume if kind != "name"]) for volume in spec.get("volumes") or []]
    bad = [(name, kinds[0]) for name, kinds in found if kinds and kinds[0] not in _VOLUMES]
    if not bad:
        return None
    names, kinds = [name for name, _ in bad], sorted({kind for _, kind in bad})
    volumes = f"volume{'s' if len(names) > 1 else ''} {_quoted(names)} use{'s' if len(names) == 1 else ''}"
    return (
        "restricted volume types",
        f"{volumes} restricted volume type{'s' if len(kinds) > 1 else ''} {_quoted(kinds)}",
    )


def _non_root(spec: Json) -> Violation | None:
    pod = _security(spec).get("runAsNonRoot")
    said = [(container, _security(container).get("runAsNonRoot")) for container in _containers(spec)]
    explicit = [container for container, value in said if value is False]
    if pod is False or explicit:
        detail = f"{_setters(pod is False, explicit)} must not set securityContext.runAsNonRoot=false"
        return "runAsNonRoot != true", detail
    silent = [container for container, value in said if value is None and not pod]
    if not silent:
        return None
    return "runAsNonRoot != true", f"pod or {_named(silent)} must set securityContext.runAsNonRoot=true"


def _root_user(spec: Json) -> Violation | None:
    pod = _security(spec).get("runAsUser") == 0
    bad = [container for container in _containers(spec) if _security(container).get("runAsUser") == 0]
    return ("runAsUser=0", f"{_setters(pod, bad)} must not set runAsUser=0") if pod or bad else None


_Check = Callable[[Json], Violation | None]
_COMMON: tuple[_Check, ...] = (_host_ports, _privileged)
_BASELINE: tuple[_Check, ...] = (_default_capabilities, _namespaces, _host_paths, *_COMMON, _confined, _sysctls)
_RESTRICTED: tuple[_Check, ...] = (
    _namespaces, *_COMMON, _sysctls, _escalation, _capabilities, _restricted_volumes, _non_root, _root_user, _seccomp,
)  # fmt: skip

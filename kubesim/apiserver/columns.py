"""The columns that kubectl prints of each kind; those of pods and workloads are in modules of their own."""

from __future__ import annotations

from typing import Any

from kubesim.apiserver import columns_of_pods, columns_of_workloads
from kubesim.apiserver.cells import (
    NONE,
    UNSET,
    Cell,
    Columns,
    age,
    age_since,
    container_names,
    first_few,
    label_pairs,
    name,
)

Json = dict[str, Any]
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _event(event: Json) -> list[Cell]:
    about, series = event.get("involvedObject") or {}, event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    return [
        age_since(last),
        event.get("type", ""),
        event.get("reason", ""),
        "/".join(part for part in (about.get("kind", "").lower(), about.get("name")) if part),
        about.get("fieldPath", ""),
        _event_source(event),
        (event.get("message") or "").strip(),
        age_since(first),
        series.get("count") or event.get("count") or 1,
        name(event),
    ]


def _event_source(event: Json) -> str:
    source = event.get("source") or {}
    who = (
        source.get("component") or event.get("reportingComponent"),
        source.get("host") or event.get("reportingInstance"),
    )
    return ", ".join(part for part in who if part)


def _pdb(pdb: Json) -> list[Cell]:
    spec, allowed = pdb.get("spec") or {}, (pdb.get("status") or {}).get("disruptionsAllowed", 0)
    bounds = [str(spec.get(bound, "N/A")) for bound in ("minAvailable", "maxUnavailable")]
    return [name(pdb), *bounds, allowed, age(pdb)]


def _service(item: Json) -> list[Cell]:
    spec = item.get("spec") or {}
    ports = [_port(port) for port in spec.get("ports") or []]
    kind, address = spec.get("type", "ClusterIP"), spec.get("clusterIP") or NONE
    shown = ",".join(ports) or NONE
    return [name(item), kind, address, _external(item, spec), shown, age(item), label_pairs(spec.get("selector"))]


def _port(port: Json) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node}/{port.get('protocol', 'TCP')}"


def _external(item: Json, spec: Json) -> str:
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    found = list(spec.get("externalIPs") or [])
    if spec.get("type") == "LoadBalancer":
        ingress = ((item.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        given = sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""})
        return ",".join([*given, *found]) or "<pending>"
    return ",".join(found) or NONE


def _endpoints(item: Json) -> list[Cell]:
    found: list[str] = []
    for subset in item.get("subsets") or []:
        addresses = [address["ip"] for address in subset.get("addresses") or []]
        ports = subset.get("ports") or []
        found += [f"{address}:{port['port']}" for port in ports for address in addresses] if ports else addresses
    return [name(item), first_few(found) or NONE, age(item)]


def _endpoint_slice(item: Json) -> list[Cell]:
    ports = [str(port.get("port", port.get("name", "*"))) for port in item.get("ports") or []]
    addresses = [address for one in item.get("endpoints") or [] for address in one.get("addresses") or []]
    return [
        name(item),
        item.get("addressType", ""),
        first_few(ports) or UNSET,
        first_few(addresses) or UNSET,
        age(item),
    ]


def _binding(item: Json) -> list[Cell]:
    ref = item.get("roleRef") or {}
    named: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in item.get("subjects") or []:
        full = f"{subject.get('namespace', '')}/{subject['name']}" if subject["kind"] == "ServiceAccount" else ""
        named.setdefault(subject["kind"], []).append(full or subject["name"])
    lists = [", ".join(named[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name(item), f"{ref.get('kind')}/{ref.get('name')}", age(item), *lists]


def _quota(item: Json) -> list[Cell]:
    status = item.get("status") or {}
    used = status.get("used") or {}
    asked: list[str] = []
    limits: list[str] = []
    for resource, hard in sorted((status.get("hard") or {}).items()):
        (limits if resource.startswith("limits.") else asked).append(f"{resource}: {used.get(resource, '0')}/{hard}")
    return [name(item), ", ".join(asked), ", ".join(limits), age(item)]


def _phase(item: Json) -> str:
    return "Terminating" if "deletionTimestamp" in item["metadata"] else (item.get("status") or {}).get("phase", "")


def _modes(found: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (found or ()))


def _volume(item: Json) -> list[Cell]:
    spec, claim = item.get("spec") or {}, (item.get("spec") or {}).get("claimRef") or {}
    return [
        name(item),
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(item),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        (item.get("status") or {}).get("reason", ""),
        age(item),
        spec.get("volumeMode", UNSET),
    ]


def _volume_claim(item: Json) -> list[Cell]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        name(item),
        _phase(item),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        age(item),
        spec.get("volumeMode", UNSET),
    ]


def _storage_class(item: Json) -> list[Cell]:
    reclaim, binding = item.get("reclaimPolicy", "Delete"), item.get("volumeBindingMode", "Immediate")
    expands = bool(item.get("allowVolumeExpansion"))
    return [name(item), item.get("provisioner", ""), reclaim, binding, expands, age(item)]


def _claim(item: Json) -> list[Cell]:
    status, deleted = item.get("status") or {}, "deletionTimestamp" in item["metadata"]
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not deleted:
        states.append("pending")
    return [name(item), ",".join(states), age(item)]


def _slice(item: Json) -> list[Cell]:
    spec = item.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    return [name(item), spec.get("nodeName", ""), spec.get("driver", ""), pool, age(item)]


def _priority(item: Json) -> list[Cell]:
    return [
        name(item),
        item.get("value", 0),
        bool(item.get("globalDefault")),
        age(item),
        item.get("preemptionPolicy", ""),
    ]


def _template(item: Json) -> list[Cell]:
    template = item.get("template") or {}
    return [
        name(item),
        *container_names(template.get("spec")),
        label_pairs((template.get("metadata") or {}).get("labels")),
    ]


DEFAULT = Columns(("Name", "Age"), lambda obj: [name(obj), age(obj)])
_BINDING = Columns(("Name", "Role", "Age", "+Users", "+Groups", "+ServiceAccounts"), _binding)
_CREATED = Columns(("Name", "Created At:date"), lambda obj: [name(obj), obj["metadata"].get("creationTimestamp", "")])
_EVENT_TITLES = (
    "Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source", "Message", "+First Seen", "+Count", "+Name",
)  # fmt: skip
_VOLUME_TITLES = (
    "Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass", "VolumeAttributesClass",
    "Reason", "Age", "+VolumeMode",
)  # fmt: skip
_VOLUME_CLAIM_TITLES = (
    "Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age",
    "+VolumeMode",
)  # fmt: skip
COLUMNS: dict[str, Columns] = {
    **columns_of_pods.COLUMNS,
    **columns_of_workloads.COLUMNS,
    "configmaps": Columns(
        ("Name", "Data", "Age"),
        lambda obj: [name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(obj)],
    ),
    "csinodes.storage.k8s.io": Columns(
        ("Name", "Drivers:integer", "Age"),
        lambda obj: [name(obj), len((obj.get("spec") or {}).get("drivers") or []), age(obj)],
    ),
    "endpoints": Columns(("Name", "Endpoints", "Age"), _endpoints),
    "endpointslices.discovery.k8s.io": Columns(("Name", "AddressType", "Ports", "Endpoints", "Age"), _endpoint_slice),
    "events": Columns(_EVENT_TITLES, _event),
    "leases.coordination.k8s.io": Columns(
        ("Name", "Holder", "Age"),
        lambda obj: [name(obj), (obj.get("spec") or {}).get("holderIdentity", ""), age(obj)],
    ),
    "limitranges": _CREATED,
    "namespaces": Columns(
        ("Name", "Status", "Age"), lambda obj: [name(obj), (obj.get("status") or {}).get("phase", ""), age(obj)]
    ),
    "persistentvolumeclaims": Columns(_VOLUME_CLAIM_TITLES, _volume_claim),
    "persistentvolumes": Columns(_VOLUME_TITLES, _volume),
    "poddisruptionbudgets.policy": Columns(
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"), _pdb
    ),
    "podtemplates": Columns(("Name", "Containers", "Images", "Pod Labels"), _template),
    "priorityclasses.scheduling.k8s.io": Columns(
        ("Name", "Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"), _priority
    ),
    "resourceclaims.resource.k8s.io": Columns(("Name", "State", "Age"), _claim),
    "resourcequotas": Columns(("Name", "Request", "Limit", "Age"), _quota),
    "resourceslices.resource.k8s.io": Columns(("Name", "Node", "Driver", "Pool", "Age"), _slice),
    "secrets": Columns(
        ("Name", "Type", "Data", "Age"),
        lambda obj: [name(obj), obj.get("type", ""), len(obj.get("data") or {}), age(obj)],
    ),
    "services": Columns(("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"), _service),
    "storageclasses.storage.k8s.io": Columns(
        ("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"), _storage_class
    ),
    "roles.rbac.authorization.k8s.io": _CREATED,
    "clusterroles.rbac.authorization.k8s.io": _CREATED,
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
}

"""Write kubesim/apiserver/protobuf.json, which protobuf.py decodes with, from the Kubernetes Go sources.

    python -m kubesim.tools.protobuf_fields API_FOLDER APIMACHINERY_FOLDER > kubesim/apiserver/protobuf.json

The folders are checkouts of k8s.io/api and k8s.io/apimachinery. Struct tags carry the JSON name and the field
number both, so the tags alone are the schema. Needed only when Kubernetes adds fields.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from kubesim.apiserver.resources import RESOURCES

Fields = dict[str, list[str]]

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ALIAS = re.compile(r"^type (\w+) ([\[\]\w.]+)$", re.MULTILINE)
_FIELD = re.compile(
    r'^\t(?:(?P<name>\w+) +)?(?P<type>[\w.*\[\]]+) +`json:"(?P<json>[^"]*)"[^`]*protobuf:"\w+,(?P<number>\d+)'
    r"[^`]*`",
    re.MULTILINE,
)
_PACKAGES = {
    "metav1": "meta.v1",
    "v1": "core.v1",
    "corev1": "core.v1",
    "resource": "quantity",
    "authnv1": "authentication.v1",
}
_SCALARS = {
    "string": "s",
    "bool": "b",
    "[]byte": "y",
    "int": "i",
    "int32": "i",
    "int64": "i",
    "uint32": "i",
    "float64": "d",
    "types.UID": "s",
    "apiv1.PreemptionPolicy": "s",
}
_EXTRA_GROUPS = ("core", "autoscaling", "authentication", "authorization", "policy")


def _read(path: Path, package: str, types: dict[str, Fields], aliases: dict[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for name, target in _ALIAS.findall(text):
        aliases[f"{package}.{name}"] = target
    for name, body in _STRUCT.findall(text):
        fields: Fields = {}
        for match in _FIELD.finditer(body):
            json_name = match["json"].partition(",")[0]
            if json_name != "-":
                fields[match["number"]] = [json_name, _qualified(match["type"], package)]
        types[f"{package}.{name}"] = fields


def _qualified(go_type: str, package: str) -> str:
    """`[]*v1.Taint` → `[]core.v1.Taint`; scalars become one letter."""
    bare = go_type.lstrip("*")
    if bare in _SCALARS:
        return _SCALARS[bare]
    if bare.startswith("[]"):
        return "[]" + _qualified(bare[2:], package)
    if bare.startswith("map["):
        return "{}" + _qualified(bare.partition("]")[2], package)
    prefix, dot, name = bare.rpartition(".")
    return f"{_PACKAGES.get(prefix, prefix)}.{name}" if dot else f"{package}.{name}"


def _resolve(code: str, types: dict[str, Fields], aliases: dict[str, str]) -> str:
    """Follow aliases to a struct, a scalar or a known special type."""
    for mark in ("[]", "{}"):
        if code.startswith(mark):
            return mark + _resolve(code[2:], types, aliases)
    if code in types or code not in aliases:
        return code
    target = aliases[code]
    if target == "[]string" and code.endswith(".ExtraValue"):
        return "extra"  # a message around the list
    return _resolve(_qualified(target, code.rpartition(".")[0]), types, aliases)


def main(api: Path, machinery: Path) -> dict[str, Fields]:
    """The table of every message that the served kinds reach."""
    types: dict[str, Fields] = {}
    aliases: dict[str, str] = {}
    _read(machinery / "pkg/apis/meta/v1/types.go", "meta.v1", types, aliases)
    groups = {resource.group.partition(".")[0] or "core" for resource in RESOURCES} | set(_EXTRA_GROUPS)
    for group in sorted(groups):
        _read(api / group / "v1/types.go", f"{group}.v1", types, aliases)
    wanted = [f"{resource.group.partition('.')[0] or 'core'}.v1.{resource.kind}" for resource in RESOURCES]
    wanted += ["meta.v1.DeleteOptions", "policy.v1.Eviction", "authentication.v1.TokenRequest", "autoscaling.v1.Scale"]
    table: dict[str, Fields] = {}
    while wanted:
        name = wanted.pop()
        if name in table or name not in types:
            continue
        table[name] = {number: [field, _resolve(code, types, aliases)] for number, (field, code) in types[name].items()}
        wanted += [code.removeprefix("[]").removeprefix("{}") for _, code in table[name].values()]
    return dict(sorted(table.items()))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2])), separators=(",", ":")) + "\n")

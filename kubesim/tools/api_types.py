"""Write kubesim/apiserver/types.json: the built-in kinds' types, as the API server decodes them.

    python -m kubesim.tools.api_types KUBECONFIG GO_MODULE

KUBECONFIG is that of a running control plane of the wanted release, with a client certificate. GO_MODULE is a folder
whose go.mod requires k8s.io/api and k8s.io/apimachinery of that release; Go has to be on PATH.

The server's OpenAPI documents have the fields, their types and how they merge. The tags of the Go types alone have
whether an empty value is a value, and whether it is written at all. Only facts are taken: names, types and markers, no
descriptions.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from kubesim.apiserver.resources import RESOURCES

Json = dict[str, Any]
TARGET = Path(__file__).resolve().parents[1] / "apiserver" / "types.json"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "IntOrString",
    f"{_META}Time": "Time",
    f"{_META}MicroTime": "MicroTime",
    f"{_META}FieldsV1": "any",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
}
# Kinds of bodies that are no resource of their own.
_BODIES = (
    ("policy", "v1", "Eviction"),
    ("autoscaling", "v1", "Scale"),
    ("authentication.k8s.io", "v1", "TokenRequest"),
)
_FIELD = re.compile(r'^(?:\w+\s+)?(?P<type>[\w.*\[\]]+)\s+`[^`]*json:"(?P<tag>[^"]*)"')
_STRUCT = re.compile(r"^type (\w+) struct \{")


@dataclass(frozen=True)
class GoField:
    """A Go field's type and tag."""

    type: str
    options: tuple[str, ...]

    @property
    def pointer(self) -> bool:
        return self.type.startswith("*")


def schemas(kubeconfig: Path) -> Json:
    """Every definition of the server's OpenAPI v3 documents."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    tls.load_cert_chain(user["client-certificate"], user["client-key"])
    found: Json = {}
    with httpx.Client(base_url=cluster["server"], verify=tls, trust_env=False, timeout=60.0) as http:
        for path, entry in http.get("/openapi/v3").json()["paths"].items():
            if path.startswith("api"):
                found |= http.get(entry["serverRelativeURL"]).json()["components"]["schemas"]
    return found


class GoTypes:
    """The structs of the Go modules that a module requires."""

    def __init__(self, module: Path) -> None:
        self._module = module
        self._folders: dict[str, Path] = {}
        self._packages: dict[Path, dict[str, dict[str, GoField]]] = {}

    def fields(self, definition: str) -> dict[str, GoField]:
        """Return the fields by JSON name, for a definition such as io.k8s.api.core.v1.Pod."""
        *path, name = definition.split(".")
        module, inside = ("api", path[3:]) if path[2] == "api" else ("apimachinery", path[3:])
        package = self._folder(module).joinpath(*inside)
        if package not in self._packages:
            self._packages[package] = dict(_structs(package))
        return self._flat(self._packages[package], name)

    def _flat(self, structs: dict[str, dict[str, GoField]], name: str) -> dict[str, GoField]:
        found: dict[str, GoField] = {}
        for field, spec in structs.get(name, {}).items():
            if field.startswith("+"):
                found |= self._flat(structs, spec.type.rpartition(".")[2])
            else:
                found[field] = spec
        return found

    def _folder(self, module: str) -> Path:
        if module not in self._folders:
            argv = ["go", "list", "-m", "-f", "{{.Dir}}", f"k8s.io/{module}"]
            listed = subprocess.run(argv, cwd=self._module, capture_output=True, text=True, check=True)
            self._folders[module] = Path(listed.stdout.strip())
        return self._folders[module]


def _structs(package: Path) -> Iterator[tuple[str, dict[str, GoField]]]:
    for path in package.glob("*.go"):
        if path.name.startswith("zz_") or path.name.endswith(("_test.go", ".pb.go")):
            continue
        fields: dict[str, GoField] | None = None
        for line in path.read_text(encoding="utf-8").splitlines():
            opened = _STRUCT.match(line)
            if opened:
                fields = {}
                yield opened[1], fields
            elif line.startswith("}"):
                fields = None
            elif fields is not None and (found := _FIELD.match(line.strip())):
                name, *options = found["tag"].split(",")
                # Inlined structs have no name of their own.
                fields[name or f"+{found['type']}"] = GoField(found["type"], tuple(options))


class Writer:
    """Collects the types that the served kinds reach."""

    def __init__(self, definitions: Json, go: GoTypes) -> None:
        self._definitions = definitions
        self._go = go
        self._needed: list[str] = []
        self.kinds: dict[str, str] = {}
        self.types: dict[str, Json] = {}

    def write(self) -> None:
        """Collect everything, from the kinds down."""
        by_kind: dict[tuple[str, str, str], Any] = {}
        for name, definition in self._definitions.items():
            for kind in definition.get("x-kubernetes-group-version-kind", []):
                by_kind.setdefault((kind["group"], kind["version"], kind["kind"]), name)
        wanted = dict.fromkeys([*((one.group, one.version, one.kind) for one in RESOURCES), *_BODIES])
        for group, version, kind in wanted:
            self.kinds[f"{group}/{version}/{kind}"] = self._reference(by_kind[group, version, kind])
        self.kinds["/v1/DeleteOptions"] = self._reference(f"{_META}DeleteOptions")
        while self._needed:
            name = self._needed.pop()
            if _short(name) not in self.types:
                self.types[_short(name)] = self._type(name)

    def _reference(self, name: str) -> str:
        self._needed.append(name)
        return _short(name)

    def _type(self, name: str) -> Json:
        definition, go = self._definitions[name], self._go.fields(name)
        fields: Json = {"@": "atomic"} if definition.get("x-kubernetes-map-type") == "atomic" else {}
        for field, schema in definition.get("properties", {}).items():
            fields[field] = self._field(schema, go.get(field), name)
        return fields

    def _field(self, schema: Json, go: GoField | None, owner: str) -> Any:
        text, rules = self._text(schema), _rules(schema)
        if go is None:
            return [text, rules] if rules else text
        struct = ("." in text and text[0] not in "[{") or text in ("Time", "MicroTime")
        # omitempty leaves out no struct, only omitzero does.
        left_out = "omitzero" in go.options or ("omitempty" in go.options and (go.pointer or not struct))
        marks = ("*" if go.pointer else "") + ("" if left_out else "!")
        bare = go.type.lstrip("*")
        if text == "string" and bare != "string" and "." not in bare:
            rules["go"] = f"{owner.split('.')[-2]}.{bare}"
        return [text + marks, rules] if rules else text + marks

    def _text(self, schema: Json) -> str:
        schema = schema["allOf"][0] if "allOf" in schema else schema
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return _SCALARS.get(name) or self._reference(name)
        kind = schema.get("type", "any")
        if kind == "array":
            return f"[]{self._text(schema['items'])}"
        if kind == "object" and "additionalProperties" in schema:
            return "{}" + self._text(schema["additionalProperties"])
        if kind == "integer":
            return str(schema.get("format", "int64"))
        if schema.get("format") == "byte":
            return "bytes"
        return {"string": "string", "boolean": "bool", "number": "float64"}.get(kind, "any")


def _rules(schema: Json) -> Json:
    rules: Json = {}
    match schema.get("x-kubernetes-list-type"):
        case "map":
            rules["keys"] = schema["x-kubernetes-list-map-keys"]
        case "set":
            rules["set"] = True
    if schema.get("x-kubernetes-map-type") == "atomic":
        rules["atomic"] = True
    strategy = schema.get("x-kubernetes-patch-strategy", "")
    if "merge" in strategy:
        rules["merge"] = schema.get("x-kubernetes-patch-merge-key", True)
    return rules


def _short(name: str) -> str:
    """core.v1.Pod of io.k8s.api.core.v1.Pod."""
    return ".".join(name.split(".")[-3:])


def main() -> int:
    """Write the file and return the exit status."""
    if len(sys.argv) != 3:
        sys.stderr.write("usage: python -m kubesim.tools.api_types KUBECONFIG GO_MODULE\n")
        return 64
    writer = Writer(schemas(Path(sys.argv[1])), GoTypes(Path(sys.argv[2])))
    writer.write()
    # One line for each type, so that a new release shows what it changed.
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in sorted(writer.types.items())]
    text = f'{{"kinds": {json.dumps(writer.kinds)},\n"types": {{\n' + ",\n".join(lines) + "\n}}\n"
    TARGET.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{TARGET}: {len(writer.types)} types of {len(writer.kinds)} kinds\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

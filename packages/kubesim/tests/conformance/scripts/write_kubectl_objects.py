"""kubectl end to end on objects: apply, create, replace, label, annotate, patch, delete, wait."""

from __future__ import annotations

import json

from tests.kubesim.conformance.exchange import Client
from tests.kubesim.conformance.scripts import script
from tests.kubesim.conformance.scripts.write_kubectl import Kubectl, configmap


@script
def kubectl_applies(c: Client) -> None:
    kubectl = Kubectl(c)
    file = ("-f", "-")
    kubectl("create by apply", "apply", *file, stdin=configmap("one", k="v", l="w"))
    kubectl("nothing changes", "apply", *file, stdin=configmap("one", k="v", l="w"))
    kubectl("a change and a removal", "apply", *file, stdin=configmap("one", k="x"))
    kubectl("what is there", "get", "configmap", "one", "-o", "jsonpath={.data}")
    kubectl("what was applied last", "get", "configmap", "one", "-o",
            r"jsonpath={.metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration}")  # fmt: skip
    kubectl("a dry run of the client", "apply", "--dry-run=client", *file, stdin=configmap("one", k="y"))
    kubectl("a dry run of the server", "apply", "--dry-run=server", *file, stdin=configmap("one", k="y"))
    kubectl("a dry run of what is new", "apply", "--dry-run=server", *file, stdin=configmap("new", k="y"))
    kubectl("a field that does not exist", "apply", *file, stdin={**configmap("two"), "dat": {"k": "v"}})
    kubectl(
        "a field that does not exist, warned of",
        "apply",
        "--validate=warn",
        *file,
        stdin={**configmap("two"), "dat": {"k": "v"}},
    )
    kubectl(
        "a field that does not exist, ignored",
        "apply",
        "--validate=ignore",
        *file,
        stdin={**configmap("three"), "dat": {"k": "v"}},
    )
    kubectl(
        "a key twice",
        "apply",
        *file,
        stdin="apiVersion: v1\nkind: ConfigMap\nmetadata: {name: t}\ndata: {k: a}\ndata: {k: b}\n",
    )
    kubectl("a wrong type", "apply", *file, stdin={**configmap("two"), "data": {"k": 5}})
    kubectl("a wrong name", "apply", *file, stdin=configmap("A_b"))
    kubectl(
        "a kind that does not exist",
        "apply",
        *file,
        stdin={"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "n"}},
    )
    kubectl(
        "a group that does not exist",
        "apply",
        *file,
        stdin={"apiVersion": "x.example.com/v1", "kind": "Nonsense", "metadata": {"name": "n"}},
    )
    kubectl(
        "a namespace that does not exist",
        "apply",
        *file,
        stdin={**configmap("n"), "metadata": {"name": "n", "namespace": "kubectl-none"}},
    )
    kubectl("several, one wrong", "apply", "-f", "a.json", "-f", "b.json", "-f", "c.json",
            files={"a.json": configmap("fa"), "b.json": configmap("B_"), "c.json": configmap("fc")})  # fmt: skip
    kubectl("what was not made by apply", "create", "configmap", "made", "--from-literal=k=v")
    kubectl("then applied", "apply", *file, stdin=configmap("made", k="w"))
    kubectl("a diff", "diff", *file, stdin=configmap("one", k="x"))
    kubectl("no such file", "apply", "-f", "none.yaml")
    kubectl.close()


@script
def kubectl_creates(c: Client) -> None:
    kubectl = Kubectl(c)
    kubectl("a configmap", "create", "configmap", "one", "--from-literal=k=v")
    kubectl("again", "create", "configmap", "one", "--from-literal=k=v")
    kubectl("a secret", "create", "secret", "generic", "s", "--from-literal=k=v", "-o", "jsonpath={.data}")
    kubectl("a service account", "create", "serviceaccount", "sa")
    kubectl("a token", "create", "token", "nobody")
    kubectl("a namespace", "create", "namespace", "kubectl-creates-1")
    kubectl("a role", "create", "role", "r", "--verb=get,list", "--resource=pods,pods/log")
    kubectl("a role binding", "create", "rolebinding", "r", "--role=r", "--serviceaccount=default:sa")
    kubectl("a priority class", "create", "priorityclass", "kubectl-creates", "--value=5")
    kubectl("a job", "create", "job", "j", "--image=busybox:1", "--", "true")
    kubectl("a budget", "create", "poddisruptionbudget", "p", "--selector=a=b", "--min-available=1")
    kubectl("a pod", "run", "p", "--image=busybox:1", "--restart=Never", "--command", "--", "sleep", "60")
    kubectl("a pod that is there", "run", "p", "--image=busybox:1", "--restart=Never")
    kubectl(
        "a pod, dry",
        "run",
        "q",
        "--image=busybox:1",
        "--dry-run=server",
        "-o",
        "jsonpath={.spec.restartPolicy} {.spec.schedulerName}",
    )
    kubectl(
        "a pod without an account",
        "run",
        "q",
        "--image=busybox:1",
        "--overrides",
        '{"spec":{"serviceAccountName":"nobody"}}',
    )
    kubectl("a pod with a wrong name", "run", "Q", "--image=busybox:1")
    kubectl(
        "several in one stream",
        "create",
        "-f",
        "-",
        stdin="\n".join(json.dumps(configmap(name)) for name in ("x", "one", "y")),
    )
    kubectl("replace what is not there", "replace", "-f", "-", stdin=configmap("none"))
    kubectl("replace", "replace", "-f", "-", stdin=configmap("one", k="w"))
    kubectl("replace by force", "replace", "--force", "-f", "-", stdin=configmap("one", k="x"))
    kubectl("what is there", "get", "configmap", "one", "-o", "jsonpath={.data}")
    kubectl(
        "all of it by name",
        "get",
        "configmaps,secrets,serviceaccounts,roles,rolebindings,poddisruptionbudgets",
        "-o",
        "name",
    )
    kubectl.close()


@script
def kubectl_changes(c: Client) -> None:
    kubectl = Kubectl(c)
    c.do("POST", f"/api/v1/namespaces/{c.ns}/configmaps", configmap("one", k="v"))
    one = ("configmap", "one")
    kubectl("label", "label", *one, "a=b")
    kubectl("label again", "label", *one, "a=b")
    kubectl("label otherwise", "label", *one, "a=c")
    kubectl("label over", "label", "--overwrite", *one, "a=c")
    kubectl("unlabel", "label", *one, "a-")
    kubectl("unlabel again", "label", *one, "a-")
    kubectl("a wrong label", "label", *one, "a=b c")
    kubectl("a wrong key", "label", *one, "a b=c")
    kubectl("label all", "label", "configmaps", "--all", "x=y")
    kubectl("label nothing", "label", "configmap", "none", "a=b")
    kubectl("list the labels", "label", *one, "--list")
    kubectl("annotate", "annotate", *one, "why=so it is")
    kubectl("annotate otherwise", "annotate", *one, "why=else")
    kubectl("annotate over", "annotate", "--overwrite", *one, "why=else")
    kubectl("unannotate", "annotate", *one, "why-")
    kubectl("merge patch", "patch", *one, "--type=merge", "-p", '{"data":{"k":"w"}}')
    kubectl("strategic patch", "patch", *one, "-p", '{"data":{"l":"x"}}')
    kubectl("JSON patch", "patch", *one, "--type=json", "-p", '[{"op":"remove","path":"/data/l"}]')
    kubectl(
        "a JSON patch that does not apply", "patch", *one, "--type=json", "-p", '[{"op":"remove","path":"/data/none"}]'
    )
    kubectl("a patch of nothing", "patch", *one, "-p", "{}")
    kubectl("a patch that is none", "patch", *one, "-p", "{")
    kubectl("a patch of what is not there", "patch", "configmap", "none", "-p", "{}")
    kubectl("a wrong patch", "patch", *one, "-p", '{"metadata":{"labels":{"a":"b c"}}}')
    kubectl("what is there", "get", *one, "-o", "jsonpath={.data} {.metadata.labels} {.metadata.annotations}")
    kubectl("delete", "delete", *one)
    kubectl("delete again", "delete", *one)
    kubectl("delete again, ignored", "delete", *one, "--ignore-not-found")
    kubectl("wait for what is not there", "wait", "--for=condition=Ready", "pod/none", "--timeout=1s")
    kubectl("wait for a deletion", "wait", "--for=delete", "configmap/one", "--timeout=5s")
    kubectl.close()

"""Creation: what comes back of each kind, with the server's defaults, names and bookkeeping filled in."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]


def _template(restart: str = "Always") -> Json:
    return {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"restartPolicy": restart, "containers": [{"name": "main", "image": "busybox"}]},
    }


@script
def create_defaults_core(c: Client) -> None:
    space = f"/api/v1/namespaces/{c.ns}"
    c.send("a configmap", "POST", f"{space}/configmaps", {"metadata": {"name": "one"}, "data": {"k": "v"}})
    binary = {"metadata": {"name": "two"}, "binaryData": {"k": "AAEC"}, "immutable": True}
    c.send("a configmap with binary data", "POST", f"{space}/configmaps", binary)
    c.send("an empty configmap", "POST", f"{space}/configmaps", {"metadata": {"name": "three"}, "data": {}})
    secret = {"metadata": {"name": "one"}, "data": {"a": "YQ=="}, "stringData": {"a": "b", "c": "d"}}
    c.send("a secret", "POST", f"{space}/secrets", secret)
    c.send("an empty secret", "POST", f"{space}/secrets", {"metadata": {"name": "two"}})
    c.send("a service account", "POST", f"{space}/serviceaccounts", {"metadata": {"name": "one"}})
    account = {"metadata": {"name": "two"}, "automountServiceAccountToken": False, "imagePullSecrets": [{"name": "s"}]}
    c.send("a service account that mounts nothing", "POST", f"{space}/serviceaccounts", account)
    event = {
        "metadata": {"name": "one"},
        "involvedObject": {"kind": "Pod", "namespace": c.ns, "name": "p"},
        "reason": "Why",
        "message": "So.",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "source": {"component": "me", "host": "h"},
    }
    c.send("an event", "POST", f"{space}/events", event)
    bare = {"metadata": {"name": "two"}, "involvedObject": {"namespace": c.ns}}
    c.send("an event of nothing", "POST", f"{space}/events", bare)
    c.send("a node", "POST", "/api/v1/nodes", {"metadata": {"name": "create-defaults-1"}})
    node = {
        "metadata": {"name": "create-defaults-2", "labels": {"kubernetes.io/hostname": "create-defaults-2"}},
        "spec": {"providerID": "x://y", "taints": [{"key": "a", "value": "b", "effect": "NoExecute"}]},
        "status": {"capacity": {"cpu": "4", "nvidia.com/gpu": "8"}, "nodeInfo": {"kubeletVersion": "v1.37.1"}},
    }
    c.send("a node with a status", "POST", "/api/v1/nodes", node)
    c.send("a namespace", "POST", "/api/v1/namespaces", {"metadata": {"name": "create-defaults-core-1"}})


@script
def create_defaults_pods(c: Client) -> None:
    pods = f"/api/v1/namespaces/{c.ns}/pods"

    def create(name: str, containers: list[Json], **spec: Any) -> None:
        c.send(f"pod {name}", "POST", pods, {"metadata": {"name": name}, "spec": {"containers": containers, **spec}})

    main = {"name": "main", "image": "busybox"}
    create("minimal", [main])
    create("bound", [main], nodeName="create-defaults-pods-1", restartPolicy="Never", schedulerName="nobody")
    create("host", [{**main, "ports": [{"containerPort": 9400}]}], hostNetwork=True, hostPID=True)
    create("tags", [{"name": f"t{number}", "image": image} for number, image in enumerate((
        "a:1", "a:latest", "reg:5000/a", "reg:5000/a:2", "a@sha256:" + "0" * 64,
        "a:latest@sha256:" + "0" * 64))])  # fmt: skip
    create("guaranteed", [{**main, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}])
    create("gpu", [{**main, "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": 0.5}}}])
    create("burstable", [{**main, "resources": {"requests": {"cpu": "100m"}}}, {"name": "other", "image": "b:1"}])
    create("quantities", [{**main, "resources": {
        "limits": {"cpu": "1.5", "memory": "2048Mi", "ephemeral-storage": "1e9"},
        "requests": {"memory": "0.5Gi"}}}])  # fmt: skip
    create("zero", [{**main, "resources": {"requests": {"cpu": "0"}}}])
    create(
        "tolerant",
        [main],
        tolerations=[
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"},
        ],
    )
    create("tolerates-all", [main], tolerations=[{"operator": "Exists"}])
    create("no-token", [main], automountServiceAccountToken=False, enableServiceLinks=False)
    create("grace", [main], terminationGracePeriodSeconds=0, activeDeadlineSeconds=60)
    create("sidecar", [main], initContainers=[{"name": "side", "image": "b:1", "restartPolicy": "Always"}])


@script
def create_defaults_pod_details(c: Client) -> None:
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    main: Json = {
        "name": "main",
        "image": "busybox:1",
        "env": [
            {"name": "A", "value": ""},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        ],
        "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 53, "protocol": "UDP", "hostPort": 5353}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}},
        "livenessProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": 3},
        "startupProbe": {"tcpSocket": {"port": "web"}, "failureThreshold": 30},
        "lifecycle": {"preStop": {"httpGet": {"path": "/stop", "port": 80}}},
        "securityContext": {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}},
        "volumeMounts": [
            {"name": "empty", "mountPath": "/empty"},
            {"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True},
        ],
        "command": ["sleep"],
        "args": ["60"],
    }
    volumes: list[Json] = [
        {"name": "empty", "emptyDir": {}},
        {"name": "ram", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": "kmsg", "hostPath": {"path": "/dev/kmsg"}},
        {"name": "config", "configMap": {"name": "one"}},
        {"name": "secret", "secret": {"secretName": "one"}},
        {"name": "down", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "one"}}, {"secret": {"name": "one"}}, {"serviceAccountToken": {"path": "t"}},
            {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "nameless"},
    ]  # fmt: skip
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100"]}]}]}}}  # fmt: skip
    spec = {
        "containers": [main],
        "volumes": volumes,
        "affinity": affinity,
        "nodeSelector": {"gpu": "yes"},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "securityContext": {"runAsUser": 0, "fsGroup": 1},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "readinessGates": [{"conditionType": "example.com/ok"}],
        "shareProcessNamespace": True,
    }
    c.send("everything", "POST", pods, {"metadata": {"name": "everything"}, "spec": spec})


@script
def create_defaults_workloads(c: Client) -> None:
    apps, batch = f"/apis/apps/v1/namespaces/{c.ns}", f"/apis/batch/v1/namespaces/{c.ns}"
    selected = {"selector": {"matchLabels": {"app": "x"}}, "template": _template()}

    def create(step: str, path: str, name: str, spec: Json) -> None:
        c.send(step, "POST", path, {"metadata": {"name": name}, "spec": spec})

    create("a job", f"{batch}/jobs", "one", {"template": _template("Never")})
    create("an indexed job", f"{batch}/jobs", "indexed", {
        "template": _template("OnFailure"), "completionMode": "Indexed", "completions": 3, "parallelism": 2,
        "backoffLimitPerIndex": 1, "suspend": True, "ttlSecondsAfterFinished": 60})  # fmt: skip
    create("a job with a deadline", f"{batch}/jobs", "deadline", {
        "template": _template("Never"), "parallelism": 2, "activeDeadlineSeconds": 9, "backoffLimit": 0})  # fmt: skip
    create("a job with a failure policy", f"{batch}/jobs", "policy", {
        "template": _template("Never"), "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}})  # fmt: skip
    create("a daemonset", f"{apps}/daemonsets", "one", selected)
    create("a daemonset that waits for deletion", f"{apps}/daemonsets", "two", {
        **selected, "updateStrategy": {"type": "OnDelete"}})  # fmt: skip
    create("a daemonset with a surge", f"{apps}/daemonsets", "three", {
        **selected, "updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}})  # fmt: skip


@script
def create_defaults_others(c: Client) -> None:
    name = "create-defaults-others"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases"
    lease = {"holderIdentity": "me", "leaseDurationSeconds": 40, "acquireTime": "2026-01-02T03:04:05.000006Z",
             "renewTime": "2026-01-02T03:04:05.000000Z"}  # fmt: skip
    c.send("a lease", "POST", leases, {"metadata": {"name": "one"}, "spec": lease})
    c.send("an empty lease", "POST", leases, {"metadata": {"name": "two"}})
    budgets = f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets"
    selector = {"matchLabels": {"a": "b"}}
    c.send(
        "a budget", "POST", budgets, {"metadata": {"name": "one"}, "spec": {"minAvailable": 1, "selector": selector}}
    )
    c.send("an empty budget", "POST", budgets, {"metadata": {"name": "two"}})
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subjects = [{"kind": "User", "name": "conformance-somebody"}, {"kind": "Group", "name": "g"},
                {"kind": "ServiceAccount", "name": "s", "namespace": c.ns}]  # fmt: skip
    c.send("a role", "POST", f"{rbac}/namespaces/{c.ns}/roles", {"metadata": {"name": "one"}, "rules": [rule]})
    c.send("an empty role", "POST", f"{rbac}/namespaces/{c.ns}/roles", {"metadata": {"name": "two"}})
    c.send("a role binding", "POST", f"{rbac}/namespaces/{c.ns}/rolebindings", {
        "metadata": {"name": "one"}, "roleRef": ref, "subjects": subjects})  # fmt: skip
    c.send("a role binding without groups", "POST", f"{rbac}/namespaces/{c.ns}/rolebindings", {
        "metadata": {"name": "two"}, "roleRef": {"kind": "Role", "name": "one"}})  # fmt: skip
    c.send("a cluster role", "POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    c.send("a cluster role that aggregates", "POST", f"{rbac}/clusterroles", {
        "metadata": {"name": f"{name}-2"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"no": "such"}}]}})  # fmt: skip
    c.send("a cluster role binding", "POST", f"{rbac}/clusterrolebindings", {
        "metadata": {"name": name}, "roleRef": ref, "subjects": subjects[:1]})  # fmt: skip
    priorities = "/apis/scheduling.k8s.io/v1/priorityclasses"
    c.send("a priority class", "POST", priorities, {"metadata": {"name": name}, "value": 7, "description": "Why."})


@script
def create_metadata(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    ignored = {
        "name": "ignored",
        "uid": "11111111-2222-3333-4444-555555555555",
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "deletionTimestamp": "2020-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
        "generation": 9,
        "selfLink": "/here",
    }
    c.send("the server's own metadata", "POST", configmaps, {"metadata": ignored})
    given = {"name": "given", "labels": {"a": "b", "c": ""}, "annotations": {"d": "e"}, "finalizers": ["example.com/f"],
             "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u",
                                  "controller": True}]}  # fmt: skip
    c.send("everything one may give", "POST", configmaps, {"metadata": given}, query={"dryRun": "All"})
    empty = {"name": "empty", "labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}
    c.send("empty collections", "POST", configmaps, {"metadata": empty})
    nulls = {"name": "nulls", "labels": None, "annotations": {"a": None}, "creationTimestamp": None}
    c.send("nulls", "POST", configmaps, {"metadata": nulls, "data": {"k": None, "l": "m"}})
    c.send("a resourceVersion", "POST", configmaps, {"metadata": {"name": "v", "resourceVersion": "1"}})
    c.send("resourceVersion 0", "POST", configmaps, {"metadata": {"name": "v0", "resourceVersion": "0"}})
    c.send("managedFields", "POST", configmaps, {"metadata": {"name": "m", "managedFields": [
        {"manager": "other", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
         "time": "2020-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:k": {}}}}]}, "data": {"k": "v"}},
         managed=True)  # fmt: skip
    job = {"metadata": {"name": "job", "generation": 7}, "spec": {"template": _template("Never")},
           "status": {"active": 5}}  # fmt: skip
    jobs = f"/apis/batch/v1/namespaces/{c.ns}/jobs"
    c.send(
        "a status and a generation",
        "POST",
        jobs,
        job,
        only=lambda body: [body["status"], body["metadata"]["generation"]],
    )
    pod = {"metadata": {"name": "pod"}, "spec": _template()["spec"], "status": {"phase": "Running"}}
    c.send("a pod's status", "POST", f"/api/v1/namespaces/{c.ns}/pods", pod, only=lambda body: body["status"])


@script
def create_names(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    c.send("a generated name", "POST", configmaps, {"metadata": {"generateName": "made-"}})
    c.send("a long generated name", "POST", configmaps, {"metadata": {"generateName": "x" * 100}},
           only=lambda body: len(
        body["metadata"]["name"]))  # fmt: skip
    c.send("a too long generated name", "POST", configmaps, {"metadata": {"generateName": "x" * 250}},
           only=lambda body: len(
        body["metadata"]["name"]))  # fmt: skip
    c.send("both names", "POST", configmaps, {"metadata": {"name": "given", "generateName": "made-"}})
    c.send("a wrong generated name", "POST", configmaps, {"metadata": {"generateName": "Made_"}}, only=lambda body: [
        cause["field"] for cause in body["details"]["causes"]])  # fmt: skip
    c.send("a generated name, dry", "POST", configmaps, {"metadata": {"generateName": "dry-"}}, query={"dryRun": "All"})
    c.send("no name", "POST", configmaps, {"metadata": {}})
    c.send("no metadata", "POST", configmaps, {"data": {"k": "v"}})
    c.send("no name, dry", "POST", configmaps, {"metadata": {}}, query={"dryRun": "All"})
    c.send("the name is taken", "POST", configmaps, {"metadata": {"name": "given"}})
    c.send("the name is taken, dry", "POST", configmaps, {"metadata": {"name": "given"}}, query={"dryRun": "All"})
    pod = {"metadata": {"generateName": "pod-"}, "spec": _template()["spec"]}
    c.send("a generated pod name", "POST", f"/api/v1/namespaces/{c.ns}/pods", pod, only=lambda body: body["metadata"])
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases"
    c.do("POST", leases, {"metadata": {"name": "taken"}})
    c.send("a lease's name is taken", "POST", leases, {"metadata": {"name": "taken"}})
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "create-names-1"}})
    c.send("a node's name is taken", "POST", "/api/v1/nodes", {"metadata": {"name": "create-names-1"}})
    c.send("a namespace's name is taken", "POST", "/api/v1/namespaces", {"metadata": {"name": c.ns}})


@script
def create_in_namespaces(c: Client) -> None:
    body = {"metadata": {"name": "one"}}
    nowhere = "/api/v1/namespaces/create-in-no-namespace"
    c.send("a missing namespace", "POST", f"{nowhere}/configmaps", body)
    c.send("a missing namespace, dry", "POST", f"{nowhere}/configmaps", body, query={"dryRun": "All"})
    pod = {"metadata": {"name": "one"}, "spec": _template()["spec"]}
    c.send("a pod in a missing namespace", "POST", f"{nowhere}/pods", pod)
    c.send("a lease in a missing namespace", "POST",
           "/apis/coordination.k8s.io/v1/namespaces/create-in-no-namespace/leases", body)  # fmt: skip
    c.send("a wrong object in a missing namespace", "POST", f"{nowhere}/configmaps", {"metadata": {"name": "A_"}})
    elsewhere = {"metadata": {"name": "one", "namespace": "elsewhere"}}
    c.send("the body's namespace is another", "POST", f"/api/v1/namespaces/{c.ns}/configmaps", elsewhere)
    c.send("a namespace in a cluster's object", "POST", "/api/v1/nodes", {
        "metadata": {"name": "create-in-namespaces", "namespace": "elsewhere"}})  # fmt: skip
    c.send("no namespace in the path", "POST", "/api/v1/configmaps", elsewhere)
    ending = c.namespace("create-in-ending-namespace")
    c.do(
        "POST",
        f"/api/v1/namespaces/{ending}/configmaps",
        {"metadata": {"name": "held", "finalizers": ["example.com/f"]}},
    )
    c.do("DELETE", f"/api/v1/namespaces/{ending}")
    c.until(f"/api/v1/namespaces/{ending}/configmaps/held", lambda body: "deletionTimestamp" in body["metadata"])
    c.send("a terminating namespace", "POST", f"/api/v1/namespaces/{ending}/configmaps", body)
    c.send("a pod in a terminating namespace", "POST", f"/api/v1/namespaces/{ending}/pods", pod)
    c.send("a generated name in a terminating namespace", "POST", f"/api/v1/namespaces/{ending}/configmaps", {
        "metadata": {"generateName": "x-"}}, only=lambda body: body["reason"])  # fmt: skip
    released = {"metadata": {"finalizers": None, "labels": {"still": "changeable"}}}
    c.send("an update in a terminating namespace", "PATCH", f"/api/v1/namespaces/{ending}/configmaps/held", released,
           content_type="application/merge-patch+json")  # fmt: skip
    c.until(f"/api/v1/namespaces/{ending}", lambda body: body is None)

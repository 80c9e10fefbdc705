"""kubectl end to end on nodes, pods and workloads as an operator meets them, and what it says of rights and kinds."""

from __future__ import annotations

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script
from tests.kubesim.conformance.scripts.write_kubectl import Kubectl


@script
def kubectl_nodes(c: Client) -> None:
    kubectl = Kubectl(c)
    name = "kubectl-nodes-1"
    info = {"kubeletVersion": "v1.37.1", "osImage": "Debian", "kernelVersion": "6.1",
            "containerRuntimeVersion": "virtual://1",
            "architecture": "amd64", "operatingSystem": "linux", "machineID": "m", "systemUUID": "s", "bootID": "b",
            "kubeProxyVersion": ""}  # fmt: skip
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok",
             "lastHeartbeatTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z"}  # fmt: skip
    status = {"capacity": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "8", "pods": "110"}, "conditions": [ready],
              "nodeInfo": info, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"},
                                              {"type": "Hostname", "address": name}]}  # fmt: skip
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"gpu": "h100"}}, "status": status})
    c.do("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)
    node = ("node", name)
    kubectl("get", "get", *node)
    kubectl("get wide", "get", *node, "-o", "wide")
    kubectl("taint", "taint", *node, "gpu=faulty:NoSchedule")
    kubectl("taint again", "taint", *node, "gpu=faulty:NoSchedule")
    kubectl("taint otherwise", "taint", *node, "gpu=sick:NoSchedule")
    kubectl("taint over", "taint", "--overwrite", *node, "gpu=sick:NoSchedule")
    kubectl("another effect", "taint", *node, "gpu:NoExecute")
    kubectl("a wrong effect", "taint", *node, "gpu=x:Perhaps")
    kubectl("the taints", "get", *node, "-o", "jsonpath={.spec.taints}")
    kubectl("untaint one effect", "taint", *node, "gpu:NoExecute-")
    kubectl("untaint", "taint", *node, "gpu-")
    kubectl("untaint again", "taint", *node, "gpu-")
    kubectl("taint by label", "taint", "nodes", "-l", "gpu=h100", "sick=yes:NoExecute")
    kubectl("untaint by label", "taint", "nodes", "-l", "gpu=h100", "sick-")
    kubectl("taint what is not there", "taint", "node", "kubectl-none", "a=b:NoSchedule")
    kubectl("cordon", "cordon", name)
    kubectl("cordon again", "cordon", name)
    kubectl("get a cordoned one", "get", *node)
    kubectl("uncordon", "uncordon", name)
    kubectl("uncordon again", "uncordon", name)
    kubectl("cordon what is not there", "cordon", "kubectl-none")
    kubectl(
        "columns",
        "get",
        *node,
        "-o",
        "custom-columns=NAME:.metadata.name,GPUS:.status.capacity.nvidia\\.com/gpu,TAINTS:.spec.taints",
    )
    kubectl("wait", "wait", "--for=condition=Ready", f"node/{name}", "--timeout=5s")
    kubectl("wait for a value", "wait", "--for=jsonpath={.spec.unschedulable}=true", f"node/{name}", "--timeout=1s")
    body = {"metadata": {"name": "bare"}, "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i:1"}]}}
    c.do("POST", f"/api/v1/namespaces/{c.ns}/pods", body)
    kubectl("describe", "describe", *node)
    kubectl("drain, refused", "drain", name, "--dry-run=server")
    kubectl("drain, dry", "drain", name, "--dry-run=server", "--force")
    kubectl("top", "top", "node", name)
    kubectl.close()


@script
def kubectl_pods(c: Client) -> None:
    kubectl = Kubectl(c)
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    spec = {"nodeName": "kubectl-pods-1", "containers": [{"name": "c", "image": "i:1",
                                                          "resources": {"limits": {"nvidia.com/gpu": 1}},
            "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80}]}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}]}  # fmt: skip
    c.do("POST", pods, {"metadata": {"name": "one", "labels": {"app": "x"}}, "spec": spec})
    running = {"phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}], "hostIP": "10.0.0.1",
               "startTime": "2026-01-02T03:04:05Z", "conditions": [{"type": "Ready", "status": "True"}],
               "containerStatuses": [{"name": "c", "ready": True, "restartCount": 2, "image": "i:1", "imageID": "i@1",
                                      "containerID": "virtual://1",
                                      "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}]}  # fmt: skip
    c.do("PATCH", f"{pods}/one/status", {"status": running}, MERGE)
    c.do("POST", pods, {"metadata": {"name": "two"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": c.ns, "name": "one"},
             "reason": "Started",
             "message": "Started container c", "type": "Normal",
             "source": {"component": "kubelet", "host": "kubectl-pods-1"}, "count": 1}  # fmt: skip
    c.do("POST", f"/api/v1/namespaces/{c.ns}/events", event)
    kubectl("get", "get", "pods")
    kubectl("get wide", "get", "pods", "-o", "wide")
    kubectl("get by label", "get", "pods", "-l", "app=x", "--no-headers")
    kubectl("get by field", "get", "pods", "--field-selector=status.phase=Pending", "-o", "name")
    kubectl("get labels", "get", "pods", "--show-labels", "-L", "app")
    kubectl("get nothing", "get", "pods", "-l", "none")
    kubectl("get what is not there", "get", "pod", "none")
    kubectl("get what does not exist", "get", "nonsense")
    kubectl(
        "get a template",
        "get",
        "pods",
        "-o",
        'go-template={{range .items}}{{.metadata.name}} {{.status.phase}}{{"\\n"}}{{end}}',
    )
    kubectl(
        "get sorted",
        "get",
        "pods",
        "--sort-by=.metadata.name",
        "-o",
        "custom-columns=N:.metadata.name,R:.status.containerStatuses[0].restartCount",
    )
    kubectl("get the status", "get", "pod", "one", "--subresource=status", "-o", "jsonpath={.status.phase}")
    kubectl("describe one that runs", "describe", "pod", "one")
    kubectl("describe one that waits", "describe", "pod", "two")
    kubectl("describe what is not there", "describe", "pod", "none")
    kubectl("events", "get", "events", "-o", "custom-columns=R:.reason,M:.message,O:.involvedObject.name")
    kubectl("events of a pod", "events", "--for=pod/one")
    kubectl("wait", "wait", "--for=condition=Ready", "pod/one", "--timeout=5s")
    kubectl("wait in vain", "wait", "--for=condition=Ready", "pod/two", "--timeout=1s")
    kubectl("wait for a phase", "wait", "--for=jsonpath={.status.phase}=Running", "pod/one", "--timeout=5s")
    kubectl("logs of one without a node", "logs", "two")
    kubectl("logs of no such container", "logs", "two", "-c", "none")
    kubectl("logs of what is not there", "logs", "none")
    kubectl("delete one that waits", "delete", "pod", "two")
    kubectl("delete one that runs", "delete", "pod", "one", "--wait=false")
    kubectl("get one that goes", "get", "pod", "one", "-o", "jsonpath={.metadata.deletionGracePeriodSeconds}")
    kubectl("delete it at once", "delete", "pod", "one", "--grace-period=0", "--force")
    kubectl("top", "top", "pods")
    kubectl.close()


@script
def kubectl_workloads(c: Client) -> None:
    kubectl = Kubectl(c)
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    apps = f"/apis/apps/v1/namespaces/{c.ns}"
    c.do("POST", f"{apps}/daemonsets", {"metadata": {"name": "ds"}, "spec": spec})
    kubectl("get", "get", "daemonsets")
    done = {"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 2,
            "updatedNumberScheduled": 2, "numberAvailable": 2}  # fmt: skip
    c.do("PATCH", f"{apps}/daemonsets/ds/status", {"status": done}, MERGE)
    kubectl("rollout status", "rollout", "status", "daemonset/ds", "--timeout=5s")
    kubectl("rollout restart", "rollout", "restart", "daemonset/ds")
    kubectl("rollout status, not yet", "rollout", "status", "daemonset/ds", "--timeout=1s")
    kubectl("set image", "set", "image", "daemonset/ds", "c=i:2")
    kubectl("set env", "set", "env", "daemonset/ds", "A=b")
    kubectl("set resources", "set", "resources", "daemonset/ds", "--limits=cpu=1,memory=1Gi")
    kubectl(
        "what is there",
        "get",
        "daemonset",
        "ds",
        "-o",
        "jsonpath={.spec.template.spec.containers[0].image} {.metadata.generation}",
    )
    kubectl("describe", "describe", "daemonset", "ds")
    kubectl("delete", "delete", "daemonset", "--all")
    kubectl("a template that changes", "apply", "-f", "-", stdin={
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}})  # fmt: skip
    kubectl("suspend a job", "patch", "job", "j", "-p", '{"spec":{"suspend":true}}')
    kubectl("delete a job", "delete", "job", "j")
    kubectl.close()


@script
def kubectl_asks(c: Client) -> None:
    """Rights, versions, and what it can tell of kinds."""
    kubectl = Kubectl(c)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{c.ns}"
    c.do("POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["pods", "pods/eviction"], "verbs": ["get", "create"]}]})  # fmt: skip
    c.do("POST", f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "conformance-kubectl"}]})  # fmt: skip
    user = "--as=conformance-kubectl"
    kubectl("can I", "auth", "can-i", "get", "pods", user)
    kubectl("can I not", "auth", "can-i", "delete", "pods", user)
    kubectl("can I evict", "auth", "can-i", "create", "pods", "--subresource=eviction", user)
    kubectl("can I anywhere", "auth", "can-i", "get", "pods", "--all-namespaces", user)
    kubectl("can I everything", "auth", "can-i", "*", "*")
    kubectl("can I what does not exist", "auth", "can-i", "get", "nonsense", user)
    kubectl("who am I", "auth", "whoami", user, "-o", "jsonpath={.status.userInfo}")
    kubectl("get what is forbidden", "get", "configmaps", user)
    kubectl("get all namespaces", "get", "pods", "-A", user)
    kubectl("delete what is forbidden", "delete", "pod", "x", user)
    kubectl("kinds by verb", "api-resources", "--namespaced=true", "--api-group=policy")
    kubectl("raw", "get", "--raw", f"/api/v1/namespaces/{c.ns}/configmaps/none")
    # Two lines: the rest is Kubernetes' documentation.
    kubectl("explain", "explain", "pod.spec.nodeName", lines=2)
    kubectl.close()

"""Generator of docs/profile.md from the cluster profile's own models: every key, its default, values and meaning.

`python -m gameday.cluster.docs` writes it. A test fails if the page on disk differs, another if the example does not
load.
"""

from __future__ import annotations

import sys

from gameday.cluster.profile import ClusterProfile
from gameday.documents.key_list import key_list
from gameday.documents.schema import DocumentSchema

EXAMPLE = """\
name: prod-eu-1
context: prod-eu-1                     # of the kubeconfig that kubectl would use
prometheus:
  url: https://prometheus.example.com
  bearer_token_file: /var/run/secrets/prometheus/token
alertmanager:
  url: https://alertmanager.example.com
  bearer_token_file: /var/run/secrets/prometheus/token
loki:
  url: https://loki.example.com
  tenant: gpu
  username: gameday
  password_env: LOKI_PASSWORD
loki_selector: '{k8s_namespace_name="dmesg-logging", k8s_daemonset_name="dmesg"}'
loki_node_label: k8s_node_name
prometheus_node_label: Hostname
alert_node_label: node
opt_in_label: gameday.dev/opt-in=true
quarantine_taint_keys: [trainy.konduktor.ai/faulty]
agent_image: registry.example.com/gpu-gameday/agent:1.4.0
agent_runtime_class: nvidia
traces: http://otel-collector.example.com:4318
openmetrics: /var/lib/node_exporter/game-days.prom
publish_to: s3://gpu-gamedays/prod-eu-1
notify: [slack-webhook/gpu-oncall]
guardrails:
  max_pool_percent: 5
  max_unhealthy_nodes: 3
  stop_severities: [page]
  windows:
    - {days: [mon, tue, wed, thu], start: "09:00", end: "16:00", zone: Europe/Berlin}
  freezes:
    - {start: 2026-12-18, end: 2027-01-04, zone: Europe/Berlin, why: end of the year}
approval:
  required: true
  within: 30m
"""

_HEAD = """\
# The cluster profile

One file describes one cluster: its servers, the credentials for them, the names of its labels, and the most that a
game-day there may cost. `gameday run`, `doctor`, `reap`, `coverage` and `post-mortem` take
it by `--profile FILE`, the flows by their parameter `profile`. `gameday validate FILE` checks it by itself, and
`gameday doctor` that it fits the cluster.

Five lines are enough for a first game-day:

```yaml
name: my-cluster
kubeconfig: /home/me/.kube/config
prometheus: {url: https://prometheus.example.com}
alertmanager: {url: https://alertmanager.example.com}
loki: {url: https://loki.example.com}
```

`gameday doctor --profile FILE` then says which other keys your cluster needs, most often `loki_selector`,
`loki_node_label`, `prometheus_node_label` and `agent_image`. The API server is reached as `kubectl` reaches it, also by
an exec plugin or a `proxy-url` (http, https or socks5).

The environment can set every key as well, and wins: `GAMEDAY_NAME`, a key within a key as `GAMEDAY_PROMETHEUS__URL`,
a list or a mapping as JSON. Without a file it is the whole profile, as in `deploy/cluster.yaml`. A file holds no
secret: it names the files or environment variables that hold the credentials. [A block of a Prefect
server](prefect.md#clusters-as-blocks), named `block:NAME` wherever a file is, holds the secrets themselves.

This page is made from the profile's own classes by `make docs`. An unknown key is refused, with the nearest known one.
A profile with most of them:
"""

# By the definition's name: the heading of its section, and the values of a key with that type.
_SECTIONS = {
    "Endpoint": ("Servers", "a [server](#servers)"),
    "ClusterGuardrails": ("Guardrails", "[guardrails](#guardrails)"),
    "TimeWindow": ("Windows", "a [window](#windows)"),
    "Freeze": ("Freezes", "a [freeze](#freezes)"),
    "Approval": ("Approval", "[approval](#approval)"),
    "GuestAddress": ("Guest", "a [guest](#guest)"),
}


def page() -> str:
    """Return the whole page; it depends only on the classes."""
    schema = ClusterProfile.model_json_schema(schema_generator=DocumentSchema)
    definitions = schema["$defs"]
    references = {name: takes for name, (_, takes) in _SECTIONS.items()}
    lines = [_HEAD, "```yaml", f"{EXAMPLE}```\n", "## Keys\n"]
    lines += key_list(schema, definitions, references=references)
    for name, (heading, _) in _SECTIONS.items():
        lines += [f"\n## {heading}\n", " ".join(definitions[name]["description"].split()) + "\n"]
        lines += key_list(definitions[name], definitions, references=references)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())

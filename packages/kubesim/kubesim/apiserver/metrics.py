"""The server's own /metrics: request counts and bytes by client."""

from __future__ import annotations

from collections import Counter

_HEADERS = (
    ("apiserver_request_total", "counter", "Requests by verb, resource, subresource, user agent program and code."),
    ("apiserver_response_bytes_total", "counter", "Bytes of whole responses (watches and logs not included)."),
)


class Metrics:
    """Counts requests; rendered in Prometheus' text format."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str, str, int]] = Counter()
        self._bytes: Counter[tuple[str, str, str, str]] = Counter()

    def count(self, verb: str, resource: str, subresource: str, client: str, code: int, size: int) -> None:
        """Count an answered request; `size` in bytes, 0 when streamed."""
        self._requests[verb, resource, subresource, client, code] += 1
        self._bytes[verb, resource, subresource, client] += size

    def render(self, objects: dict[str, int], watches: int) -> str:
        """Return the metrics page; `objects` counts stored objects by kind, `watches` open watches."""
        lines: list[str] = []
        for name, kind, text in _HEADERS:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            if name == "apiserver_request_total":
                for (*labels, code), value in sorted(self._requests.items()):
                    lines.append(f'{name}{{{_labels(*labels)},code="{code}"}} {value}')
            else:
                lines += [f"{name}{{{_labels(*key)}}} {value}" for key, value in sorted(self._bytes.items())]
        lines += [
            "# HELP apiserver_resource_objects Stored objects by kind.",
            "# TYPE apiserver_resource_objects gauge",
        ]
        for key, value in sorted(objects.items()):
            plural, _, group = key.partition(".")
            lines.append(f'apiserver_resource_objects{{group="{group}",resource="{plural}"}} {value}')
        lines += ["# HELP apiserver_longrunning_requests Open watches.", "# TYPE apiserver_longrunning_requests gauge"]
        return "\n".join([*lines, f'apiserver_longrunning_requests{{verb="WATCH"}} {watches}', ""])


def _labels(verb: str, resource: str, subresource: str, client: str) -> str:
    safe = client.replace("\\", "").replace('"', "").replace("\n", "")
    return f'verb="{verb}",resource="{resource}",subresource="{subresource}",client="{safe}"'

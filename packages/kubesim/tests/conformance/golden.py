"""The recorded answers of the real server: one file for each script, one line for each exchange.

    python -m json.tool --json-lines tests/kubesim/conformance/golden/SCRIPT.jsonl    # laid out for reading

A line leaves out what is the same in nearly every answer, and nothing else: `expand` gives back the whole exchange.
What the script sent is in the script; a line has its method, its path and a digest of everything, so that a script
that was changed does not fit its old recording.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]
GOLDEN = Path(__file__).parent / "golden"
_USUAL_HEADERS = {"Cache-Control": "no-cache, private", "Content-Type": "application/json"}
_USUAL_FAILURE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
_LEADING_KEYS = ("step", "request", "status", "headers")


def read(script: str, folder: Path = GOLDEN) -> list[Json]:
    """Return a script's recorded exchanges in full.

    Raises:
        FileNotFoundError: The script was never recorded.
    """
    lines = (folder / f"{script}.jsonl").read_text(encoding="utf-8").splitlines()
    return [expand(json.loads(line)) for line in lines]


def write(script: str, exchanges: list[Json], folder: Path = GOLDEN) -> None:
    """Record the exchanges of a script, as `play` returns them."""
    lines = [json.dumps(_ordered(compact(one)), ensure_ascii=False, separators=(",", ":")) for one in exchanges]
    (folder / f"{script}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def summarize(request: Json) -> str:
    """Return a request's method and path, and a digest of it where it has more than these."""
    if "kubectl" in request:
        shown, rest = f"kubectl {request['kubectl']}", {key: request[key] for key in request if key != "kubectl"}
    else:
        shown = f"{request['method']} {request['path']}"
        rest = {key: request[key] for key in request if key not in ("method", "path")}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:8]
    return f"{shown} #{digest}" if rest else shown


def compact(exchange: Json) -> Json:
    """Return an exchange without the headers and the parts of a failure that nearly every answer has."""
    response = dict(exchange["response"])
    line: Json = {"step": exchange["step"], "request": exchange["request"]}
    if "status" in response:
        line["status"] = response.pop("status")
        headers = response.pop("headers", {})
        unusual = {name: value for name, value in headers.items() if _USUAL_HEADERS.get(name) != value}
        unusual |= {name: None for name in _USUAL_HEADERS if name not in headers}
        if unusual:
            line["headers"] = unusual
        if _is_usual_failure(response.get("body"), line["status"]):
            failure = response.pop("body")
            line["failure"] = {key: failure[key] for key in failure if key not in (*_USUAL_FAILURE, "code")}
    return line | response


def expand(line: Json) -> Json:
    """Return the exchange that `compact` made a line of."""
    line = dict(line)
    exchange: Json = {"step": line.pop("step"), "request": line.pop("request")}
    response: Json = {}
    if "status" in line:
        response["status"] = line.pop("status")
        headers = _USUAL_HEADERS | line.pop("headers", {})
        if headers := {name: value for name, value in headers.items() if value is not None}:
            response["headers"] = headers
        if "failure" in line:
            response["body"] = {**_USUAL_FAILURE, "code": response["status"], **line.pop("failure")}
    return exchange | {"response": response | line}


def _is_usual_failure(body: Any, status: int) -> bool:
    if not isinstance(body, dict) or type(body.get("code")) is not int or body["code"] != status:
        return False
    return all(body.get(key) == value for key, value in _USUAL_FAILURE.items())


def _ordered(line: Json) -> Json:
    """Put the step first and sort everything else, so that a line differs only where an answer does."""
    names = [*(name for name in _LEADING_KEYS if name in line), *sorted(line.keys() - {*_LEADING_KEYS})]
    return {name: json.loads(json.dumps(line[name], sort_keys=True)) for name in names}

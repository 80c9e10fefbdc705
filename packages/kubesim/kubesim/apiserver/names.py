"""The rules for names, labels and annotations, with the real server's messages."""

from __future__ import annotations

import re

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN_HINT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN.pattern}')"
)
_LABEL_HINT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL.pattern}')"
)
_QUALIFIED_HINT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED.pattern}')"
)
_VALUE_HINT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_QUALIFIED.pattern})?')"
)
_LABEL_MAX = 63
_SUBDOMAIN_MAX = 253


def label_problems(text: str) -> list[str]:
    """Return the reasons why a text is no DNS label."""
    problems = [f"must be no more than {_LABEL_MAX} characters"] if len(text) > _LABEL_MAX else []
    return problems if _LABEL.fullmatch(text) else [*problems, _LABEL_HINT]


def subdomain_problems(text: str) -> list[str]:
    """Return the reasons why a text is no DNS subdomain."""
    problems = [f"must be no more than {_SUBDOMAIN_MAX} characters"] if len(text) > _SUBDOMAIN_MAX else []
    return problems if _SUBDOMAIN.fullmatch(text) else [*problems, _SUBDOMAIN_HINT]


def qualified_problems(text: str) -> list[str]:
    """Return the reasons why a text is no label's key."""
    if text.count("/") > 1:
        hint = _QUALIFIED_HINT
        return [f"a valid label key {hint} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    prefix, slash, name = text.rpartition("/")
    problems: list[str] = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash and len(prefix.encode()) > _SUBDOMAIN_MAX:
        problems.append(f"prefix part must be no more than {_SUBDOMAIN_MAX} bytes")
    elif slash and not _SUBDOMAIN.fullmatch(prefix):
        problems.append(f"prefix part {_SUBDOMAIN_HINT}")
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > _LABEL_MAX:
        problems.append(f"name part must be no more than {_LABEL_MAX} bytes")
    return problems if _QUALIFIED.fullmatch(name) else [*problems, f"name part {_QUALIFIED_HINT}"]


def value_problems(text: str) -> list[str]:
    """Return the reasons why a text is no label's value."""
    problems = [f"must be no more than {_LABEL_MAX} bytes"] if len(text.encode()) > _LABEL_MAX else []
    return problems if not text or _QUALIFIED.fullmatch(text) else [*problems, _VALUE_HINT]

"""The page docs/expectations.md, made from the expectations' own classes by `python -m gameday.expect.docs`.

A test compares it with the page on disk. Expectations of other people's packages are not on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from gameday.documents.key_list import key_list
from gameday.documents.schema import DocumentSchema
from gameday.expect.base import NO_ORDER, Expectation
from gameday.expect.registry import found_expectations

_HEAD = """\
# Signals that a plan can expect

One section for each key under `expect` that awaits a signal of the target. The other keys are in [plans](plans.md).
Every signal is judged in the same way. It must come within its bound of the fault, by its own time stamp where it has
one. If it has a second bound, it must be gone within that time of the remediation's end. If the run could not watch for
it, or ended before, the verdict is *unknown*.

This page is made from the expectations' own classes by `make docs`. [Extending](extending.md#expectations) shows how a
package of your own adds one.
"""


def page() -> str:
    """Return the whole page; the same bytes for the same classes."""
    parts = {part for part in found_expectations().documented.values() if part.order < NO_ORDER}
    sections = ["\n".join(_section(part)) for part in sorted(parts, key=lambda part: (part.order, part.__name__))]
    return "\n".join([_HEAD, *sections])


def _section(part: type[Expectation]) -> Iterator[str]:
    """Yield the lines of a part: its keys, and those of each model of their values."""
    schema = part.model_json_schema(schema_generator=DocumentSchema)
    yield f"## {', '.join(f'`{key}`' for key in part.model_fields)}\n"
    yield (sys.modules[part.__module__].__doc__ or "").strip() + "\n"
    yield from key_list(schema, schema["$defs"])
    for model in schema["$defs"].values():
        if "properties" in model:
            yield ""
            yield from key_list(model, schema["$defs"])
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page())

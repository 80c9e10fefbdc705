"""The arms of a plan: named changes of a few of its fields, played one after the other and compared.

An arm's changes are laid over the plan as a JSON Merge Patch (RFC 7396): a mapping is merged key by key, a list or a
value takes the place of the plan's, and null takes the key out. One case differs: a fault of another `type` takes the
place of the whole fault, because the keys of two types have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from gameday.documents.fields import PLAN_NAME, DocumentModel, conflict
from gameday.documents.problems import dotted
from gameday.documents.source import Path, Place, Source
from gameday.plan.rehearsal import SETTABLE_AS_IT_RUNS

SETTABLE = ("detector", "expect", "fault", "qa", "recover", "rehearsal", "settings")
"""The keys of a plan that an arm may change. Targets, baseline, guardrails and approval are the same for all arms: only
then is a difference between two arms the arm's, and none of them may do more to the cluster than the plan allows."""

MOST_ARMS = 8
"""Columns that a page can show beside each other."""

CheckName = Annotated[str, Field(min_length=1, max_length=64)]


class Arm(DocumentModel):
    """A side of a comparison: what it changes, and which expectations may break and must break in it."""

    name: str = Field(pattern=PLAN_NAME, max_length=30)
    """Name of the arm: lower-case letters, digits and `-`. Its game-days bear the plan's name and this one."""
    title: str = Field(default="", max_length=80)
    """Head of the arm's column; empty: its name."""
    set: dict[str, Any] = Field(default={}, json_schema_extra={"propertyNames": {"enum": list(SETTABLE)}})
    """Keys of the plan with other values, written as in the plan. Only detector, expect, fault, qa, recover, rehearsal
    and settings may be set."""
    may_break: tuple[CheckName, ...] = ()
    """Checks, such as `alert-fires`, that may break or stay unjudged in this arm: the comparison does not fail for
    them."""
    must_break: tuple[CheckName, ...] = ()
    """Checks that must break in this arm, a negative control: one that holds fails the comparison, because it shows
    that the experiment cannot tell the arms apart."""

    @property
    def heading(self) -> str:
        """The title, or the name of an arm without one."""
        return self.title or self.name

    @property
    def rehearsal(self) -> dict[str, Any]:
        """The keys of the plan's `rehearsal` that this arm changes, as it writes them."""
        changed = self.set.get("rehearsal")
        return changed if isinstance(changed, dict) else {}

    def changes(self) -> list[str]:
        """Return the changes as lines for people, such as `fault.gpu: 3`."""
        return [f"{dotted(path)}: {_written(value)}" for path, value in _leaves(self.set)]

    @model_validator(mode="after")
    def _sets_what_may_differ(self) -> Arm:
        for key in self.set:
            if key not in SETTABLE:
                raise conflict(
                    ("set", key), f"an arm cannot set this: arms may differ in {', '.join(SETTABLE)}, and nothing else"
                )
        for key in self.rehearsal:
            if key not in SETTABLE_AS_IT_RUNS:
                raise conflict(
                    ("set", "rehearsal", key),
                    f"all arms are played in one lab, which can change {', '.join(SETTABLE_AS_IT_RUNS)} as it runs: "
                    "write this in the plan's own `rehearsal`",
                )
        for number, check in enumerate(self.must_break):
            if check in self.may_break:
                raise conflict(("must_break", number), "it cannot both be free to break and have to: name it once")
        return self


class ExpectedRatio(DocumentModel):
    """A bound on the ratio of one arm's figure to another arm's, or a published value for that ratio."""

    figure: str = Field(min_length=1, max_length=120)
    """Name of the figure, as the comparison's page has it."""
    of: str
    """Name of the arm with the median that is divided."""
    against: str
    """Name of the arm with the median that it is divided by."""
    at_least: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Smallest ratio allowed."""
    at_most: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Largest ratio allowed."""

    published: str = Field(default="", max_length=120)
    """Finding of others, such as `the talk saw about 2`: shown beside the ratio and not a bound. A ratio with one needs
    no bound."""

    @property
    def is_bound(self) -> bool:
        """True if the ratio can fail the comparison."""
        return self.at_least is not None or self.at_most is not None

    @property
    def bound(self) -> str:
        """The bound for people, such as `1.7 to 2.3`; empty if there is none."""
        if not self.is_bound:
            return ""
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:g} to {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"

    def holds(self, ratio: float) -> bool:
        """Return True if a ratio is within the bound."""
        return (self.at_least is None or ratio >= self.at_least) and (self.at_most is None or ratio <= self.at_most)

    @model_validator(mode="after")
    def _bounds_something(self) -> ExpectedRatio:
        if not (self.is_bound or self.published):
            raise conflict(
                ("figure",),
                "a ratio without a bound holds nothing: write at_least, at_most, or both; or `published`",
            )
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise conflict(("at_least",), "no ratio is at least this and at most less: swap the two")
        if self.of == self.against:
            raise conflict(("against",), "an arm is as large as itself: name another one")
        return self


class PublishedFigure(DocumentModel):
    """A value that others have published for a figure: shown beside it and not a bound."""

    figure: str = Field(min_length=1, max_length=120)
    """Name of the figure, as the comparison's page has it."""
    value: str = Field(min_length=1, max_length=120)
    """The published value in a few words, such as `30-40 % less after a restart`."""
    source: str = Field(min_length=1, max_length=200)
    """The publication, and where in it."""


class Arms(DocumentModel):
    """A comparison: the arms, how often each is played, and the seed that chooses the nodes for all of them."""

    compare: tuple[Arm, ...] = Field(json_schema_extra={"minItems": 2, "maxItems": MOST_ARMS})
    """The arms; the first is what the others are compared with."""
    repetitions: int = Field(default=1, ge=1, le=10)
    """Number of times that each arm is played. The order is reversed every second time, so that a drift over the hours
    favours no arm."""
    seed: int = 1
    """Seed that chooses the nodes once, for all arms and repetitions."""

    expect: tuple[ExpectedRatio, ...] = Field(default=(), max_length=50)
    """Bounds on ratios of the arms' figures: one that does not hold fails the comparison, and one that was not measured
    leaves it unknown. A ratio without a bound is only shown beside what others found."""
    published: tuple[PublishedFigure, ...] = Field(default=(), max_length=20)
    """Values that others have published, to be read beside the figures of the arms."""

    def order(self) -> list[tuple[int, Arm]]:
        """Return the game-days to play, each as its repetition, counted from 1, and its arm: A B C, then C B A."""
        return [
            (repetition, arm)
            for repetition in range(1, self.repetitions + 1)
            for arm in (self.compare if repetition % 2 else reversed(self.compare))
        ]

    @model_validator(mode="after")
    def _can_be_compared(self) -> Arms:
        if not 2 <= len(self.compare) <= MOST_ARMS:
            raise conflict(("compare",), f"a comparison has 2 to {MOST_ARMS} arms, and here are {len(self.compare)}")
        seen: set[str] = set()
        for number, arm in enumerate(self.compare):
            if arm.name in seen:
                raise conflict(("compare", number, "name"), f"two arms are called {arm.name}: rename one")
            seen.add(arm.name)
        for number, expected in enumerate(self.expect):
            for key, name in (("of", expected.of), ("against", expected.against)):
                if name not in seen:
                    raise conflict(
                        ("expect", number, key), f"no arm is called {name}: choose {', '.join(sorted(seen))}"
                    )
        return self


def source_of_arm(source: Source, number: int, arm: Arm) -> Source:
    """Return the plan's document as the arm changes it; keys that the arm sets have their place in the arm.

    Args:
        source: The plan's document.
        number: The arm's place in `arms.compare`.
        arm: The arm, already validated.
    """
    base = {key: value for key, value in source.data.items() if key not in ("arms", "scales")}
    head = {"name": f"{source.data['name']}-{arm.name}", "title": f"{source.data['title']}: {arm.heading}"}
    return laid_over(source, base, arm.set, ("arms", "compare", number), head)


def laid_over(
    source: Source, base: Mapping[str, Any], patch: Mapping[str, Any], own: Path, head: Mapping[str, str]
) -> Source:
    """Return a document with the changes of one of its parts laid over it.

    Args:
        source: The document.
        base: Its keys that stay.
        patch: The part's `set`.
        own: The part's path in the document.
        head: The name and the title of the result.
    """
    data = {**merged(base, patch), **head}
    replaced = set(_replaced(base, patch))
    places: dict[Path, Place] = {
        path: place
        for path, place in source.places.items()
        if (not path or path[0] in base) and not any(path[:depth] in replaced for depth in range(1, len(path) + 1))
    }
    places |= {
        path[len(own) + 1 :]: place for path, place in source.places.items() if path[: len(own) + 1] == (*own, "set")
    }
    places[()] = source.place(own)
    places[("name",)] = source.place((*own, "name"))
    places[("title",)] = source.place((*own, "title"))
    return Source(data, places)


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with a patch laid over it, by the rules at the head of this module."""
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif _is_merged_into(base.get(key), value):
            result[key] = merged(base[key], value)
        else:
            result[key] = _without_nulls(value)
    return result


def _is_merged_into(base: object, value: object) -> bool:
    """Return True if the two are merged key by key: both are mappings, and not faults of two types."""
    if not (isinstance(base, dict) and isinstance(value, dict)):
        return False
    return "type" not in value or value["type"] == base.get("type")


def _without_nulls(value: Any) -> Any:
    return merged({}, value) if isinstance(value, dict) else value


def _replaced(base: Mapping[str, Any], patch: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    """Yield the paths at which the patch replaces the plan's own value."""
    for key, value in patch.items():
        if _is_merged_into(base.get(key), value):
            yield from _replaced(base[key], value, (*at, key))
        else:
            yield (*at, key)


def _leaves(value: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*at, key))
        else:
            yield (*at, key), inner


def _written(value: object) -> str:
    if value is None:
        return "taken out"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(inner)}" for key, inner in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)

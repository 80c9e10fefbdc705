"""The failure domain that a run strikes: a rack, a leaf switch, a power feed; its GPU nodes share a label's value."""

from __future__ import annotations

import math
import random
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from gameday.cluster.kubernetes import CANDIDATE_PAGE
from gameday.errors import RefusedError
from gameday.plan.targets import MOST_TARGETS, Domain
from gameday.run.run import ReadOnlyRun
from gameday.values.nodes import StruckDomain

_NAMED = 4


@dataclass(frozen=True)
class DomainChoice:
    """The domain, and its nodes in the seed's order."""

    struck: StruckDomain
    members: Sequence[str]
    """All GPU nodes of the domain, also those that have not opted in."""
    count: int
    """Number of targets among them."""


def choose_domain(run: ReadOnlyRun, domain: Domain, opted_in: dict[str, str], generator: random.Random) -> DomainChoice:
    """Choose the domain and how many of its nodes are struck.

    It costs two lists of names, and two reads if no domain is named.

    Args:
        run: The run.
        domain: The plan's.
        opted_in: Labels that a target must carry.
        generator: The seed's generator.

    Raises:
        RefusedError: Some nodes lack the label, no node has the value, or the share is larger than allowed.
        AdapterError: The cluster does not answer.
    """
    pool = {**run.profile.guardrails.pool_selector, **run.plan.targets.selector}
    _refuse_unlabelled(run, domain.label, pool)
    value = domain.value or _value_by_seed(run, domain.label, opted_in, generator)
    members = [one.name for one in run.kubernetes.candidates({**pool, domain.label: value})]
    if not members:
        look = f"kubectl get nodes -l {shlex.quote(_selector(pool))} -L {domain.label} shows the values"
        raise RefusedError(f"no GPU node carries {domain.label}={value}", look)
    if len(members) >= CANDIDATE_PAGE:
        why = f"{CANDIDATE_PAGE} nodes or more carry {domain.label}={value}"
        raise RefusedError(why, "choose a label of smaller domains in targets.domain.label")
    count = math.ceil(len(members) * domain.percent / 100)
    _refuse_too_many(run, count, f"{count} of the {len(members)} GPU nodes with {domain.label}={value}")
    generator.shuffle(members)
    struck = StruckDomain(label=domain.label, value=value, nodes=len(members), percent=domain.percent)
    return DomainChoice(struck, members, count)


def _refuse_unlabelled(run: ReadOnlyRun, label: str, pool: dict[str, str]) -> None:
    """Refuse a cluster if some GPU node lacks the label: the node may be in the domain without saying so."""
    lacking = [one.name for one in run.kubernetes.candidates(pool, lacking=label)]
    if not lacking:
        return
    at_least = " or more" if len(lacking) >= CANDIDATE_PAGE else ""
    names = ", ".join(lacking[:_NAMED]) + (" and others" if len(lacking) > _NAMED else "")
    raise RefusedError(
        f"{len(lacking)}{at_least} GPU nodes carry no label {label} ({names}): any of them may belong to the domain",
        f"kubectl get nodes -l {shlex.quote(f'{_selector(pool)},!{label}')} shows them; label them, or narrow "
        "targets.selector to nodes that have it",
    )


def _value_by_seed(run: ReadOnlyRun, label: str, opted_in: dict[str, str], generator: random.Random) -> str:
    """Return the value of the first opted-in node in the seed's order, so larger domains are chosen more often."""
    names = [one.name for one in run.kubernetes.candidates(opted_in)]
    if not names:
        own = next(f"{key}={required}" for key, required in opted_in.items())
        raise RefusedError(
            f"no node carries {_selector(opted_in)}",
            f"kubectl label node <node> {own} lets game-days touch it",
        )
    value: str = run.kubernetes.node(generator.choice(names)).metadata.labels.get(label, "")
    if not value:
        raise RefusedError(f"the label {label} of an opted-in node is empty", "name the domain in targets.domain.value")
    return value


def _refuse_too_many(run: ReadOnlyRun, count: int, what: str) -> None:
    """Refuse too many nodes before the targets are watched; the guardrail on nodes would only refuse after that."""
    of_plan, of_profile = run.plan.guardrails.max_nodes, run.profile.guardrails.max_nodes
    most = min(limit for limit in (of_plan, of_profile, MOST_TARGETS) if limit is not None)
    if count > most:
        raise RefusedError(
            f"the plan strikes {what}, and at most {most} may be broken (guardrails.max_nodes)",
            "lower targets.domain.percent, or raise guardrails.max_nodes in the plan and in the cluster profile",
        )


def _selector(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())

"""The cluster profile as a block of a Prefect server: typed, in one place for every worker, its secrets encrypted.

The block's fields are those of the profile's own model. Prefect checks a block's types when it is saved or edited in
its pages; the profile's own validators check it each time it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx
from prefect.blocks.core import Block
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from pydantic import BaseModel, ValidationError, create_model

from gameday.cluster.http_credentials import Credentials
from gameday.cluster.kubeconfig import embedded_kubeconfig
from gameday.cluster.profile import (
    BLOCK,
    BLOCK_NAME,
    SECRETS,
    ClusterProfile,
    Endpoint,
    explain_profile,
    read_profile_file,
)
from gameday.errors import AdapterError, ProfileError

SLUG = "gameday-cluster"
"""The block type's name in addresses and on the command line."""
_SERVERS = [
    name for name, field in ClusterProfile.model_fields.items() if field.annotation in (Endpoint, Endpoint | None)
]
_REFERENCES = frozenset(reference for references in SECRETS.values() for reference in references)


class _ClusterBlock(Block):
    _block_type_name: ClassVar[str] = "Gameday Cluster"
    _block_type_slug: ClassVar[str] = SLUG
    _description: ClassVar[str] = "A cluster for game-days: its servers, the credentials for them, and its guardrails."


_FIELDS: dict[str, Any] = {name: (field.annotation, field) for name, field in ClusterProfile.model_fields.items()}
ClusterBlock = create_model("ClusterBlock", __base__=_ClusterBlock, __module__=__name__, **_FIELDS)


def read_block(name: str) -> dict[str, Any]:
    """Return the content of a block of the Prefect server, with its secrets and not validated yet.

    Raises:
        ProfileError: There is none of that name, or the server cannot be asked.
    """
    _check_name(name)
    with _asked(f"{BLOCK}{name}"), get_client(sync_client=True) as client:
        try:
            return dict(client.read_block_document_by_name(name, SLUG).data)
        except ObjectNotFound:
            known = ", ".join(_names(client)) or "none"
            raise ProfileError(
                f"{BLOCK}{name}: the Prefect server {PREFECT_API_URL.value()} has no such block of type {SLUG}; "
                f"it has: {known}. `gameday cluster save {name} --profile FILE` stores it"
            ) from None


def block_names() -> list[str]:
    """Return the names of the clusters' blocks on the Prefect server. Raises ProfileError if it cannot be asked."""
    with _asked("the clusters' blocks"), get_client(sync_client=True) as client:
        return _names(client)


def save_block(name: str, file: Path, kubeconfig: Path | None) -> BaseModel:
    """Store a profile's file as a block of the Prefect server; a block of the same name is replaced.

    Files and variables that the profile names for a secret are read now: the block holds the secrets themselves, in
    fields that Prefect encrypts and never shows.

    Args:
        name: Lower-case letters, digits and dashes.
        file: The profile.
        kubeconfig: The kubeconfig, of which the chosen context is stored with it; None: the one that the profile names,
            if any.

    Returns:
        The block; a secret in it shows as `**********`.

    Raises:
        ProfileError: The name, the profile or a secret cannot be used, or the server cannot be asked.
    """
    _check_name(name)
    values = read_profile_file(file)
    try:
        ClusterProfile(**values)
        block = ClusterBlock(**_with_secrets(values, kubeconfig))
    except ValidationError as error:
        raise ProfileError(explain_profile(error, file)) from None
    except AdapterError as error:
        raise ProfileError(str(error)) from None
    with _asked(f"{BLOCK}{name}"):
        block.save(name, overwrite=True)
    return block


def _check_name(name: str) -> None:
    if not BLOCK_NAME.fullmatch(name):
        raise ProfileError(
            f"{BLOCK}{name}: a block's name is lower-case letters and digits, with dashes between them: prod-eu-1"
        )


def _with_secrets(values: Mapping[str, Any], kubeconfig: Path | None) -> dict[str, Any]:
    held: dict[str, Any] = dict(values)
    for key in (key for key, value in values.items() if key in _SERVERS and value):
        secrets = Credentials(Endpoint.model_validate(values[key])).secrets()
        held[key] = {one: value for one, value in values[key].items() if one not in _REFERENCES} | secrets
    named = held.pop("kubeconfig", None)
    if file := kubeconfig or (Path(named).expanduser() if named else None):
        held["kubeconfig_content"] = embedded_kubeconfig(file, values.get("context"))
    return held


def _names(client: SyncPrefectClient) -> list[str]:
    if SLUG not in {one.slug for one in client.read_block_types()}:
        return []
    found = client.read_block_documents_by_type(SLUG, include_secrets=False)
    return sorted(one.name for one in found if one.name)


@contextmanager
def _asked(what: str) -> Iterator[None]:
    """Turn errors of the Prefect server into messages. Raises ProfileError, also if the settings name no server."""
    url = PREFECT_API_URL.value()
    other = "`export PREFECT_API_URL=http://HOST:4200/api` names another one"
    if not url:
        raise ProfileError(
            f"{what}: blocks are kept by a Prefect server, and none is named: `export PREFECT_API_URL="
            "http://HOST:4200/api`, or give the profile as a file"
        )
    try:
        yield
    except httpx.TransportError:
        raise ProfileError(f"{what}: the Prefect server {url} does not answer; start it, or {other}") from None
    except httpx.HTTPStatusError as error:
        why = f"the Prefect server {url} refuses with {error.response.status_code}"
        raise ProfileError(
            f"{what}: {why}; `prefect block ls` tells whether it takes your credentials (PREFECT_API_AUTH_STRING, "
            "PREFECT_API_KEY)"
        ) from None
    except ValueError:  # invalid JSON, or JSON that does not fit the models
        raise ProfileError(f"{what}: {url} does not answer as a Prefect server; {other}") from None

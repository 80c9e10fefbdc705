"""`gameday cluster save | list`: cluster profiles stored as blocks at a Prefect server, for workers anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gameday.cli.help_page import HelpGroup, Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.text import printable


def register(app: typer.Typer) -> None:
    """Add the commands."""
    cluster = typer.Typer(
        cls=HelpGroup, help="Store cluster profiles, secrets included, at a Prefect server.", no_args_is_help=True
    )
    add_command(
        cluster,
        save,
        "gameday cluster save prod-eu-1 --profile cluster.yaml",
        "gameday cluster save prod-eu-1 --profile cluster.yaml --kubeconfig ~/.kube/config",
    )
    add_command(cluster, list_blocks, "gameday cluster list", name="list")
    app.add_typer(cluster, name="cluster", rich_help_panel=Panel.CLUSTER)


def save(
    name: Annotated[str, typer.Argument(help="Name of the block: lower-case letters, digits and dashes.")],
    profile: Annotated[Path, typer.Option(help="File of the cluster profile.")],
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Kubeconfig with the context to store, too; none: the one that the profile names."),
    ] = None,
) -> int:
    """Store a cluster profile as a block, its secrets in encrypted fields, in place of one of the same name.

    Files and variables that the profile names for a token or a password are read now, on this machine.
    """
    from gameday.cli.prefect_client import set_defaults

    set_defaults()
    from gameday.cluster.profile import BLOCK, ClusterProfile
    from gameday.cluster.profile_block import save_block

    block = save_block(name, profile, kubeconfig)
    typer.echo(f"stored {BLOCK}{name}:")
    said = block.model_dump(mode="json", include=set(ClusterProfile.model_fields), exclude_unset=True)
    for key, value in said.items():
        given = value if isinstance(value, dict) else {"": value}
        for inner, one in given.items():
            typer.echo(printable(f"  {key}{'.' if inner else ''}{inner}: {one}"))
    typer.echo(f"use it: gameday doctor --profile {BLOCK}{name}")
    return ExitCode.PASSED


def list_blocks() -> int:
    """Print the clusters' blocks of the Prefect server, as --profile takes them."""
    from gameday.cli.prefect_client import set_defaults

    set_defaults()
    from gameday.cluster.profile import BLOCK
    from gameday.cluster.profile_block import block_names
    from gameday.errors import ProfileError

    try:
        names = block_names()
    except ProfileError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    for name in names:
        typer.echo(f"{BLOCK}{printable(name)}")
    if not names:
        typer.echo("the Prefect server has no cluster's block: `gameday cluster save NAME --profile FILE` stores one")
    return ExitCode.PASSED

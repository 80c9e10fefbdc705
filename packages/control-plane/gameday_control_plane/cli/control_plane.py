"""`gameday control-plane`: look at the API servers, and at what slows down a client that LISTs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.doctor import show_prerequisites
from gameday.cli.game_day import Profile
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.text import shown

if TYPE_CHECKING:
    from gameday.guard.doctor.prerequisite import Prerequisite


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app, control_plane, "gameday control-plane --profile cluster.yaml", panel=Panel.CLUSTER, name="control-plane"
    )


def control_plane(
    profile: Profile = None,
    account: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="Follow the LISTs of this service account.")
    ] = "default/default",
    as_json: Annotated[bool, typer.Option("--json", help="For programs: a JSON list.")] = False,
) -> int:
    """Look at the API servers, and at what slows down a client that LISTs. Changes nothing.

    Exit code 0 when all is well; 2 when nothing failed and a check is unknown; 5 when a check failed.
    """
    return show_prerequisites([("", check) for check in _examine(profile, account)], as_json=as_json)


def _examine(profile: str | None, account: str) -> list[Prerequisite]:
    from gameday.cluster.profile import load_profile
    from gameday.errors import AdapterError
    from gameday.run.servers import Servers
    from gameday_control_plane.doctor import check_control_plane
    from gameday_control_plane.flow_control_seats import Account

    namespace, slash, name = account.partition("/")
    if not (namespace and slash and name):
        raise CommandError(f"--account {shown(account)}: write NAMESPACE/NAME, such as --account default/default")
    try:
        with closing(Servers(load_profile(profile))) as servers:
            followed = Account.of_service_account(namespace, name)
            return list(check_control_plane(servers.kubernetes, servers.prometheus, followed))
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None

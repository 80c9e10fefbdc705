"""A command: the message that we post before a game-day."""

from typing import Annotated

import typer

import gameday as gd  # loads each name at its first use, so that no other command waits for it


def register(app: typer.Typer) -> None:
    app.command()(announce)


def announce(plan: Annotated[str, typer.Argument(help="A shipped plan's name, or a plan file.")]) -> None:
    """Print the message that #gpu-oncall gets before a game-day."""
    loaded = gd.load_complete_plan(gd.find_plan(plan)).plan
    alerts = ", ".join(alert.name for alert in loaded.expect.alerts) or "none"
    typer.echo(f"Game-day: {loaded.title}. {loaded.hypothesis} Alerts to expect: {alerts}.")

"""`gameday prove`: from a kubeconfig to a verdict on the detectors that are installed there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.game_day import Reports, check_reports
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError, RefusedError
from gameday.exit_codes import ExitCode
from gameday_prove.values import Posture

if TYPE_CHECKING:
    from rich.console import Console
    from securesystemslib.signer import CryptoSigner

    from gameday.cluster.kubernetes import Kubernetes
    from gameday.detectors.models import DetectorProfile
    from gameday_prove.judge import Proof
    from gameday_prove.play import Order
    from gameday_prove.values import Surroundings

_STYLES = {"held": "green", "broken": "red", "unknown": "yellow"}
_MOST_SHOWN = 8


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        prove,
        "gameday prove",
        "gameday prove --node gpu-17 --yes",
        "gameday prove --posture quarantine --node gpu-17",
        panel=Panel.START,
    )


def prove(
    node: Annotated[str | None, typer.Option(help="The GPU node to play on.", show_default="the first fit one")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Play without asking; for a pipeline.")] = False,
    posture: Annotated[Posture, typer.Option(help="What the installed detectors may be made to do.")] = Posture.QUIET,
    image: Annotated[
        str, typer.Option(help="Image with sh, cat and sleep.", show_default="one that the node has")
    ] = "",
    detector: Annotated[
        list[str] | None,
        typer.Option(help="A detector that is there and cannot be seen, as under systemd; repeatable."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.", show_default="the current")] = None,
    look: Annotated[bool, typer.Option("--look", help="Only look, and say what would be played.")] = False,
    rights: Annotated[bool, typer.Option("--rights", help="Print the smallest rights, as a manifest.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove what a killed proof left.")] = False,
    evidence: Annotated[
        Path | None, typer.Option(help="Also write evidence into this file, for `gameday verify`.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Private key, in PEM, that signs the evidence.")] = None,
    reports: Reports = Path("reports"),
) -> int:
    """Write a few harmless GPU error lines into one node's kernel log, and say which detectors noticed.

    It needs a kubeconfig and nothing else. It first looks, read only, and says what will be played; nothing is written
    before you agree. Exit code 0 when all is as it should be, 1 when something was missed or acted wrongly.
    """
    if rights:
        from gameday_prove.rights import all_rights

        typer.echo(all_rights(), nl=False)
        return ExitCode.PASSED
    if key and not evidence:
        raise CommandError("--key signs evidence: add --evidence FILE")
    signer = _signer(key)
    out = console()
    kubernetes = _connect(context)
    try:
        if clean:
            return _clean(out, kubernetes)
        order = _prepared(out, kubernetes, node, image, detector or [], posture)
        if look:
            out.print("nothing was written", style="dim")
            return ExitCode.PASSED
        check_reports(reports)
        if not yes and not _agreed(out, order):
            raise RefusedError("nothing was written", "--yes agrees beforehand, for a pipeline")
        code = _play(out, kubernetes, order, reports / order.id)
        if evidence:
            _write_evidence(out, reports / order.id, evidence, signer)
        return code
    except RefusedError as error:
        raise CommandError(f"{error}{f'; {error.hint}' if error.hint else ''}", ExitCode.REFUSED) from None
    finally:
        kubernetes.close()


def _connect(context: str | None) -> Kubernetes:
    from gameday.cluster.kubernetes import Kubernetes
    from gameday.cluster.profile import ClusterProfile
    from gameday.errors import AdapterError
    from gameday_prove.rights import NAMESPACE

    # Unvalidated, because a profile names servers that a proof finds by itself, and takes values from the environment.
    profile = ClusterProfile.model_construct(name="prove", namespace=NAMESPACE, context=context)
    try:
        return Kubernetes(profile)
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None


def _signer(key: Path | None) -> CryptoSigner | None:
    """Read the key before anything is played. Raises CommandError."""
    if key is None:
        return None
    from gameday_prove.evidence import signer_of

    return signer_of(key)


def _write_evidence(out: Console, folder: Path, file: Path, signer: CryptoSigner | None) -> None:
    from gameday.plain_file import not_written
    from gameday_prove.evidence import write_evidence

    try:
        write_evidence(folder, file, signer)
    except OSError as error:
        raise CommandError(f"no evidence: {not_written(error, file)}", ExitCode.UNKNOWN) from None
    out.print(f"evidence: {file}, {'signed' if signer else 'not signed'}", soft_wrap=True)


def _prepared(
    out: Console, kubernetes: Kubernetes, node: str | None, image: str, detectors: list[str], posture: Posture
) -> Order:
    """Look, and say what would be played. Raises RefusedError and CommandError."""
    from gameday.detectors.load import load_detector
    from gameday.errors import AdapterError
    from gameday.run.record import new_run_id
    from gameday_prove.images import SMALL
    from gameday_prove.lines import lines_for
    from gameday_prove.look import Look
    from gameday_prove.play import Order

    for name in detectors:
        load_detector(name)  # refuses an unknown name with a suggestion
    try:
        around = Look(kubernetes).around(node, image, detectors)
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    _print_look(out, around)
    profiles = [load_detector(one.detector) for one in around.detectors]
    lines = lines_for(posture, profiles)
    if not lines:
        raise RefusedError(
            "the installed detectors take a node out of service for every line, so nothing can be played quietly",
            "play it on a node that may be quarantined: --posture quarantine",
        )
    chosen = image or around.image or SMALL
    order = Order(
        f"prove-{new_run_id()}", around, posture, tuple(lines), chosen, pulled=bool(image) or not around.image
    )
    _print_plan(out, order, profiles)
    return order


def _agreed(out: Console, order: Order) -> bool:
    import sys

    if not sys.stdin.isatty():
        raise RefusedError("nobody can be asked: standard input is no terminal", "--yes agrees beforehand")
    return typer.confirm(f"Play {len(order.lines)} lines on {order.around.node}?", default=False)


def _print_look(out: Console, around: Surroundings) -> None:
    from gameday_prove.rights import missing_rights

    fit = sum(not one.unfit for one in around.nodes)
    out.print(f"{around.server}, Kubernetes {around.version}", style="bold", soft_wrap=True)
    out.print(f"GPU nodes: {len(around.nodes)}, fit {fit}; {around.requests} requests", soft_wrap=True)
    for one in [one for one in around.nodes if one.unfit][:_MOST_SHOWN]:
        out.print(f"  not fit: {one.name}: {one.unfit}", soft_wrap=True)
    out.print("detectors:" if around.detectors else "detectors: none that is known here", soft_wrap=True)
    for detector in around.detectors:
        out.print(f"  {detector.detector}: {detector.title}; {detector.found_by or 'by your word'}", soft_wrap=True)
        for why in detector.blind:
            out.print(f"    blind on {around.node}? {why}", style="yellow", soft_wrap=True)
    if not around.detectors:
        out.print("  one that runs under systemd cannot be seen: --detector gpud", soft_wrap=True)
    _print_monitoring(out, around)
    for unseen in around.unseen:
        out.print(f"not seen: {unseen.what}: {unseen.why}", style="yellow", soft_wrap=True)
    if manifest := missing_rights(around.unseen):
        out.print(f"this would let it be seen:\n{manifest}", style="dim", soft_wrap=True)


def _print_monitoring(out: Console, around: Surroundings) -> None:
    prometheus = around.prometheus
    if prometheus is None:
        out.print("Prometheus: none was reached, so alerts are not judged", soft_wrap=True)
        return
    dead = [rule for rule in prometheus.rules if rule.never]
    manager = f", Alertmanager {around.alertmanager}" if around.alertmanager else ", no Alertmanager reached"
    out.print(
        f"Prometheus {prometheus.service}: {prometheus.all_rules} alerting rules, {len(prometheus.rules)} about GPUs "
        f"or nodes, {len(dead)} of these can never fire{manager}",
        soft_wrap=True,
    )
    for rule in dead[:_MOST_SHOWN]:
        out.print(f"  {rule.name}: {rule.never}", style="yellow", soft_wrap=True)
    if len(dead) > _MOST_SHOWN:
        out.print(f"  and {len(dead) - _MOST_SHOWN} more: prove.html", soft_wrap=True)
    if prometheus.firing:
        out.print(f"  firing already: {', '.join(prometheus.firing[:_MOST_SHOWN])}", style="yellow", soft_wrap=True)


def _print_plan(out: Console, order: Order, profiles: list[DetectorProfile]) -> None:
    from gameday_prove.lines import foreseen, must_go_by_hand, watch_for
    from gameday_prove.rights import NAMESPACE

    around = order.around
    out.print(f"\nto be played on {around.node}, posture {order.posture}:", style="bold", soft_wrap=True)
    longest = 0.0
    for line in order.lines:
        longest += watch_for(profiles, line).total_seconds()
        out.print(f"  {line.number}. Xid {line.xid} ({line.name}): {line.why}", soft_wrap=True)
        for profile in profiles:
            out.print(f"       {profile.name}: {foreseen(profile, line)}", soft_wrap=True)
    for left in must_go_by_hand(profiles, order.lines):
        out.print(f"  nothing takes this back but a person: {left}", style="yellow", soft_wrap=True)
    if order.posture is not Posture.QUIET:
        moved = ", ".join(around.work[:_MOST_SHOWN]) or "none"
        out.print(f"  pods that a drain would move: {len(around.work)} ({moved})", style="yellow", soft_wrap=True)
        if not around.bystanders:
            out.print("  no other GPU node is fit: the cluster would be without one", style="yellow", soft_wrap=True)
    pulled = ", which the node has to pull" if order.pulled else ", which the node has"
    out.print(
        f"  by a privileged pod in namespace {NAMESPACE}, image {order.image}{pulled}; each pod ends itself after "
        f"{order.deadline.total_seconds():.0f} s, and the namespace goes at the end; at most {longest / 60:.1f} min",
        soft_wrap=True,
    )


def _play(out: Console, kubernetes: Kubernetes, order: Order, folder: Path) -> int:
    from gameday.detectors.load import load_detector
    from gameday.history.journal import Journal
    from gameday.run.abort import Abort
    from gameday_prove.page import HISTORY_FILE, write_files
    from gameday_prove.play import Player

    profiles = [load_detector(one.detector) for one in order.around.detectors]
    folder.mkdir(parents=True)
    journal, abort = Journal(folder / HISTORY_FILE), Abort()
    say = lambda text: out.print(text, soft_wrap=True)  # noqa: E731
    with abort.on_signals():
        try:
            Player(kubernetes, order, profiles, journal, abort, say).play()
        except RefusedError:
            journal.close()
            (folder / HISTORY_FILE).unlink()
            folder.rmdir()
            raise
        journal.close()
        proof, unwritten = write_files(folder)
    _print_proof(out, proof, folder)
    if unwritten:
        out.print(unwritten, style="yellow", soft_wrap=True)
    return proof.exit_code


def _print_proof(out: Console, proof: Proof, folder: Path) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from gameday_prove.leftovers import left_by_others
    from gameday_prove.page import PAGE_FILE, judged, tone

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("line", "who", "verdict", "because"):
        table.add_column(column, overflow="fold", no_wrap=column != "because")
    xids = {line.number: line.xid for line in proof.looked.lines} if proof.looked else {}
    for one in proof.verdicts:
        word = Text(str(one.word), style=_STYLES[tone(one)])
        table.add_row(f"Xid {xids.get(one.line)}", Text(one.who), word, Text(one.why))
    out.print(table)
    history, _ = judged(folder)
    for left in left_by_others(history):
        out.print(f"left by others: {left}", style="yellow", soft_wrap=True)
    out.print(proof.headline, style="bold", soft_wrap=True)
    out.print(f"{proof.outcome.upper()}   page: {folder / PAGE_FILE}", soft_wrap=True)


def _clean(out: Console, kubernetes: Kubernetes) -> int:
    """Remove the namespace of a killed proof."""
    from gameday.errors import KubernetesError
    from gameday.ledger.lease import CLUSTER_LEASE, held_lease
    from gameday_prove.play import remove_namespace

    try:
        held = held_lease(kubernetes, CLUSTER_LEASE)
    except KubernetesError as error:
        raise CommandError(str(error), ExitCode.UNKNOWN) from None
    if held and held.renewed and kubernetes.clock.now() < held.renewed + held.duration:
        raise RefusedError(f"{held.holder} still renews its lease", "end it with Ctrl-C, or wait for its end")
    cleanliness, evidence = remove_namespace(kubernetes)
    for line in evidence:
        out.print(line, soft_wrap=True)
    return {"clean": ExitCode.PASSED, "dirty": ExitCode.DIRTY}.get(cleanliness, ExitCode.UNKNOWN)

"""Evidence of a proof that a stranger can check: an in-toto statement over its raw history, in a DSSE envelope.

Who checks it does not rely on the verdicts in it: they are computed again from the history. A file has one form only,
byte for byte, so that no byte of a signed one can be changed unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import FormatError, VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from gameday import __version__
from gameday.detectors.load import known_detectors
from gameday.errors import CommandError
from gameday.plain_file import read_plain
from gameday.text import shown
from gameday_prove.page import HISTORY_FILE, judged

PREDICATE_TYPE = "https://gpu-gameday.dev/attestation/proof/v1"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MOST_BYTES = 64 << 20
_NOT_OURS = (KeyError, TypeError, ValueError, AttributeError, FormatError, ParseError, RecursionError)


@dataclass(frozen=True)
class Checked:
    """The result of checking a file."""

    problems: tuple[str, ...]
    """Reasons why it proves nothing; empty if it holds."""
    remarks: tuple[str, ...]
    headline: str = ""
    """The verdict as it was computed again."""


def signer_of(key: Path) -> CryptoSigner:
    """Return the signer of a private key in PEM without a password. Raises CommandError."""
    try:
        return CryptoSigner(load_pem_private_key(key.read_bytes(), None))
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm):
        why = "no private key in PEM without a password: `openssl genpkey -algorithm ed25519 -out FILE` makes one"
        raise CommandError(f"{key}: {why}") from None


def write_evidence(folder: Path, file: Path, signer: CryptoSigner | None) -> None:
    """Write the evidence of a proof's folder; unsigned without a signer. Raises OSError."""
    history = read_plain(folder / HISTORY_FILE)
    envelope = Envelope(_canonical(_statement(folder.name, history, __version__)), _PAYLOAD_TYPE, {})
    if signer:
        envelope.sign(signer)
    file.write_bytes(_canonical(envelope.to_dict()) + b"\n")


def check(file: Path, key: Path | None) -> Checked:
    """Check a file offline, and compute its verdict again.

    Args:
        file: The evidence.
        key: The public key that must have signed it; None: no signature is asked for.

    Raises:
        CommandError: The file or the key cannot be read.
    """
    public = _public_key(key) if key else None
    try:
        raw = file.read_bytes()[: _MOST_BYTES + 1]
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    try:
        envelope = Envelope.from_dict(json.loads(raw))
        if len(raw) > _MOST_BYTES or _canonical(envelope.to_dict()) + b"\n" != raw:
            return Checked(("its bytes are not in the form in which evidence is written",), ())
    except _NOT_OURS:
        return Checked(("it is no DSSE envelope",), ())
    if public:
        try:
            envelope.verify([public], 1)
        except (VerificationError, ValueError):
            return Checked((f"it is not signed by the key in {key}",), ())
    return _checked_payload(envelope, signed=public is not None)


def _checked_payload(envelope: Envelope, *, signed: bool) -> Checked:
    if envelope.payload_type != _PAYLOAD_TYPE:
        return Checked((f"its payload is {shown(envelope.payload_type)}, and no in-toto statement",), ())
    try:
        claimed = json.loads(envelope.payload)
        statement = Statement([], "", {})
        ParseDict(claimed, statement.pb)
        statement.validate()
        predicate = claimed["predicate"]
        name, history = str(claimed["subject"][0]["name"]), str(predicate["history"]).encode()
        if claimed["predicateType"] != PREDICATE_TYPE:
            return Checked((f"its predicate is {shown(claimed['predicateType'])}, and no proof",), ())
        again = _statement(name, history, str(predicate["gamedayVersion"]))
    except _NOT_OURS:
        return Checked(("it is no statement about a proof",), ())
    problems = [*_differences(claimed, again)]
    remarks = [] if signed else ["no signature was checked: whoever has written it may have made up the history"]
    if predicate["gamedayVersion"] != __version__:
        remarks.append(f"it was made by gameday {shown(predicate['gamedayVersion'])}, and this is {__version__}")
    return Checked(tuple(problems), tuple(remarks), str(again["predicate"]["headline"]))


def _differences(claimed: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Return what the statement says otherwise than its own history does."""
    if claimed == again:
        return []
    if claimed.get("subject") != again["subject"]:
        return ["the digest is not that of the history in it"]
    was, found = claimed["predicate"], again["predicate"]
    parts = sorted(key for key in {*was, *found} if was.get(key) != found.get(key))
    return [
        f"{part}: it says {shown(was.get(part))}, its history gives {shown(found.get(part))}" for part in parts
    ] or ["it has parts that evidence does not have"]


def _statement(name: str, history: bytes, version: str) -> dict[str, Any]:
    """Return the statement about a history, as JSON has it."""
    with tempfile.TemporaryDirectory(prefix="gameday-evidence-") as folder:
        (Path(folder) / HISTORY_FILE).write_bytes(history)
        read, proof = judged(Path(folder))
    around = proof.looked.surroundings if proof.looked else None
    installed = [one.detector for one in around.detectors] if around else []
    files = known_detectors()
    predicate = {
        "gamedayVersion": version,
        "outcome": str(proof.outcome),
        "exitCode": int(proof.exit_code),
        "headline": proof.headline,
        "verdicts": [asdict(one) for one in proof.verdicts],
        "damagedLines": read.damaged,
        "cluster": {"server": around.server, "version": around.version, "uid": around.uid} if around else {},
        "profiles": {one: hashlib.sha256(files[one].read_bytes()).hexdigest() for one in installed if one in files},
        "history": history.decode(),
    }
    subject = ResourceDescriptor(name=name, digest={"sha256": hashlib.sha256(history).hexdigest()})
    statement = Statement([subject.pb], PREDICATE_TYPE, predicate)
    statement.validate()
    made: dict[str, Any] = MessageToDict(statement.pb)
    return made


def _public_key(key: Path) -> SSlibKey:
    try:
        return SSlibKey.from_crypto(load_pem_public_key(key.read_bytes()))
    except (OSError, ValueError, UnsupportedAlgorithm):
        why = "no public key in PEM: `openssl pkey -in PRIVATE -pubout` prints it"
        raise CommandError(f"{key}: {why}") from None


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

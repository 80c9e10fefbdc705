"""Evidence: what holds, and what is caught."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from gameday import cli
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday_prove.evidence import check, signer_of, write_evidence
from tests.prove.histories import condition, event, history
from tests.prove.test_page import written


def keys(folder: Path, private: Any, name: str = "key") -> tuple[Path, Path]:
    secret, public = folder / f"{name}.pem", folder / f"{name}.pub"
    secret.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return secret, public


def evidence(folder: Path, key: Path | None = None) -> Path:
    proof = written(folder / "prove-1", history(event(200.2), condition(200.9), event(201.0, "Odd", "kernel-mönitor")))
    file = folder / "evidence.json"
    write_evidence(proof, file, signer_of(key) if key else None)
    return file


def altered(file: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The same evidence, unsigned, with another statement in it."""
    statement = json.loads(base64.b64decode(json.loads(file.read_bytes())["payload"]))
    change(statement)
    payload = base64.b64encode(json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()).decode()
    envelope = {"payload": payload, "payloadType": "application/vnd.in-toto+json", "signatures": []}
    other = file.with_name("altered.json")
    other.write_text(json.dumps(envelope, sort_keys=True, separators=(",", ":")) + "\n")
    return other


@pytest.mark.parametrize("private", [Ed25519PrivateKey.generate(), generate_private_key(SECP256R1())])
def test_signed_evidence_holds_for_its_key_and_for_no_other(tmp_path: Path, private: Any) -> None:
    secret, public = keys(tmp_path, private)
    _, other = keys(tmp_path, Ed25519PrivateKey.generate(), "other")
    file = evidence(tmp_path, secret)
    held = check(file, public)
    assert (held.problems, held.remarks) == ((), ())
    assert held.headline.startswith("What is installed here noticed")
    assert "not signed by the key" in check(file, other).problems[0]
    assert "not signed by the key" in check(evidence(tmp_path), public).problems[0]


def test_unsigned_evidence_holds_with_a_remark(tmp_path: Path) -> None:
    held = check(evidence(tmp_path), None)
    assert held.problems == () and "no signature was checked" in held.remarks[0]


def claim_passed(statement: dict[str, Any]) -> None:
    statement["predicate"]["verdicts"][0]["word"] = "noticed"


def claim_code(statement: dict[str, Any]) -> None:
    statement["predicate"]["exitCode"] = 3.0


def claim_history(statement: dict[str, Any]) -> None:
    statement["predicate"]["history"] = statement["predicate"]["history"].replace("GPUXidFault", "GPUXidFalt")


def claim_more(statement: dict[str, Any]) -> None:
    statement["predicate"]["certifiedBy"] = "NVIDIA"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (claim_passed, "verdicts: it says"),
        (claim_code, "exitCode: it says"),
        (claim_history, "the digest is not that of the history"),
        (claim_more, "certifiedBy: it says"),
    ],
)
def test_a_statement_that_its_own_history_refutes_is_caught(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    (problem,) = check(altered(evidence(tmp_path), change), None).problems
    assert why in problem


def rejected_of(file: Path, public: Path, tries: int) -> int:
    raw, chance, other = file.read_bytes(), random.Random(7), file.with_name("changed.json")
    rejected = 0
    for _ in range(tries):
        place = chance.randrange(len(raw))
        byte = (raw[place] + chance.randrange(1, 256)) % 256
        other.write_bytes(raw[:place] + bytes([byte]) + raw[place + 1 :])
        rejected += bool(check(other, public).problems)
    return rejected


def test_one_changed_byte_is_always_caught(tmp_path: Path) -> None:
    secret, public = keys(tmp_path, Ed25519PrivateKey.generate())
    assert rejected_of(evidence(tmp_path, secret), public, 500) == 500


@pytest.mark.slow
def test_ten_thousand_changed_files_are_ten_thousand_times_caught(tmp_path: Path) -> None:
    secret, public = keys(tmp_path, Ed25519PrivateKey.generate())
    assert rejected_of(evidence(tmp_path, secret), public, 10_000) == 10_000


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"\xff", b'{"payload":1,"payloadType":2,"signatures":3}', b"1" * 100]
)
def test_a_file_of_anything_else_is_no_evidence(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "e.json"
    file.write_bytes(raw)
    assert check(file, None).problems


def test_the_command_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret, public = keys(tmp_path, Ed25519PrivateKey.generate())
    file = evidence(tmp_path, secret)
    assert cli.run(["verify", str(file), "--key", str(public)]) == ExitCode.PASSED
    assert "holds: its history gives the verdict" in capsys.readouterr().out
    assert cli.run(["verify", str(altered(file, claim_passed))]) == ExitCode.FAILED
    assert "does not hold: verdicts" in capsys.readouterr().out
    assert cli.run(["verify", str(tmp_path / "none")]) == ExitCode.USAGE
    assert cli.run(["prove", "--key", str(secret)]) == ExitCode.USAGE


@pytest.mark.parametrize("text", ["", "not a key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_key_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    key = tmp_path / "key"
    key.write_text(text)
    with pytest.raises(CommandError, match="no private key"):
        signer_of(key)
    with pytest.raises(CommandError, match="no public key"):
        check(evidence(tmp_path), key)

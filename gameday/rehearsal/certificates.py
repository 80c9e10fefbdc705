"""A certificate authority and a server certificate for one rehearsal, so that clients verify TLS as usual."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Long enough for any rehearsal left running; nothing outside this machine trusts the authority.
_VALID = datetime.timedelta(days=365)


@dataclass(frozen=True)
class Certificates:
    """Where the PEM files lie: the authority's certificate, the server's certificate and its key."""

    ca: Path
    certificate: Path
    key: Path


def ensure(folder: Path) -> Certificates:
    """Make the three files in `folder` where they are absent; keys are readable by the owner only.

    Names covered: localhost and 127.0.0.1. Raises OSError when the folder cannot be written.
    """
    found = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    if found.ca.exists() and found.certificate.exists() and found.key.exists():
        return found
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("gameday-rehearsal-ca", authority_key, None)
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = _certificate("kube-apiserver", server_key, (authority, authority_key))
    _write(found.key, _pem_key(server_key), 0o600)
    _write(found.certificate, server.public_bytes(serialization.Encoding.PEM), 0o644)
    _write(found.ca, authority.public_bytes(serialization.Encoding.PEM), 0o644)
    return found


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_bytes(content)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
) -> x509.Certificate:
    """Self-signed authority when `issuer` is None, else a server certificate signed by it."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer = issuer[1] if issuer else key
    now = datetime.datetime.now(datetime.UTC)
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A little in the past: clocks of containers on one machine may differ by seconds.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority_id, critical=False)
        .add_extension(_key_usage(issuer is None), critical=True)
    )
    if issuer:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return builder.sign(signer, hashes.SHA256())


def _key_usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )

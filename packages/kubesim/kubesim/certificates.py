"""Certificate authorities of one cluster and the certificates they sign, so that everything in it verifies TLS."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubesim.private_file import write_private

# Long enough for any cluster that is left running; nothing outside this machine trusts the authorities.
_VALID = datetime.timedelta(days=365)
# The rest of its life must outlast a cluster that starts now.
_STILL_VALID = datetime.timedelta(days=30)


@dataclass(frozen=True)
class KeyPair:
    """The PEM files of a certificate and its private key; only its owner can read the key."""

    certificate: Path
    key: Path


class Authority:
    """A self-signed authority, kept in `<folder>/<name>.crt` and `.key`.

    It is made if it is absent, half-written or about to expire. Certificates are signed again on each call. Raises
    OSError if the folder cannot be written.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.certificate = folder / f"{name}.crt"
        pair = KeyPair(self.certificate, folder / f"{name}.key")
        self._own, self._key = _load_pair(pair) or _create_pair(pair, f"kubesim-{name}")

    def server(
        self, name: str, dns: Sequence[str] = (), addresses: Sequence[str] = (), *, among_peers: bool = False
    ) -> KeyPair:
        """Return a certificate for a server on loopback: localhost, 127.0.0.1, `dns` and `addresses`.

        `among_peers`: the server also uses it as a client certificate towards its peers, as etcd does.
        """
        names: list[x509.GeneralName] = [x509.DNSName(each) for each in ("localhost", *dns)]
        names += [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", *addresses)]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if among_peers else [])]
        return self._written(name, *self._signed(_subject(name), usages, x509.SubjectAlternativeName(names)))

    def client(self, name: str, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Return a certificate for the user, kept under `name`; Kubernetes reads the groups from the organizations."""
        return self._written(name, *self._signed(_subject(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH]))

    def client_in_memory(self, user: str, groups: Sequence[str] = ()) -> bytes:
        """Return a certificate and its private key as PEM, without writing a file."""
        certificate, key = self._signed(_subject(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH])
        return _certificate_pem(certificate) + _private_pem(key)

    def _signed(
        self,
        subject: x509.Name,
        usages: Sequence[x509.ObjectIdentifier],
        names: x509.SubjectAlternativeName | None = None,
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._own.subject, key, self._key).add_extension(_key_usage(False), critical=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if names:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256()), key

    def _written(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
        return _write_pair(KeyPair(self.folder / f"{name}.crt", self.folder / f"{name}.key"), certificate, key)


def signing_key(folder: Path, name: str) -> KeyPair:
    """Return a key pair for signing tokens, `<name>.pub` and `<name>.key`; one that is already there is kept."""
    pair = KeyPair(folder / f"{name}.pub", folder / f"{name}.key")
    key = _load_key(pair.key)
    if key is None:
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(pair.key, _private_pem(key))
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_private(pair.certificate, public)
    return pair


def _load_pair(pair: KeyPair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """Return the pair that an earlier start left, if it is complete and valid for long enough."""
    key = _load_key(pair.key)
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    lasts = certificate.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + _STILL_VALID
    return (certificate, key) if key and lasts and certificate.public_key() == key.public_key() else None


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (FileNotFoundError, ValueError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _create_pair(pair: KeyPair, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = _builder(subject, subject, key, key).add_extension(_key_usage(True), critical=True)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    _write_pair(pair, certificate, key)
    return certificate, key


def _subject(name: str, organizations: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A little in the past, because clocks of containers on one machine may differ by seconds.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _write_pair(pair: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    write_private(pair.key, _private_pem(key))
    write_private(pair.certificate, _certificate_pem(certificate))
    return pair


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


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

"""A certificate for loopback, signed by an authority that only the test trusts."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class LoopbackCertificate:
    """The authority's certificate, and what a server on 127.0.0.1 shows."""

    authority: Path
    server: ssl.SSLContext


def make_certificate(folder: Path) -> LoopbackCertificate:
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name, name = _name("authority of a test"), _name("127.0.0.1")
    ca = _builder(ca_name, ca_name, ca_key).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    leaf = _builder(name, ca_name, key).add_extension(names, critical=False)
    folder.mkdir(parents=True, exist_ok=True)
    authority, chain = folder / "authority.pem", folder / "server.pem"
    pem = serialization.Encoding.PEM
    authority.write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    chain.write_bytes(
        leaf.sign(ca_key, hashes.SHA256()).public_bytes(pem)
        + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain)
    return LoopbackCertificate(authority, server)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )

"""A certificate authority for a cluster, and the certificates that it issues.

It needs the package cryptography (`headrace[security]`). Keys are P-256 in PKCS#8, a format that
Java reads too.
"""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Self

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "creating certificates requires the package cryptography: pip install 'headrace[security]'",
        name=error.name,
    ) from error

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 397
_CLOCK_SKEW = timedelta(hours=1)
"""Certificates are valid from this time before now, because clocks differ."""


class CertificateAuthority:
    """Issues certificates for brokers."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def make(cls, name: str) -> Self:
        """A new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        certificate = (
            _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, key_pem: str, certificate_pem: str) -> Self:
        """Load an authority; ValueError if key and certificate are not those of one."""
        key = serialization.load_pem_private_key(key_pem.encode(), None)
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not an elliptic curve key")
        if key.public_key() != certificate.public_key():
            raise ValueError("the key does not belong to the certificate")
        return cls(key, certificate)

    @property
    def key_pem(self) -> str:
        """The private key."""
        return _key_pem(self._key)

    @property
    def pem(self) -> str:
        """The certificate that clients have to trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name: str, hosts: Iterable[str], days: int = CERTIFICATE_DAYS) -> str:
        """A new key and its certificate for these hosts, in one PEM text."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        certificate = (
            _builder(_name(name), self._certificate.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(certificates=False), critical=True)
            .add_extension(usages, critical=False)
            .add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
            .sign(self._key, hashes.SHA256())
        )
        return _key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM).decode()


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()

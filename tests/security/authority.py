"""A certificate authority of our own, and the files that brokers and clients get from it."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_ATTRIBUTES = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME,
    "DC": NameOID.DOMAIN_COMPONENT,
    "E": NameOID.EMAIL_ADDRESS,
    "UID": NameOID.USER_ID,
}


def name(*parts: str) -> x509.Name:
    """A name from `CN=alice`, `O=Example`, in the order of the certificate."""
    pairs = (part.split("=", 1) for part in parts)
    return x509.Name([x509.NameAttribute(_ATTRIBUTES[key], value) for key, value in pairs])


@dataclass(frozen=True)
class Issued:
    """A key and its certificate."""

    key: Key
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, form: str = "PKCS8", password: str = "") -> str:
        forms = {
            "PKCS8": serialization.PrivateFormat.PKCS8,
            "PKCS1": serialization.PrivateFormat.TraditionalOpenSSL,
        }
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        encoded = self.key.private_bytes(serialization.Encoding.PEM, forms[form], encryption)
        return encoded.decode()

    def pkcs12(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"broker", self.key, self.certificate, [self.issuer],
            serialization.BestAvailableEncryption(password.encode()),
        )  # fmt: skip


class Authority:
    """Issues certificates."""

    def __init__(self, common_name: str = "Test CA", parent: "Authority | None" = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = name(f"CN={common_name}", "O=Headrace")
        issuer = parent.certificate.subject if parent else subject
        builder = _builder(subject, issuer, self._key.public_key(), 3650)
        self.certificate: x509.Certificate = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0 if parent else 1), critical=True
        ).sign(parent._key if parent else self._key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self,
        *subject: str,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        days: int = 365,
        rsa_key: bool = False,
    ) -> Issued:
        """A certificate for a subject, such as `CN=alice`; negative days make an expired one."""
        key: Key = ec.generate_private_key(ec.SECP256R1())
        if rsa_key:
            key = rsa.generate_private_key(65537, 2048)
        parent = self.certificate.subject
        builder = _builder(name(*subject), parent, key.public_key(), days)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False
            )
        signed = builder.sign(self._key, hashes.SHA256())
        return Issued(key, signed, self.certificate)


def trust_store(certificates: Sequence[x509.Certificate], password: str) -> bytes:
    """A PKCS12 file with certificates and no key."""
    return pkcs12.serialize_key_and_certificates(
        None, None, None, list(certificates),
        serialization.BestAvailableEncryption(password.encode()),
    )  # fmt: skip


def write(path: Path, *texts: str) -> str:
    """Write a file in one step, as renewing tools do."""
    new = path.with_suffix(".new")
    new.write_text("".join(texts))
    new.replace(path)
    return str(path)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

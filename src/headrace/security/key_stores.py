"""Keys and certificates from the settings: PEM files, PEM text, PKCS#12 files.

All formats are converted into one PEM text with the broker's own certificate first and its key
last. Errors include the setting, the file, and the format of the file.
"""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.errors import SettingError
from headrace.security.x509 import (
    Certificate,
    NotACertificate,
    pem_blocks,
    read_certificate,
)
from headrace.settings.setting import SettingValues

_JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER = b"\x30"
_LINE = 64

FileStamp = tuple[str, int, int, int]
"""The path, inode, size and modification time of a file, which show a change."""


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and the certificates that belong to it."""

    pem: str = field(repr=False)
    password: str = field(repr=False)
    chain: tuple[Certificate, ...]
    """The own certificate first."""
    origin: str
    """The setting and file of the store, for messages."""


def load_key_store(settings: SettingValues) -> KeyStore | None:
    """The broker's own key and certificates; None if they are not set."""
    location = settings.text("ssl.keystore.location")
    key = settings.text("ssl.keystore.key")
    chain = settings.text("ssl.keystore.certificate.chain")
    password = settings.text("ssl.key.password")
    kind = settings.text("ssl.keystore.type")
    if location and (key or chain):
        raise SettingError(
            "set either ssl.keystore.location, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )
    if location:
        origin = f"ssl.keystore.location={location}"
        data = _read_file(origin, location)
        if kind == "PKCS12":
            store_password = settings.text("ssl.keystore.password")
            return _from_blocks(_pkcs12(origin, data, store_password, "ssl.keystore"), "", origin)
        _refuse_jks("ssl.keystore", kind, origin)
        return _from_blocks(_pem(origin, data, "PEM"), password, origin)
    if not key and not chain:
        return None
    if not (key and chain):
        raise SettingError(
            "set both ssl.keystore.key and ssl.keystore.certificate.chain; "
            f"{'the first' if chain else 'the second'} is missing"
        )
    origin = "ssl.keystore.key and ssl.keystore.certificate.chain"
    return _from_blocks([*pem_blocks(key), *pem_blocks(chain)], password, origin)


def load_trusted(settings: SettingValues) -> bytes | None:
    """The certificates of the trusted authorities, in DER; None if they are not set."""
    location = settings.text("ssl.truststore.location")
    text = settings.text("ssl.truststore.certificates")
    if location and text:
        raise SettingError(
            "set only one of ssl.truststore.location and ssl.truststore.certificates"
        )
    if not location and not text:
        return None
    origin = "ssl.truststore.certificates"
    if text:
        blocks = list(pem_blocks(text))
    else:
        origin, kind = f"ssl.truststore.location={location}", settings.text("ssl.truststore.type")
        data = _read_file(origin, location)
        if kind == "PKCS12":
            password = settings.text("ssl.truststore.password")
            blocks = _pkcs12(origin, data, password, "ssl.truststore")
        else:
            _refuse_jks("ssl.truststore", kind, origin)
            blocks = _pem(origin, data, "PEM")
    certificates = _certificates(blocks, origin)
    if not certificates:
        raise SettingError(f"{origin}: it contains no certificate")
    return b"".join(one.der for one in certificates)


def stamps(settings: SettingValues) -> tuple[FileStamp, ...]:
    """The stamps of the files in the settings."""
    found = []
    for name in ("ssl.keystore.location", "ssl.truststore.location"):
        if path := settings.text(name):
            try:
                state = os.stat(path)
                found.append((path, state.st_ino, state.st_size, state.st_mtime_ns))
            except OSError:
                found.append((path, 0, 0, 0))
    return tuple(found)


def _read_file(origin: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SettingError(f"{origin}: cannot be read: {error.strerror}") from error


def _refuse_jks(prefix: str, kind: str, origin: str) -> None:
    if kind == "JKS":
        raise SettingError(
            f"{prefix}.type=JKS: Headrace does not read Java key stores ({origin}). Convert it "
            "with `keytool -importkeystore -deststoretype PKCS12`, and set "
            f"{prefix}.type=PKCS12"
        )


def _pem(origin: str, data: bytes, expected: str) -> list[tuple[str, str]]:
    blocks = list(pem_blocks(data.decode("latin-1")))
    if not blocks:
        prefix = origin.partition(".location")[0]
        what = "has no PEM block"
        if data[:4] in _JKS_MAGICS:
            what = "is a Java key store (JKS); convert it to PEM or PKCS12"
        elif data[:1] == _DER:
            what = f"seems to be a PKCS12 file; set {prefix}.type=PKCS12"
        raise SettingError(f"{origin}: expected a {expected} file, but it {what}")
    return blocks


def _pkcs12(origin: str, data: bytes, password: str, prefix: str) -> list[tuple[str, str]]:
    """The key and the certificates of a PKCS#12 file, as PEM blocks."""
    # Imported here, because only this format needs it.
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise SettingError(
            f"{origin}: reading PKCS12 needs the package cryptography; install headrace[security], "
            f"or convert the file to PEM and set {prefix}.type=PEM"
        ) from error
    try:
        store = pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError as error:
        raise SettingError(f"{origin}: not a PKCS12 file, or {prefix}.password is wrong") from error
    pem = b""
    if store.key is not None:
        pem += store.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    for one in (store.cert, *store.additional_certs):
        if one is not None:
            pem += one.certificate.public_bytes(serialization.Encoding.PEM)
    return list(pem_blocks(pem.decode()))


def _from_blocks(blocks: Sequence[tuple[str, str]], password: str, origin: str) -> KeyStore:
    keys = [text for kind, text in blocks if kind.endswith("PRIVATE KEY")]
    certificates = _certificates(blocks, origin)
    if len(keys) != 1:
        found = ", ".join(kind for kind, _ in blocks) or "nothing"
        raise SettingError(
            f"{origin}: expected one private key with its certificates, but found {found}"
        )
    if not certificates:
        raise SettingError(f"{origin}: it contains a private key, but no certificate")
    if ("ENCRYPTED" in keys[0].partition("\n")[0] or "4,ENCRYPTED" in keys[0]) and not password:
        raise SettingError(f"{origin}: the private key is encrypted; set ssl.key.password")
    chain = _in_order(certificates)
    text = "\n".join([*(_certificate_pem(one.der) for one in chain), _rewrapped(keys[0]), ""])
    return KeyStore(text, password, chain, origin)


def _certificates(blocks: Sequence[tuple[str, str]], origin: str) -> list[Certificate]:
    try:
        return [read_certificate(text) for kind, text in blocks if kind == "CERTIFICATE"]
    except NotACertificate as error:
        raise SettingError(f"{origin}: a certificate in it cannot be read: {error}") from error


def _in_order(certificates: Sequence[Certificate]) -> tuple[Certificate, ...]:
    """The leaf certificate first, then each one's issuer."""
    by_subject = {one.subject: one for one in certificates}
    issuers = {one.issuer for one in certificates if one.issuer != one.subject}
    own = next((one for one in certificates if one.subject not in issuers), certificates[0])
    chain = [own]
    while (issuer := by_subject.get(chain[-1].issuer)) is not None and issuer not in chain:
        chain.append(issuer)
    return tuple(chain)


def _certificate_pem(der: bytes) -> str:
    return _wrapped("CERTIFICATE", base64.b64encode(der).decode())


def _rewrapped(pem: str) -> str:
    """A PEM block with the line breaks that OpenSSL needs; properties files may lack them."""
    if ":" in pem:
        return pem  # an encrypted key in the old form, with headers
    kind = next(pem_blocks(pem))[0]
    body = pem.replace(f"-----BEGIN {kind}-----", "").replace(f"-----END {kind}-----", "")
    return _wrapped(kind, "".join(body.split()))


def _wrapped(kind: str, body: str) -> str:
    lines = [body[at : at + _LINE] for at in range(0, len(body), _LINE)]
    return "\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----"))

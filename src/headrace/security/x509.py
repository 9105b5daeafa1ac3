"""Reads X.509 certificates: subject, issuer, host names, validity.

It parses only the DER that this needs. OpenSSL verifies signatures and chains.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

_EXTENSIONS = 0xA3
_VERSION = 0xA0
_OCTETS = 0x04
_UTC_TIME = 0x17
_BMP_STRING = 0x1E
_SUBJECT_ALT_NAMES = bytes((0x55, 0x1D, 0x11))
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 names; others are written as an OID with a value in hex."""
_STRING_TAGS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, _BMP_STRING)
_ESCAPED = ',=+<>#;"\\'

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class NotACertificate(ValueError):
    """The bytes are not an X.509 certificate."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The fields of one certificate."""

    der: bytes
    subject: bytes
    """The name, in DER."""
    issuer: bytes
    not_before: datetime
    not_after: datetime
    hosts: frozenset[str]
    """Subject alternative names: DNS names in lower case, and addresses."""

    @property
    def distinguished_name(self) -> str:
        """The subject in the format of RFC 2253: the last part first, `CN=...,OU=...,O=...`."""
        return distinguished_name(self.subject)

    def names(self, host: str) -> bool:
        """Whether the certificate is valid for `host`."""
        host = host.lower().rstrip(".")
        try:
            return str(ipaddress.ip_address(host)) in self.hosts
        except ValueError:
            wildcard = "*." + host.partition(".")[2]
            return host in self.hosts or wildcard in self.hosts


def pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """The kind and the whole text of each PEM block, such as ("CERTIFICATE", "-----BEGIN ...")."""
    for match in _PEM_BLOCK.finditer(text):
        yield match[1], match[0]


def read_certificate(pem: str) -> Certificate:
    """The certificate in a PEM block."""
    match = _PEM_BLOCK.search(pem)
    try:
        return parse_certificate(base64.b64decode(match[2] if match else "", validate=False))
    except binascii.Error as error:
        raise NotACertificate(str(error)) from error


def parse_certificate(der: bytes) -> Certificate:
    """The certificate in DER."""
    try:
        return _parse(der)
    except (IndexError, ValueError, StopIteration) as error:
        raise NotACertificate("the bytes are not an X.509 certificate") from error


def distinguished_name(name: bytes) -> str:
    """A DER name in the format of RFC 2253, as Java writes it."""
    _, start, end = _read(name, 0)
    parts = []
    for _, rdn, rdn_end in _items(name, start, end):
        values = []
        for _, pair, pair_end in _items(name, rdn, rdn_end):
            (_, oid, oid_end), (tag, value, value_end) = _items(name, pair, pair_end)
            values.append(
                _attribute(name[oid:oid_end], tag, name[oid_end:value_end], value_end - value)
            )
        parts.append("+".join(values))
    return ",".join(reversed(parts))


def _attribute(oid: bytes, tag: int, encoded: bytes, size: int) -> str:
    dotted = _dotted(oid)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or tag not in _STRING_TAGS:
        return f"{keyword or dotted}=#{encoded.hex()}"
    encoding = "utf-16-be" if tag == _BMP_STRING else "utf-8"
    text = encoded[len(encoded) - size :].decode(encoding, "replace")
    return f"{keyword}={_escaped(text)}"


def _escaped(text: str) -> str:
    out = "".join(f"\\{char}" if char in _ESCAPED else char for char in text)
    out = out.replace("\0", "\\00")
    inside = out.strip(" ")
    before = len(out) - len(out.lstrip(" "))
    return "\\ " * before + inside + "\\ " * (len(out) - len(inside) - before)


def _dotted(oid: bytes) -> str:
    numbers = []
    value = 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _parse(der: bytes) -> Certificate:
    _, start, end = _read(der, 0)
    _, start, end = _read(der, start)  # the signed part
    fields = list(_items(der, start, end))
    if fields[0][0] == _VERSION:
        fields = fields[1:]
    # Serial number, signature algorithm, issuer, validity, subject, key, extensions.
    not_before, not_after = (_time(der, *item) for item in _items(der, *fields[3][1:]))
    hosts: frozenset[str] = frozenset()
    for tag, start, _ in fields[6:]:
        if tag == _EXTENSIONS:
            hosts = frozenset(_hosts(der, start))
    return Certificate(
        der, _whole(der, fields, 4), _whole(der, fields, 2), not_before, not_after, hosts
    )


def _whole(der: bytes, fields: list[tuple[int, int, int]], number: int) -> bytes:
    """A field with its tag and length: the bytes from the end of the field before it."""
    return der[fields[number - 1][2] : fields[number][2]]


def _hosts(der: bytes, start: int) -> Iterator[str]:
    _, first, end = _read(der, start)
    for _, extension, extension_end in _items(der, first, end):
        parts = list(_items(der, extension, extension_end))
        _, oid, oid_end = parts[0]
        if der[oid:oid_end] != _SUBJECT_ALT_NAMES or parts[-1][0] != _OCTETS:
            continue
        _, names, names_end = _read(der, parts[-1][1])
        for tag, value, value_end in _items(der, names, names_end):
            if tag == _DNS_NAME:
                yield der[value:value_end].decode("ascii", "replace").lower()
            elif tag == _IP_ADDRESS:
                yield str(ipaddress.ip_address(der[value:value_end]))


def _time(der: bytes, tag: int, start: int, end: int) -> datetime:
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _items(der: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    while start < end:
        item = _read(der, start)
        yield item
        start = item[2]


def _read(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the element at a position, and the start and end of its content."""
    tag, size = der[at], der[at + 1]
    at += 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(der[at : at + count], "big")
        at += count
    if at + size > len(der):
        raise NotACertificate("an element reaches past the end")
    return tag, at, at + size

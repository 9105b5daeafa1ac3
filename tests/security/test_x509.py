"""Names, host names and validity of certificates, compared with another reader and with Java."""

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.security.x509 import NotACertificate, parse_certificate, read_certificate
from tests.security.authority import Authority

SUBJECTS = [
    ("CN=alice",),
    ("C=DE", "O=Example", "OU=Data", "CN=alice"),
    ("CN=first", "O=last"),
    ("O=a, b + c", 'CN=#x=y;<z>\\"'),
    ("CN= two  spaces ",),
    ("CN=Zoë Müller", "O=日本"),
    ("DC=com", "DC=example", "UID=u1", "CN=alice"),
    ("E=a@example.com", "CN=mail"),
]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (("CN=alice",), "CN=alice"),
        (("C=DE", "O=Example", "OU=Data", "CN=alice"), "CN=alice,OU=Data,O=Example,C=DE"),
        (("CN=first", "O=last"), "O=last,CN=first"),
        (("O=a, b",), "O=a\\, b"),
    ],
)
def test_the_last_part_of_a_subject_comes_first(
    authority: Authority, subject: tuple[str, ...], expected: str
) -> None:
    assert (
        read_certificate(authority.issue(*subject).certificate_pem).distinguished_name == expected
    )


@pytest.mark.java
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a Java compiler")
def test_subjects_read_as_java_reads_them(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "Names.java").write_text(
        "import java.io.*; import java.security.cert.*; import java.nio.charset.*;"
        "public class Names { public static void main(String[] files) throws Exception {"
        " PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);"
        " for (String file : files) try (InputStream in = new FileInputStream(file)) {"
        ' out.println(((X509Certificate) CertificateFactory.getInstance("X.509")'
        ".generateCertificate(in)).getSubjectX500Principal().getName()); } } }"
    )
    files, ours = [], []
    for number, subject in enumerate(SUBJECTS):
        pem = authority.issue(*subject).certificate_pem
        file = tmp_path / f"{number}.pem"
        file.write_text(pem)
        files.append(str(file))
        ours.append(read_certificate(pem).distinguished_name)
    ran = subprocess.run(
        ["java", str(tmp_path / "Names.java"), *files], capture_output=True, check=True
    )
    assert ours == ran.stdout.decode().splitlines()


def test_host_names_and_validity_are_read(authority: Authority) -> None:
    hosts = ("b1.lan", "*.Example.com", "10.0.0.7", "2001:db8::1")
    issued = authority.issue("CN=broker", hosts=hosts, days=10)
    found = read_certificate(issued.certificate_pem)
    assert found.hosts == {"b1.lan", "*.example.com", "10.0.0.7", "2001:db8::1"}
    named = ("b1.lan", "B1.LAN", "x.example.com", "10.0.0.7", "2001:DB8:0::1")
    assert all(found.names(host) for host in named)
    others = ("b2.lan", "example.com", "a.b.example.com", "10.0.0.8", "localhost")
    assert not any(found.names(host) for host in others)
    left = found.not_after - datetime.now(UTC)
    assert timedelta(days=9) < left < timedelta(days=11)
    assert found.not_before < datetime.now(UTC)


def test_a_certificate_without_host_names_names_none(authority: Authority) -> None:
    found = read_certificate(authority.issue("CN=localhost", hosts=()).certificate_pem)
    assert not found.names("localhost")


def test_issuer_and_subject_of_an_authority_are_the_same(authority: Authority) -> None:
    own = read_certificate(authority.pem)
    issued = read_certificate(authority.issue("CN=x").certificate_pem)
    assert own.subject == own.issuer == issued.issuer != issued.subject


def test_what_is_not_a_certificate_is_refused_at_every_length(authority: Authority) -> None:
    der = read_certificate(authority.issue("CN=x").certificate_pem).der
    for cut in range(0, len(der) - 1, 7):
        with pytest.raises(NotACertificate):
            parse_certificate(der[:cut])
    with pytest.raises(NotACertificate):
        parse_certificate(b"\x30\x82\xff\xff" + der)
    with pytest.raises(NotACertificate):
        read_certificate("-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----")

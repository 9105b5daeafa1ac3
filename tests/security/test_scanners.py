"""What sslscan and testssl.sh find on the TLS listeners: no serious finding.

The listener SSL has an RSA certificate and SASL_SSL one with an elliptic curve, so that the cipher
suites of both are looked at.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.security.authority import write
from tests.security.secured import SecuredBroker

LISTENERS = ("SSL", "SASL_SSL")
AEAD = ("GCM", "CHACHA20_POLY1305", "CHACHA20-POLY1305", "CCM")
SERIOUS = {"MEDIUM", "HIGH", "CRITICAL", "FATAL"}
OF_THE_CERTIFICATE = {"cert_revocation"}
"""Findings that any certificate of a private authority gets: it names no CRL and no OCSP server."""
USUAL_CHECKS = ("--protocols", "--std", "--vulnerable")
ALL_CHECKS = (*USUAL_CHECKS, "--server-defaults", "--server-preference", "--fs", "--grease")
SCAN_S = 540

Findings = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("scanned")
    made = SecuredBroker(
        folder,
        {"alice": "alice-password"},
        {"listener.name.ssl.ssl.keystore.location": str(folder / "rsa.pem")},
    )
    rsa = made.authority.issue("CN=broker", rsa_key=True)
    write(folder / "rsa.pem", rsa.key_pem(), rsa.certificate_pem)
    with made as running:
        yield running


@pytest.mark.skipif(shutil.which("sslscan") is None, reason="needs the Debian package sslscan")
@pytest.mark.parametrize("listener", LISTENERS)
def test_sslscan_finds_only_new_versions_and_aead_suites(
    broker: SecuredBroker, listener: str
) -> None:
    command = ["sslscan", "--xml=-", "--show-sigs", broker.addresses[listener]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SCAN_S, check=True)
    scan = ElementTree.fromstring(ran.stdout).find("ssltest")
    assert scan is not None, ran.stdout
    versions = {
        f"{one.get('type')} {one.get('version')}"
        for one in scan.iter("protocol")
        if one.get("enabled") == "1"
    }
    assert versions == {"tls 1.2", "tls 1.3"}
    suites = [str(one.get("cipher")) for one in scan.iter("cipher")]
    assert len(suites) >= 6
    assert [name for name in suites if not any(mode in name for mode in AEAD)] == []
    assert {one.get("strength") for one in scan.iter("cipher")} <= {"strong", "acceptable"}
    assert [one.get("supported") for one in scan.iter("renegotiation")] == ["0"]
    assert {one.get("vulnerable") for one in scan.iter("heartbleed")} == {"0"}
    assert {one.get("supported") for one in scan.iter("compression")} <= {"0"}


def scan_all(broker: SecuredBroker, folder: Path, checks: tuple[str, ...]) -> dict[str, Findings]:
    """What testssl.sh finds on each listener; both are scanned at the same time."""
    running = {}
    for listener in LISTENERS:
        port = broker.addresses[listener].rpartition(":")[2]
        command = ["testssl", "--quiet", "--color", "0", "--nodns", "none", "--warnings", "batch"]
        command += ["--add-ca", broker.ca, "--jsonfile", str(folder / f"{listener}.json")]
        running[listener] = subprocess.Popen(
            [*command, *checks, f"localhost:{port}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=folder,
        )  # fmt: skip
    found: dict[str, Findings] = {}
    for listener, scanner in running.items():
        text, _ = scanner.communicate(timeout=SCAN_S)
        file = folder / f"{listener}.json"
        assert file.exists(), text
        rows: list[dict[str, Any]] = json.loads(file.read_text())
        found[listener] = {row["id"]: row for row in rows}
        assert "scanTime" in found[listener], f"the scan of {listener} did not end:\n{text}"
    return found


def check_findings(found: Findings) -> None:
    serious = {
        name: f"{row['severity']}: {row['finding']}"
        for name, row in found.items()
        if row["severity"] in SERIOUS and name not in OF_THE_CERTIFICATE
    }
    assert serious == {}
    offered = {name for name in ("SSLv2", "SSLv3", "TLS1", "TLS1_1", "TLS1_2", "TLS1_3")
               if not found[name]["finding"].startswith("not offered")}  # fmt: skip
    assert offered == {"TLS1_2", "TLS1_3"}
    # Suites without AEAD would be in one of these classes.
    assert found["cipherlist_AVERAGE"]["finding"] == "not offered"
    assert found["cipherlist_STRONG"]["finding"] == "offered"
    assert found["secure_client_renego"]["severity"] == "OK"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("testssl") is None, reason="needs the Debian package testssl.sh")
def test_testssl_finds_nothing_of_medium_severity(broker: SecuredBroker, tmp_path: Path) -> None:
    for found in scan_all(broker, tmp_path, USUAL_CHECKS).values():
        check_findings(found)


@pytest.mark.endurance
@pytest.mark.skipif(shutil.which("testssl") is None, reason="needs the Debian package testssl.sh")
def test_all_checks_of_testssl_find_nothing_of_medium_severity(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    for found in scan_all(broker, tmp_path, ALL_CHECKS).values():
        check_findings(found)
        assert found["cert_chain_of_trust"]["severity"] == "OK"
        assert found["cipher_order"]["severity"] == "OK"

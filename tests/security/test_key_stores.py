"""Keys and certificates in all supported formats, and errors for others."""

import ssl
from itertools import permutations
from pathlib import Path

import pytest

from headrace.errors import SettingError
from headrace.security.key_stores import load_key_store, load_trusted
from headrace.security.tls import ListenerTls
from headrace.settings import Settings
from tests.security.authority import Authority, Issued, write


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def own(authority: Authority) -> Issued:
    return authority.issue("CN=broker", rsa_key=True)


def given(**more: str) -> dict[str, str]:
    names = {name.replace("_", "."): text for name, text in more.items()}
    return {"listeners": "SSL://localhost:9093", **names}


def load(settings: dict[str, str]) -> ListenerTls:
    parsed = Settings.parse(settings)
    return ListenerTls(parsed.listeners.all[0], parsed)


def is_served(tls: ListenerTls, authority: Authority) -> bool:
    """Whether a client that trusts the authority finishes a handshake with the listener."""
    context = ssl.create_default_context(cadata=authority.pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.server.wrap_bio(to_server, to_client, server_side=True)
    client = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    done = set()
    for _ in range(10):
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    return len(done) == 2


@pytest.mark.parametrize("form", ["PKCS8", "PKCS1"])
@pytest.mark.parametrize("password", ["", "secret"])
@pytest.mark.parametrize("key_first", [True, False])
def test_a_pem_file_has_key_and_certificates_in_any_order(
    authority: Authority, own: Issued, tmp_path: Path, form: str, password: str, key_first: bool
) -> None:
    key, certificates = own.key_pem(form, password), [authority.pem, own.certificate_pem]
    texts = [key, *certificates] if key_first else [*certificates, key]
    file = write(tmp_path / "broker.pem", *texts)
    tls = load(given(ssl_keystore_location=file, ssl_key_password=password))
    assert tls.certificate.distinguished_name == "CN=broker"
    assert is_served(tls, authority)


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_a_chain_is_sent_in_order_whatever_its_order_in_the_file(
    authority: Authority, tmp_path: Path, order: tuple[int, ...]
) -> None:
    between = Authority("Between", authority)
    own = between.issue("CN=broker")
    chain = [own.certificate_pem, between.pem, authority.pem]
    file = write(tmp_path / "broker.pem", own.key_pem(), *(chain[place] for place in order))
    # The client trusts the root alone.
    assert is_served(load(given(ssl_keystore_location=file)), authority)


def test_pem_text_may_stand_in_the_settings_on_one_line(authority: Authority, own: Issued) -> None:
    chain = (own.certificate_pem + authority.pem).replace("\n", " ")
    key = own.key_pem().replace("\n", " ")
    settings = given(
        ssl_keystore_key=key,
        ssl_keystore_certificate_chain=chain,
        ssl_truststore_certificates=authority.pem.replace("\n", " "),
        ssl_client_auth="required",
    )
    assert load(settings).server.verify_mode is ssl.CERT_REQUIRED
    without = {name: text for name, text in settings.items() if name != "ssl.client.auth"}
    assert is_served(load(without), authority)


def test_pkcs12_files_are_read(authority: Authority, own: Issued, tmp_path: Path) -> None:
    file = tmp_path / "broker.p12"
    file.write_bytes(own.pkcs12("secret"))
    settings = given(
        ssl_keystore_location=str(file), ssl_keystore_type="PKCS12", ssl_keystore_password="secret"
    )
    assert is_served(load(settings), authority)
    trust = {
        "ssl.truststore.location": str(file),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": "secret",
    }
    assert load_trusted(Settings.parse(trust)) is not None
    with pytest.raises(SettingError, match=r"ssl\.keystore\.password is wrong"):
        load({**settings, "ssl.keystore.password": "guess"})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xfe\xed\xfe\xed\0\0", "is a Java key store (JKS)"),
        (b"\x30\x82\x01\x01", "set ssl.keystore.type=PKCS12"),
        (b"hello", "has no PEM block"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_something_else_is_named_for_what_it_is(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingError) as caught:
        load_key_store(Settings.parse({"ssl.keystore.location": str(file)}))
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_missing_and_unfitting_parts_are_named(
    authority: Authority, own: Issued, tmp_path: Path
) -> None:
    other = authority.issue("CN=other")
    cases = {
        "no certificate": [own.key_pem()],
        "expected one private key": [own.certificate_pem],
        "does not belong": [other.key_pem(), own.certificate_pem],
        "set ssl.key.password": [own.key_pem(password="secret"), own.certificate_pem],
        "a certificate in it cannot be read": [
            own.key_pem(),
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ],
    }
    for said, texts in cases.items():
        file = write(tmp_path / "broker.pem", *texts)
        with pytest.raises(SettingError, match=said):
            load(given(ssl_keystore_location=file))
    file = write(tmp_path / "broker.pem", own.key_pem(password="secret"), own.certificate_pem)
    with pytest.raises(SettingError, match=r"is ssl\.key\.password right"):
        load(given(ssl_keystore_location=file, ssl_key_password="guess"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "listener SSL has no certificate"),
        ({"ssl.keystore.key": "x"}, "the second is missing"),
        ({"ssl.keystore.certificate.chain": "x"}, "the first is missing"),
        ({"ssl.keystore.key": "x", "ssl.keystore.location": "y"}, "set either"),
    ],
)
def test_a_listener_with_tls_needs_one_certificate(more: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        load({**given(), **more})


def test_a_java_key_store_is_refused_with_what_to_do(tmp_path: Path) -> None:
    settings = given(ssl_keystore_location=str(tmp_path), ssl_keystore_type="JKS")
    (tmp_path / "keys").write_bytes(b"")
    with pytest.raises(SettingError, match="keytool -importkeystore -deststoretype PKCS12"):
        load({**settings, "ssl.keystore.location": str(tmp_path / "keys")})


def test_an_advertised_host_that_the_certificate_does_not_name_refuses_the_start(
    authority: Authority, own: Issued, tmp_path: Path
) -> None:
    file = write(tmp_path / "broker.pem", own.key_pem(), own.certificate_pem)
    settings = given(
        ssl_keystore_location=file, advertised_listeners="SSL://kafka.example.com:9093"
    )
    with pytest.raises(SettingError) as caught:
        load(settings)
    assert "advertises kafka.example.com:9093, but its certificate is for" in str(caught.value)
    assert "127.0.0.1, localhost" in str(caught.value)
    # Who switches the check off for clients, may do so for the broker.
    load({**settings, "ssl.endpoint.identification.algorithm": ""})


def test_an_expired_certificate_refuses_the_start(authority: Authority, tmp_path: Path) -> None:
    old = authority.issue("CN=broker", days=-1)
    file = write(tmp_path / "broker.pem", old.key_pem(), old.certificate_pem)
    with pytest.raises(SettingError, match="the certificate of CN=broker is valid from"):
        load(given(ssl_keystore_location=file))


def test_client_certificates_need_authorities_to_trust(
    authority: Authority, own: Issued, tmp_path: Path
) -> None:
    file = write(tmp_path / "broker.pem", own.key_pem(), own.certificate_pem)
    with pytest.raises(SettingError, match=r"set ssl\.truststore\.location"):
        load(given(ssl_keystore_location=file, ssl_client_auth="required"))


@pytest.mark.parametrize(
    ("suites", "said"),
    [
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "is not allowed"),
        ("TLS_AES_128_GCM_SHA256", "cannot choose among the suites of TLS 1.3"),
    ],
)
def test_suites_that_cannot_be_had_are_refused(
    own: Issued, tmp_path: Path, suites: str, said: str
) -> None:
    file = write(tmp_path / "broker.pem", own.key_pem(), own.certificate_pem)
    with pytest.raises(SettingError, match=said):
        load(given(ssl_keystore_location=file, ssl_cipher_suites=suites))


def test_only_the_named_suites_are_used(own: Issued, tmp_path: Path) -> None:
    file = write(tmp_path / "broker.pem", own.key_pem(), own.certificate_pem)
    suites = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    server = load(given(ssl_keystore_location=file, ssl_cipher_suites=suites)).server
    assert server.maximum_version is ssl.TLSVersion.TLSv1_2
    older = [one["name"] for one in server.get_ciphers() if one["protocol"] == "TLSv1.2"]
    assert older == ["ECDHE-RSA-AES256-GCM-SHA384"]


def test_no_secret_is_in_a_store_that_is_shown(own: Issued, tmp_path: Path) -> None:
    file = write(tmp_path / "broker.pem", own.key_pem(password="hunter2"), own.certificate_pem)
    settings = {"ssl.keystore.location": file, "ssl.key.password": "hunter2"}
    shown = repr(load_key_store(Settings.parse(settings)))
    assert "hunter2" not in shown
    assert "PRIVATE KEY" not in shown


def test_a_world_readable_private_key_causes_a_warning(
    own: Issued, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "broker.pem"
    write(file, own.key_pem(), own.certificate_pem)
    file.chmod(0o640)
    load(given(ssl_keystore_location=str(file)))
    assert "chmod" not in caplog.text
    file.chmod(0o644)
    load(given(ssl_keystore_location=str(file)))
    assert f"chmod 600 {file}" in caplog.text

"""Certificates that AlterConfigs changes on a running broker, compared with Apache Kafka."""

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from kio.schema.alter_configs.v2 import request as replacing
from kio.schema.alter_configs.v2.response import AlterConfigsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.errors import ErrorCode
from headrace.wire.primitives import i8
from tests.security.authority import Authority, Issued, trust_store, write
from tests.security.tls_broker import Served
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port
from tests.support.stores import eventually

BROKER = i8(4)
PREFIX = "listener.name.ssl."
LOCATION = f"{PREFIX}ssl.keystore.location"
TYPE = f"{PREFIX}ssl.keystore.type"
PASSWORD = f"{PREFIX}ssl.keystore.password"
KEY = f"{PREFIX}ssl.keystore.key"
CHAIN = f"{PREFIX}ssl.keystore.certificate.chain"
KEY_PASSWORD = f"{PREFIX}ssl.key.password"
SECRET = "pl4nted-p4ssw0rd-0f-a-st0re"


@dataclass
class Secured:
    """A running broker with a listener for TLS, and its authority."""

    folder: Path
    authority: Authority
    plain: str
    ssl: str
    is_kafka: bool
    log: Path

    def issue(self, *subject: str, **more: object) -> Issued:
        return self.authority.issue(*(subject or ("CN=broker",)), **more)  # type: ignore[arg-type]

    def store(self, name: str, issued: Issued, key: str = "") -> str:
        """A PEM file with this certificate."""
        return write(self.folder / name, key or issued.key_pem(), issued.certificate_pem)

    def serial(self) -> int:
        """The serial number of the certificate that a new connection sees."""
        host, _, port = self.ssl.rpartition(":")
        return x509.load_pem_x509_certificate(
            ssl.get_server_certificate((host, int(port)), timeout=60).encode()
        ).serial_number

    def alter(
        self, configs: dict[str, str | None], *, where: str = "1", validate_only: bool = False
    ) -> tuple[ErrorCode, str]:
        changes = tuple(
            AlterableConfig(name=name, config_operation=i8(value is None), value=value)
            for name, value in configs.items()
        )
        resource = AlterConfigsResource(resource_type=BROKER, resource_name=where, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
        with self.client() as cluster:
            (result,) = cluster.ask(request, IncrementalAlterConfigsResponse).responses
        return ErrorCode(result.error_code), result.error_message or ""

    def replace(self, configs: dict[str, str]) -> ErrorCode:
        """AlterConfigs: these configs are all that the broker has."""
        rows = tuple(replacing.AlterableConfig(name=n, value=v) for n, v in configs.items())
        resource = replacing.AlterConfigsResource(
            resource_type=BROKER, resource_name="1", configs=rows
        )
        request = replacing.AlterConfigsRequest(resources=(resource,), validate_only=False)
        with self.client() as cluster:
            (result,) = cluster.ask(request, AlterConfigsResponse).responses
        return ErrorCode(result.error_code)

    def described(self) -> dict[str, DescribeConfigsResourceResult]:
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name="1", configuration_keys=None
        )
        request = DescribeConfigsRequest(
            resources=(resource,), include_synonyms=True, include_documentation=False
        )
        with self.client() as cluster:
            (result,) = cluster.ask(request, DescribeConfigsResponse).results
        return {row.name: row for row in result.configs}

    def client(self) -> Cluster:
        return Cluster(ClientConfig(parse_bootstrap(self.plain), request_timeout_s=60))

    def sees(self, issued: Issued) -> None:
        """New connections see this certificate: at once here, a little later in Kafka."""
        wanted = issued.certificate.serial_number
        if self.is_kafka:
            eventually(lambda: self.serial() == wanted, "the certificate is used")
        assert self.serial() == wanted


def settings_of(folder: Path, authority: Authority, **listeners: str) -> dict[str, str]:
    own = authority.issue("CN=broker")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": write(folder / "first.pem", own.key_pem(), own.certificate_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": write(folder / "ca.pem", authority.pem),
        **listeners,
    }


@pytest.fixture(
    scope="module",
    params=["headrace", pytest.param("kafka", marks=pytest.mark.java)],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder, authority = tmp_path_factory.mktemp("certificates"), Authority()
    if request.param == "headrace":
        listeners = "PLAINTEXT://127.0.0.1:0,SSL://localhost:0"
        served = Served(folder, settings_of(folder, authority, listeners=listeners))
        first, second = served.addresses
        yield Secured(folder, authority, first, second, False, served.log)
        served.stop()
        return
    plain, secured, controller = free_port(), free_port(), free_port()
    own = f"PLAINTEXT://127.0.0.1:{plain},SSL://localhost:{secured}"
    settings = {
        **settings_of(folder, authority, listeners=f"{own},CONTROLLER://127.0.0.1:{controller}"),
        "advertised.listeners": own,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        # Each thread has the certificate of its own, and they change one after the other.
        "num.network.threads": "1",
    }
    with ApacheKafka(folder, port=plain, settings=settings, quick=True) as kafka:
        address, output = f"localhost:{secured}", folder / "output.txt"
        yield Secured(folder, authority, kafka.bootstrap, address, True, output)


@pytest.fixture(autouse=True)
def _static_configs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test ends with the certificate of the broker's own settings."""
    yield
    if "broker" not in request.fixturenames:
        return
    broker: Secured = request.getfixturevalue("broker")
    assert broker.replace({}) is ErrorCode.NONE
    text = (broker.folder / "first.pem").read_text()
    first = x509.load_pem_x509_certificate(text[text.index("-----BEGIN CERT") :].encode())
    eventually(lambda: broker.serial() == first.serial_number, "the first certificate is used")


def test_a_new_file_is_used_by_new_connections(broker: Secured) -> None:
    before, issued = broker.serial(), broker.issue()
    path = broker.store("second.pem", issued)
    assert broker.alter({LOCATION: path}, validate_only=True) == (ErrorCode.NONE, "")
    assert broker.serial() == before
    assert broker.alter({LOCATION: path}) == (ErrorCode.NONE, "")
    broker.sees(issued)
    entry = broker.described()[LOCATION]
    shown = (entry.value, entry.is_sensitive, entry.read_only, entry.config_source)
    assert shown == (path, False, True, 2)
    first = str(broker.folder / "first.pem")
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        (LOCATION, path, 2),
        ("ssl.keystore.location", first, 4),
    ]


def test_the_same_path_is_read_again(broker: Secured) -> None:
    path = broker.store("again.pem", broker.issue())
    assert broker.alter({LOCATION: path})[0] is ErrorCode.NONE
    renewed = broker.issue()
    broker.store("again.pem", renewed)
    assert broker.alter({LOCATION: path})[0] is ErrorCode.NONE
    broker.sees(renewed)


def test_a_deleted_config_brings_the_certificate_of_the_settings_back(broker: Secured) -> None:
    before, issued = broker.serial(), broker.issue()
    assert broker.alter({LOCATION: broker.store("third.pem", issued)})[0] is ErrorCode.NONE
    broker.sees(issued)
    assert broker.alter({LOCATION: None})[0] is ErrorCode.NONE
    eventually(lambda: broker.serial() == before, "the first certificate is used")
    assert LOCATION not in broker.described()


def test_a_store_with_a_password_is_used_and_the_password_is_not_shown(broker: Secured) -> None:
    issued = broker.issue()
    path = broker.folder / "store.p12"
    path.write_bytes(issued.pkcs12(SECRET))
    configs: dict[str, str | None] = {LOCATION: str(path), TYPE: "PKCS12", PASSWORD: SECRET}
    wrong = broker.alter({**configs, PASSWORD: f"{SECRET}-wrong"})
    assert wrong[0] is ErrorCode.INVALID_REQUEST
    assert SECRET not in wrong[1]
    if broker.is_kafka:
        # The store of Apache Kafka has another number of entries than a PEM file.
        return
    assert broker.alter({**configs, f"{PREFIX}ssl.key.password": SECRET}) == (ErrorCode.NONE, "")
    broker.sees(issued)
    entry = broker.described()[PASSWORD]
    assert (entry.value, entry.is_sensitive, entry.config_source) == (None, True, 2)
    assert [one.value for one in entry.synonyms] == [None]
    assert SECRET not in broker.log.read_text()


def test_a_key_and_certificates_as_values(broker: Secured) -> None:
    issued = broker.issue()
    configs: dict[str, str | None] = {
        LOCATION: "",
        KEY: issued.key_pem(password=SECRET),
        CHAIN: issued.certificate_pem,
        KEY_PASSWORD: SECRET,
    }
    code, message = broker.alter(configs)
    if broker.is_kafka:
        # Kafka has no way to take the location of its settings back.
        assert code is ErrorCode.INVALID_REQUEST
        return
    assert (code, message) == (ErrorCode.NONE, "")
    broker.sees(issued)
    for name in (KEY, CHAIN, KEY_PASSWORD):
        entry = broker.described()[name]
        assert (entry.value, entry.is_sensitive) == (None, True)
    log = broker.log.read_text()
    assert SECRET not in log
    assert "PRIVATE KEY" not in log


@pytest.mark.parametrize(
    "kind", ["missing", "other-name", "lost-host", "foreign-key", "no-key", "garbage"]
)
def test_a_certificate_that_cannot_be_used_is_refused_and_the_old_one_stays(
    broker: Secured, kind: str
) -> None:
    if kind == "foreign-key" and broker.is_kafka:
        pytest.skip("Kafka accepts it, and no client can connect afterwards")
    before, issued = broker.serial(), broker.issue()
    match kind:
        case "missing":
            path = str(broker.folder / "missing.pem")
        case "other-name":
            path = broker.store("bad.pem", broker.issue("CN=other"))
        case "lost-host":
            path = broker.store("bad.pem", broker.issue(hosts=("localhost",)))
        case "foreign-key":
            path = broker.store("bad.pem", issued, broker.issue().key_pem())
        case "no-key":
            path = write(broker.folder / "bad.pem", issued.certificate_pem)
        case _:
            path = write(broker.folder / "bad.pem", "no certificate")
    configs_before = broker.described().keys()
    code, message = broker.alter({LOCATION: path})
    assert code is ErrorCode.INVALID_REQUEST
    assert message
    assert broker.serial() == before
    assert broker.described().keys() == configs_before


@pytest.mark.parametrize(
    ("where", "name", "sentence"),
    [
        ("1", "ssl.keystore.location", "only per-listener using the listener prefix"),
        ("", "ssl.keystore.location", "only per-listener using the listener prefix"),
        ("", LOCATION, "at default cluster level, broker id must be specified"),
    ],
)
def test_other_places_are_refused(broker: Secured, where: str, name: str, sentence: str) -> None:
    path = broker.store("place.pem", broker.issue())
    code, message = broker.alter({name: path}, where=where)
    assert code is ErrorCode.INVALID_REQUEST
    assert sentence in message
    assert f"[{name}]" in message


# ------------------------------------------------------------------------ without Apache Kafka


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Secured]]:
    """Starts a broker with these listeners, again in the same folder; the last one is stopped."""
    authority, running = Authority(), list[Served]()
    settings = settings_of(tmp_path, authority)

    def begin(listeners: str = "PLAINTEXT://127.0.0.1:0,SSL://localhost:0", **more: str) -> Secured:
        for one in running:
            one.stop()
        given = {name.replace("_", "."): text for name, text in more.items()}
        running[:] = [Served(tmp_path, {**settings, "listeners": listeners, **given})]
        addresses = running[0].addresses
        return Secured(tmp_path, authority, addresses[0], addresses[-1], False, running[0].log)

    yield begin
    for one in running:
        one.stop()


def test_a_restart_keeps_the_certificate_of_the_configs(start: Callable[..., Secured]) -> None:
    broker = start()
    issued = broker.issue()
    path = broker.store("second.pem", issued)
    assert broker.alter({LOCATION: path})[0] is ErrorCode.NONE
    broker = start()
    assert broker.serial() == issued.certificate.serial_number
    Path(path).unlink()
    first = broker.folder / "first.pem"
    broker = start()
    text = first.read_text()
    own = x509.load_pem_x509_certificate(text[text.index("-----BEGIN CERT") :].encode())
    assert broker.serial() == own.serial_number, "the settings count if the configs cannot"
    assert "second.pem: cannot be read" in broker.log.read_text()


def test_configs_of_a_listener_that_is_gone_are_left_out_and_can_be_deleted(
    start: Callable[..., Secured],
) -> None:
    broker = start()
    path = broker.store("second.pem", broker.issue())
    assert broker.alter({LOCATION: path})[0] is ErrorCode.NONE
    broker = start("PLAINTEXT://127.0.0.1:0,OTHER://localhost:0",
                   listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:SSL")  # fmt: skip
    code, message = broker.alter({LOCATION: path})
    assert code is ErrorCode.INVALID_REQUEST
    assert "no listener SSL" in message
    assert broker.alter({"log.retention.ms": "7000000"}) == (ErrorCode.NONE, "")
    assert broker.alter({LOCATION: None}) == (ErrorCode.NONE, "")
    assert LOCATION not in broker.described()


def test_a_certificate_that_other_brokers_would_not_trust_is_refused(
    start: Callable[..., Secured],
) -> None:
    broker = start(inter_broker_listener_name="SSL")
    before, foreign = broker.serial(), Authority("Another CA")
    path = broker.store("foreign.pem", foreign.issue("CN=broker"))
    code, message = broker.alter({LOCATION: path})
    assert code is ErrorCode.INVALID_REQUEST
    assert "would not connect to each other" in message
    assert broker.serial() == before
    both = write(broker.folder / "both.pem", broker.authority.pem, foreign.pem)
    assert broker.alter({f"{PREFIX}ssl.truststore.location": both}) == (ErrorCode.NONE, "")
    assert broker.alter({LOCATION: path}) == (ErrorCode.NONE, "")
    assert broker.serial() != before


def test_trusted_certificates_change_in_every_form(start: Callable[..., Secured]) -> None:
    broker = start(inter_broker_listener_name="SSL")
    foreign = Authority("Another CA")
    path = broker.store("foreign.pem", foreign.issue("CN=broker"))
    store = broker.folder / "both.p12"
    both = [each.certificate for each in (broker.authority, foreign)]
    store.write_bytes(trust_store(both, SECRET))
    trusted = {
        f"{PREFIX}ssl.truststore.location": str(store),
        f"{PREFIX}ssl.truststore.type": "PKCS12",
        f"{PREFIX}ssl.truststore.password": "wrong",
    }
    code, message = broker.alter({**trusted})
    assert code is ErrorCode.INVALID_REQUEST
    assert "ssl.truststore.password is wrong" in message
    trusted[f"{PREFIX}ssl.truststore.password"] = SECRET
    assert broker.alter({**trusted}) == (ErrorCode.NONE, "")
    assert broker.alter({LOCATION: path}) == (ErrorCode.NONE, "")
    text = "".join([broker.authority.pem, foreign.pem])
    code, message = broker.alter({f"{PREFIX}ssl.truststore.certificates": text})
    assert code is ErrorCode.INVALID_REQUEST
    assert "set only one of" in message


def test_a_later_change_of_the_file_is_still_noticed(start: Callable[..., Secured]) -> None:
    broker = start()
    assert broker.alter({LOCATION: broker.store("second.pem", broker.issue())})[0] is ErrorCode.NONE
    renewed = broker.issue()
    broker.store("second.pem", renewed)
    wanted = renewed.certificate.serial_number
    eventually(lambda: broker.serial() == wanted, "the file is read again without a request")

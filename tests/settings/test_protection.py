"""A setting that asks for protection is honoured, or refuses the start and names itself."""

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace.errors import SettingError
from headrace.settings import TABLE, Settings, Type
from headrace.settings.protection import refused_names
from tests.support.apache_kafka import ApacheKafka

SECURITY = (
    "allow.everyone.", "alter.config.policy.", "authorizer.", "client.quota.callback.",
    "connection.failed.authentication.", "connections.max.reauth.", "create.topic.policy.",
    "delegation.token.", "max.connection.creation.rate", "max.connections.per.ip",
    "principal.builder.", "sasl.", "security.", "ssl.", "super.users",
)  # fmt: skip
"""How the names of Kafka's settings begin that protect something."""
TEXTS = {
    "security.inter.broker.protocol": "SSL",
    "ssl.client.auth": "required",
    "ssl.enabled.protocols": "TLSv1.2",
    "ssl.keystore.type": "PKCS12",
    "ssl.protocol": "TLSv1.2",
    "ssl.truststore.type": "PKCS12",
}


def another_value(name: str) -> str:
    """A value that asks for something that the default does not."""
    row = TABLE.get(name)
    if row is None or name in TEXTS:
        return TEXTS.get(name, "something")
    if row.type is Type.BOOLEAN:
        return "false" if row.default else "true"
    return "12345" if row.type in (Type.INT, Type.LONG) else "something"


@pytest.mark.java
def test_every_security_setting_of_kafka_is_honoured_or_refused(apache_kafka: ApacheKafka) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap})
    known = admin.describe_configs([resource])[resource].result(60)
    names = [name for name in known if name.startswith(SECURITY)]
    assert len(names) > 80
    assert [name for name in names if not honoured_or_refused(name)] == []


def honoured_or_refused(name: str) -> bool:
    """Whether the setting has an effect, or an error that names it."""
    try:
        settings = Settings.parse({name: another_value(name)})
    except SettingError as error:
        return name in str(error)
    return name not in settings.unused and name not in settings.ignored


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "sasl.enabled.mechanisms=DIGEST-MD5"),
        ({"advertised.listeners": "SSL://a:9093"}, "advertised.listeners"),
        ({"ssl.client.auth": "required"}, "ssl.client.auth=required"),
        (
            {"listeners": "SASL_SSL://:9092", "ssl.client.auth": "required"},
            "no listener has the protocol SSL",
        ),
        (
            {
                "listeners": "PLAINTEXT://:9092,SSL://:9093",
                "listener.name.plaintext.ssl.client.auth": "required",
            },
            "listener PLAINTEXT has none",
        ),
        ({"listeners": "INTERNAL://:9092"}, "listener.security.protocol.map"),
        ({"listener.name.internal.ssl.client.auth": "required"}, "internal.ssl.client.auth"),
        ({"listener.name.a.plain.sasl.jaas.config": "x"}, "listener.name.a.plain"),
        ({"max.connections.per.ip.overrides": "host:x"}, "max.connections.per.ip.overrides"),
        ({"delegation.token.master.key": "hunter2"}, "delegation.token.master.key"),
    ],
)
def test_protection_that_is_not_given_is_refused_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.parse(given)
    assert named in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"ssl.client.auth": "none"},
        {"authorizer.class.name": ""},
        {"ssl.keystore.type": "JKS"},
        {"allow.everyone.if.no.acl.found": "false"},
        {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
        {"listeners": "IN://:9092", "listener.security.protocol.map": "IN:PLAINTEXT,X:SSL"},
        {"max.connections.per.ip": "2147483647"},
    ],
)
def test_a_value_that_asks_for_no_protection_is_accepted(given: dict[str, str]) -> None:
    assert dict(Settings.parse(given).explicit) == given


def test_a_refused_name_stands_in_no_other_table() -> None:
    names = [name for name, _ in refused_names()]
    assert len(names) == len(set(names))
    assert not set(names) & set(TABLE)

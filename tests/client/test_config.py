"""Properties with Kafka's names become a configuration, or an error that explains the problem."""

import pytest

from headrace.client.config import client_config, parse_bootstrap, parse_jaas
from headrace.client.errors import ClientError
from headrace.client.kerberos import TicketSource
from headrace.types import Address

HERE = {"bootstrap.servers": "a:1"}


def test_a_bootstrap_list_may_have_spaces_protocols_and_ipv6() -> None:
    assert parse_bootstrap("a:1, PLAINTEXT://b:2,[::1]:3,c") == (
        Address("a", 1),
        Address("b", 2),
        Address("::1", 3),
        Address("c", 9092),
    )


@pytest.mark.parametrize("text", ["", " , ", "a:b", "a:99999", "::1:9092"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ClientError, match=r"kafka\.bootstrap\.servers"):
        client_config({"bootstrap.servers": text}, "kafka.")


def test_a_login_is_read_from_jaas() -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        r'username="al,ice" password="sec\"ret";'
    )
    security = client_config(
        {
            **HERE,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": jaas,
        }
    ).security
    assert (security.username, security.password) == ("al,ice", 'sec"ret')
    assert 'sec"ret' not in repr(security)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"security.protocol": "SASL_SSL"}, "sasl.username"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "DIGEST-MD5",
                "sasl.username": "x",
                "sasl.password": "y",
            },
            "sasl.mechanism: DIGEST-MD5",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.keytab": "/a.keytab",
            },
            "sasl.kerberos.principal: set it to the principal of the keytab /a.keytab",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "x.jks"}, "ssl.ca.location"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms"),
    ],
)
def test_what_cannot_be_used_is_named(properties: dict[str, str], named: str) -> None:
    with pytest.raises(ClientError, match=named.replace(".", r"\.")):
        client_config({**HERE, **properties})


KERBEROS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, TicketSource()),
        (
            {
                "sasl.kerberos.service.name": "events",
                "sasl.kerberos.principal": "alice@A",
                "sasl.kerberos.keytab": "/a.keytab",
            },
            TicketSource("events", "alice@A", "/a.keytab"),
        ),
        (
            {
                "sasl.jaas.config": f"{MODULE} required useKeyTab=true storeKey=true "
                'keyTab="/a b.keytab" principal="alice@A" serviceName="events";'
            },
            TicketSource("events", "alice@A", "/a b.keytab"),
        ),
        (
            {
                "sasl.jaas.config": f"{MODULE} required useTicketCache=true ticketCache=/tmp/a "
                'useKeyTab=false keyTab="/a.keytab";',
                "sasl.kerberos.service.name": "kafka",
            },
            TicketSource("kafka", ticket_cache="/tmp/a"),
        ),
    ],
)
def test_tickets_come_from_where_librdkafka_and_java_get_them(
    properties: dict[str, str], expected: TicketSource
) -> None:
    assert client_config({**HERE, **KERBEROS, **properties}).security.tickets == expected


def test_a_value_in_jaas_needs_no_quotes() -> None:
    text = "x.ScramLoginModule required username=alice password=secret;"
    assert parse_jaas(text, "sasl.jaas.config") == ("alice", "secret")

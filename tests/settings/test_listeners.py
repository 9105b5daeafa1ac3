"""The listeners that settings describe, by Kafka's rules."""

import pytest

from headrace.errors import SettingError
from headrace.settings import Settings
from headrace.settings.listeners import Listener
from headrace.types import Address

MAP = {"listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,PLAINTEXT:PLAINTEXT"}


def listeners(given: dict[str, str]) -> dict[str, Listener]:
    return {one.name: one for one in Settings.parse({**MAP, **given}).listeners.all}


def test_each_listener_has_a_name_a_protocol_and_two_addresses() -> None:
    found = listeners(
        {
            "listeners": "in://:9092, OUT://[::1]:9093",
            "advertised.listeners": "IN://inside:1,OUT://outside:2",
            "inter.broker.listener.name": "in",
        }
    )
    assert found == {
        "IN": Listener("IN", "PLAINTEXT", Address("0.0.0.0", 9092), Address("inside", 1)),
        "OUT": Listener("OUT", "PLAINTEXT", Address("::1", 9093), Address("outside", 2)),
    }


def test_a_listener_without_an_advertised_address_is_advertised_where_it_listens() -> None:
    found = listeners({"listeners": "IN://:9092,OUT://10.0.0.1:9093"})
    assert [one.advertised for one in found.values()] == [("localhost", 9092), ("10.0.0.1", 9093)]


def test_the_port_that_the_system_chose_is_advertised() -> None:
    found = listeners({"listeners": "IN://127.0.0.1:0"})["IN"].bound(4711)
    assert (found.bind, found.advertised) == (("127.0.0.1", 4711), ("127.0.0.1", 4711))
    fixed = {"listeners": "IN://:0", "advertised.listeners": "IN://kafka.lan:9092"}
    assert listeners(fixed)["IN"].bound(4711).advertised == ("kafka.lan", 9092)


def test_listeners_that_are_not_advertised_are_there_all_the_same() -> None:
    found = listeners({"listeners": "IN://:1,OUT://:2", "advertised.listeners": "OUT://a:2"})
    assert found["IN"].advertised is None


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"listeners": "IN://:1,PLAINTEXT://:2"}, "PLAINTEXT"),
        ({"listeners": "IN://:1,OUT://:2"}, "IN"),
        ({"listeners": "IN://:1,OUT://:2", "inter.broker.listener.name": "out"}, "OUT"),
        ({"listeners": "IN://:1,OUT://:2", "advertised.listeners": "OUT://a:2"}, "OUT"),
        (
            {"listeners": "IN://:1,PLAINTEXT://:2", "security.inter.broker.protocol": "PLAINTEXT"},
            "PLAINTEXT",
        ),
    ],
)
def test_one_listener_is_for_brokers(given: dict[str, str], name: str) -> None:
    assert Settings.parse({**MAP, **given}).listeners.inter_broker.name == name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"listeners": ""}, "at least one"),
        ({"listeners": "localhost:9092"}, "NAME://HOST:PORT"),
        ({"listeners": "IN://:70000"}, "NAME://HOST:PORT"),
        ({"listeners": "IN://:1,in://:2"}, "each listener must have a different name, and IN"),
        ({"listeners": "IN://:1,OUT://:1"}, "each listener must have a different port"),
        ({"listeners": "IN://127.0.0.1:1,OUT://10.0.0.1:1"}, "IN and OUT both have 1"),
        ({"listeners": "OTHER://:1"}, "listener.security.protocol.map has no security protocol"),
        ({"listener.security.protocol.map": "IN:TLS"}, "IN:TLS has an unknown security protocol"),
        ({"advertised.listeners": "OUT://a:1"}, "OUT://a:1 is not one of listeners (PLAINTEXT)"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "meta-address 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://:1"}, "meta-address 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://a:0"}, "no port"),
        ({"inter.broker.listener.name": "OUT"}, "the advertised ones are PLAINTEXT"),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol=SSL"),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "only one of",
        ),
        ({"listener.name.in.ssl.client.auth": "none"}, "there is no listener IN"),
    ],
)
def test_listeners_that_do_not_fit_together_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.parse({**MAP, **given})
    assert said in str(caught.value)


def test_ipv4_and_ipv6_may_share_a_port() -> None:
    assert len(listeners({"listeners": "IN://127.0.0.1:1,OUT://[::1]:1"})) == 2


def test_a_listener_of_a_controller_is_left_to_it() -> None:
    given = {"listeners": "IN://:1,QUORUM://:2", "controller.listener.names": "QUORUM"}
    assert list(listeners({**given, "listener.name.quorum.ssl.client.auth": "none"})) == ["IN"]


def test_a_setting_for_one_listener_is_for_no_other() -> None:
    given = {"listeners": "IN://:1,OUT://:2", "listener.name.out.max.connections": "5"}
    settings = Settings.parse({**MAP, **given})
    values = [settings.for_listener(name).integer("max.connections") for name in ("IN", "OUT")]
    assert values == [settings.integer("max.connections"), 5]


def test_a_setting_that_nothing_reads_for_one_listener_is_named_as_unused() -> None:
    given = {
        "listeners": "IN://:1,OUT://:2",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SSL",
        "listener.name.out.ssl.client.auth": "required",
        "listener.name.out.max.connections": "5",
        "listener.name.in.ssl.keystore.location": "/keys",
    }
    assert Settings.parse(given).unused == (
        "listener.name.out.max.connections",
        "listener.name.in.ssl.keystore.location",
    )

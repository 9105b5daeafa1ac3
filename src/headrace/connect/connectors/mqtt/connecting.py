"""Connections to an MQTT server: addresses, logins, TLS, and which refusals are permanent."""

import contextlib
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.connect.connectors.pem_files import tls_context
from headrace.connect.plugin import (
    REQUIRED,
    Connector,
    Option,
    OptionError,
    Password,
    PermanentError,
)

if TYPE_CHECKING:
    from paho.mqtt.client import Client

PORTS = {"tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883, "tls": 8883}
WITH_TLS = ("ssl", "mqtts", "tls")
NEVER = 0xFFFFFFFF
"""The session expiry interval of a session that the server keeps for ever."""
REFUSED = (4, 5, 133, 134, 135, 138, 140, 144)
"""Reason codes that do not pass: identifier, user name or password, not authorized, banned, bad
authentication method, invalid topic. The first two are those of MQTT 3.1.1."""

CONNECTION = (
    Option("mqtt.server.uri", list[str], REQUIRED,
           "The servers, such as tcp://HOST:1883 or ssl://HOST:8883; the first that answers "
           "is used.",
           importance="high", group="Connection"),
    Option("mqtt.username", str, "", "The user; empty: none.", importance="high",
           group="Connection"),
    Option("mqtt.password", Password, "", "The password.", importance="high", group="Connection"),
    Option("mqtt.client.id", str, "",
           "The client identifier; by default headrace- and the name of the connector.",
           group="Connection"),
    Option("mqtt.protocol.version", str, "5", "The version of MQTT.", ("5", "3.1.1"), "low",
           "Connection"),
    Option("mqtt.connect.timeout.seconds", int, 30, "How long connecting may take.",
           importance="low", group="Connection"),
    Option("mqtt.keepalive.interval.seconds", int, 60,
           "After how many quiet seconds the connection is tested.", importance="low",
           group="Connection"),
    Option("mqtt.ssl.trust.store.path", str, "",
           "A PEM file with the certificates of trusted authorities; empty: the system's.",
           group="TLS"),
    Option("mqtt.ssl.key.store.path", str, "",
           "A PEM file with a certificate and its key, for servers that ask for one.",
           group="TLS"),
    Option("mqtt.ssl.key.password", Password, "", "The password of the key.", group="TLS"),
)  # fmt: skip
IGNORED = (
    "confluent.license",
    "confluent.topic",
    "confluent.topic.bootstrap.servers",
    "confluent.topic.replication.factor",
    "mqtt.ssl.key.store.password",
    "mqtt.ssl.trust.store.password",
)
"""Java's key stores need passwords; PEM files have one for the key at most."""


class MqttConnector(Connector):
    """The options of a connection, as attributes."""

    mqtt_server_uri: Sequence[str]
    mqtt_username: str
    mqtt_password: str
    mqtt_client_id: str
    mqtt_protocol_version: str
    mqtt_connect_timeout_seconds: int
    mqtt_keepalive_interval_seconds: int
    mqtt_ssl_trust_store_path: str
    mqtt_ssl_key_store_path: str
    mqtt_ssl_key_password: str

    @property
    def client_id(self) -> str:
        return self.mqtt_client_id or f"headrace-{self.config.get('name', 'connector')}"

    def servers(self) -> "list[MqttAddress]":
        """The addresses; OptionError if there is none, or one is malformed."""
        found = [_address(text) for text in self.mqtt_server_uri]
        if not found:
            raise OptionError("mqtt.server.uri", "Name a server, such as tcp://localhost:1883.")
        return found

    def tls(self) -> ssl.SSLContext:
        """How servers with TLS are verified; OptionError for files that cannot be read."""
        return tls_context(
            self,
            "mqtt.ssl.trust.store.path",
            "mqtt.ssl.key.store.path",
            self.mqtt_ssl_key_password,
        )


@dataclass(frozen=True, slots=True)
class MqttAddress:
    """A server."""

    host: str
    port: int
    with_tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _address(text: str) -> MqttAddress:
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        port = parts.port
    except ValueError:
        raise OptionError("mqtt.server.uri", f"{text} has no valid port.") from None
    if parts.scheme not in PORTS or not parts.hostname:
        known = ", ".join(f"{scheme}://" for scheme in PORTS)
        raise OptionError(
            "mqtt.server.uri", f"{text} is no address: expected HOST:PORT after {known}"
        )
    return MqttAddress(parts.hostname, port or PORTS[parts.scheme], parts.scheme in WITH_TLS)


@dataclass(slots=True)
class MqttSession:
    """What is asked of the server for a connection."""

    client_id: str
    is_clean: bool = True
    """Whether the server forgets the session when the connection ends."""
    expiry_s: int = 0
    """After how many seconds without a connection it forgets another session; MQTT 5 only."""
    receive_maximum: int = 0
    """How many messages the server sends before one of them is acknowledged; 0: its default."""
    on_message: Any = None
    lost: list[str] = field(default_factory=list)
    """Why the connection has ended, if it has."""


@contextlib.contextmanager
def connected(connector: MqttConnector, session: MqttSession) -> "Iterator[Client]":
    """A connection to the first server that answers; its messages come in a thread of its own."""
    problems: list[str] = []
    for address in connector.servers():
        try:
            client = _connect(connector, address, session)
        except OSError as error:
            problems.append(f"{address}: {error}")
            continue
        try:
            yield client
        finally:
            client.disconnect()
            client.loop_stop()
        return
    raise ConnectionError(f"no MQTT server can be reached: {'; '.join(problems)}")


def _connect(connector: MqttConnector, address: MqttAddress, session: MqttSession) -> "Client":
    from paho.mqtt.client import Client, MQTTv5, MQTTv311
    from paho.mqtt.enums import CallbackAPIVersion

    is_new = connector.mqtt_protocol_version == "5"
    client = Client(
        CallbackAPIVersion.VERSION2,
        session.client_id,
        clean_session=None if is_new else session.is_clean,
        protocol=MQTTv5 if is_new else MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    if connector.mqtt_username:
        client.username_pw_set(connector.mqtt_username, connector.mqtt_password or None)
    if address.with_tls:
        client.tls_set_context(connector.tls())
    client.connect_timeout = connector.mqtt_connect_timeout_seconds
    answered = threading.Event()
    answers: list[Any] = []

    def on_connect(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        answers.append(reason)
        answered.set()

    def on_disconnect(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        session.lost.append(str(reason))
        answered.set()

    client.on_connect = on_connect
    client.on_disconnect = on_disconnect
    client.on_message = session.on_message
    client.connect(
        address.host,
        address.port,
        connector.mqtt_keepalive_interval_seconds,
        **(_new_properties(session) if is_new else {}),
    )
    client.loop_start()
    try:
        in_time = answered.wait(connector.mqtt_connect_timeout_seconds)
        if not in_time or not answers:
            raise ConnectionError("the server did not answer CONNECT")
        if answers[0].is_failure:
            _refuse(f"the MQTT server {address} refuses the connection", answers[0])
    except BaseException:
        client.loop_stop()
        raise
    return client


def _new_properties(session: MqttSession) -> dict[str, Any]:
    """What MQTT 5 has in place of the clean session of MQTT 3.1.1."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 0 if session.is_clean else session.expiry_s
    if session.receive_maximum:
        properties.ReceiveMaximum = session.receive_maximum
    return {"clean_start": session.is_clean, "properties": properties}


def _refuse(what: str, reason: Any) -> None:
    """Raise a refusal of the server as what it is: permanent, or one that passes."""
    if reason.value in REFUSED:
        raise PermanentError(f"{what}: {reason}")
    raise ConnectionError(f"{what}: {reason}")


def subscribe(client: "Client", filters: Sequence[str], qos: int, timeout_s: float) -> None:
    """Subscribe to all filters; PermanentError if the server does not allow one."""
    from paho.mqtt.client import MQTTv5
    from paho.mqtt.subscribeoptions import SubscribeOptions

    answered = threading.Event()
    answers: list[Any] = []

    def on_subscribe(_client: Any, _data: Any, _number: Any, reasons: Any, _more: Any) -> None:
        answers.extend(reasons)
        answered.set()

    client.on_subscribe = on_subscribe
    if client.protocol == MQTTv5:
        # Retained messages come when the session is new, and not after every reconnect.
        new = SubscribeOptions(qos=qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        client.subscribe([(name, new) for name in filters])
    else:
        client.subscribe([(name, qos) for name in filters])
    if not answered.wait(timeout_s):
        raise ConnectionError("the MQTT server did not answer SUBSCRIBE")
    for name, reason in zip(filters, answers, strict=False):
        if reason.is_failure:
            raise PermanentError(f"the MQTT server refuses the subscription to {name}: {reason}")

"""The listeners of a broker: their bind addresses and advertised addresses.

Kafka's settings are `listeners`, `advertised.listeners`, `listener.security.protocol.map`,
`inter.broker.listener.name` and `security.inter.broker.protocol`. The rules are Kafka's, with two
exceptions. Without an advertised address, a listener on all interfaces is advertised as localhost.
Without a setting for it, the listener for brokers is PLAINTEXT or else the first one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.errors import SettingError
from headrace.settings.setting import Value
from headrace.types import Address

PLAINTEXT = "PLAINTEXT"
LISTENER_PREFIX = "listener.name."
"""The prefix of a setting for one listener, followed by its name in lower case."""
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_LISTENERS = "listeners"
_ADVERTISED = "advertised.listeners"
_MAP = "listener.security.protocol.map"
_INTER_BROKER = "inter.broker.listener.name"
_INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
_CONTROLLERS = "controller.listener.names"
_ALL_INTERFACES = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address on which a broker accepts connections."""

    name: str
    """In capitals, as in Kafka."""
    protocol: str
    """One of PROTOCOLS."""
    bind: Address
    advertised: Address | None
    """The advertised address of this listener; None if it is not advertised."""

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def login(self) -> bool:
        return self.protocol.startswith("SASL")

    def __str__(self) -> str:
        return f"{self.name}://{self.bind}"

    def bound(self, port: int) -> "Listener":
        """This listener once the system has chosen its port."""
        if self.bind.port == port:
            return self
        advertised = self.advertised
        if advertised is not None and advertised.port == 0:
            advertised = advertised._replace(port=port)
        return replace(self, bind=self.bind._replace(port=port), advertised=advertised)


class Listeners(NamedTuple):
    """All listeners of a broker, and the name of the one that other brokers use."""

    all: tuple[Listener, ...]
    inter_broker_name: str
    controllers: frozenset[str] = frozenset()
    """Names of listeners that belong to a KRaft controller, in lower case."""

    @property
    def inter_broker(self) -> Listener:
        """The listener that other brokers use."""
        return next(one for one in self.all if one.name == self.inter_broker_name)


def parse_listeners(values: Mapping[str, Value], given: Collection[str]) -> Listeners:
    """The listeners that the settings describe; SettingError if they are inconsistent.

    `given` are the names of the settings that were given, the others have their defaults.
    """
    protocols = _protocols(values)
    controllers = {"CONTROLLER", *(name.upper() for name in _words(values[_CONTROLLERS]))}
    bound = _endpoints(_LISTENERS, values, controllers)
    if not bound:
        raise SettingError(f"{_LISTENERS}={values[_LISTENERS] or ''}: name at least one listener")
    _check_ports(bound, str(values[_LISTENERS]))
    advertised = _endpoints(_ADVERTISED, values, controllers)
    for name, address in advertised.items():
        _check_advertised(name, address, bound)
    if not values[_ADVERTISED]:
        advertised = {name: _dialable(address) for name, address in bound.items()}
    listeners = tuple(
        Listener(name, _protocol(name, protocols), address, advertised.get(name))
        for name, address in bound.items()
    )
    return Listeners(
        listeners,
        _inter_broker(values, given, advertised),
        frozenset(name.lower() for name in controllers),
    )


def _words(value: Value) -> list[str]:
    return [word.strip() for word in str(value or "").split(",") if word.strip()]


def _protocols(values: Mapping[str, Value]) -> dict[str, str]:
    protocols = {}
    for word in _words(values[_MAP]):
        name, _, protocol = (part.strip().upper() for part in word.partition(":"))
        if protocol not in PROTOCOLS:
            raise SettingError(
                f"{_MAP}: {word} has an unknown security protocol; expected one of "
                + ", ".join(PROTOCOLS)
            )
        protocols[name] = protocol
    return protocols


def _protocol(name: str, protocols: Mapping[str, str]) -> str:
    if name not in protocols:
        raise SettingError(
            f"{_LISTENERS}: {_MAP} has no security protocol for the listener {name}; "
            f"add {name}:{PLAINTEXT} or another protocol to it"
        )
    return protocols[name]


def _endpoints(
    setting: str, values: Mapping[str, Value], controllers: Collection[str]
) -> dict[str, Address]:
    """The addresses of `setting` by the names of the listeners."""
    found: dict[str, Address] = {}
    for word in _words(values[setting]):
        name, scheme, address = word.partition("://")
        name = name.upper()
        if name in controllers:
            continue
        host, colon, port = address.rpartition(":")
        if not (name and scheme and colon and port.isdecimal() and int(port) < 65536):
            raise SettingError(f"{setting}: {word} is not of the form NAME://HOST:PORT")
        if name in found:
            raise SettingError(
                f"{setting}={values[setting]}: each listener must have a different name, and "
                f"{name} is there twice"
            )
        found[name] = Address(host.strip("[]") or "0.0.0.0", int(port))
    return found


def _check_ports(bound: Mapping[str, Address], text: str) -> None:
    """Two listeners may have one port only if one has an IPv4 and the other an IPv6 address."""
    for name, address in bound.items():
        for other, taken in bound.items():
            if other == name:
                break
            same_family = (":" in address.host) == (":" in taken.host)
            if address.port == taken.port != 0 and same_family:
                raise SettingError(
                    f"{_LISTENERS}={text}: each listener must have a different port, and {other} "
                    f"and {name} both have {address.port}"
                )


def _check_advertised(name: str, address: Address, bound: Collection[str]) -> None:
    shown = f"{_ADVERTISED}: {name}://{address}"
    if name not in bound:
        raise SettingError(
            f"{shown} is not one of {_LISTENERS} ({', '.join(bound)}); add a listener of that name"
        )
    if address.host in _ALL_INTERFACES:
        raise SettingError(
            f"{shown} cannot use the nonroutable meta-address {address.host}; use an address "
            "that clients can reach"
        )
    if address.port == 0:
        raise SettingError(f"{shown} has no port; expected 1 to 65535")


def _dialable(bind: Address) -> Address:
    """The default advertised host: localhost instead of a wildcard address."""
    return bind._replace(host="localhost") if bind.host in _ALL_INTERFACES else bind


def _inter_broker(
    values: Mapping[str, Value],
    given: Collection[str],
    advertised: Mapping[str, Address],
) -> str:
    name = str(values[_INTER_BROKER] or "").upper()
    if name and _INTER_BROKER_PROTOCOL in given:
        raise SettingError(f"set only one of {_INTER_BROKER} and {_INTER_BROKER_PROTOCOL}")
    setting = _INTER_BROKER
    if _INTER_BROKER_PROTOCOL in given:
        setting, name = _INTER_BROKER_PROTOCOL, str(values[_INTER_BROKER_PROTOCOL])
    if name and name not in advertised:
        raise SettingError(
            f"{setting}={name}: no listener of this name is advertised; the advertised ones are "
            + ", ".join(advertised)
        )
    if not name:
        name = PLAINTEXT if PLAINTEXT in advertised else next(iter(advertised), "")
    if not name:
        raise SettingError(f"{_ADVERTISED}={values[_ADVERTISED]}: advertise at least one listener")
    return name

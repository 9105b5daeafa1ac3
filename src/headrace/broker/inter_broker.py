"""Connections to other brokers: the protocol of their listener, TLS, and SASL."""

import re
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from headrace.client.bearer import TokenSource
from headrace.client.config import GSSAPI, OAUTHBEARER, Security, jaas_values, parse_jaas
from headrace.client.errors import ClientError
from headrace.client.kerberos import TicketSource, ticket_source
from headrace.errors import SettingError
from headrace.settings import Settings
from headrace.settings.listeners import LISTENER_PREFIX, Listener

if TYPE_CHECKING:
    from headrace.client.aio import AsyncConnection, Connect
    from headrace.security.tls import ListenerTls

_JAAS = "sasl.jaas.config"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_MECHANISM = "sasl.mechanism.inter.broker.protocol"
_KERBEROS_MODULE = re.compile(r"\bKrb5LoginModule\b")
_USERS = re.compile(r"\buser_\w+\s*=")


def make_connect(listener: Listener, tls: "ListenerTls | None", settings: Settings) -> "Connect":
    """A function that connects to other brokers, with TLS and SASL as the listener requires."""
    from headrace.client.aio import AsyncConnection

    security = login_security(listener, settings)

    def connect(
        host: str, port: int, client_id: str, timeout_s: float
    ) -> "Awaitable[AsyncConnection]":
        # The certificate may have been renewed.
        context = tls.client if tls is not None else None
        return AsyncConnection.connect(host, port, client_id, timeout_s, context, security)

    return connect


def login_security(listener: Listener, settings: Settings) -> Security:
    """The credentials of this broker on others; without a name if the settings have none."""
    if not listener.login:
        return Security(listener.protocol)
    mechanism = settings.for_listener(listener.name).text(_MECHANISM)
    name, text = jaas_config(listener.name, mechanism, settings)
    if mechanism == OAUTHBEARER:
        return _token_security(listener, settings.for_listener(listener.name), jaas_values(text))
    if not text:
        return Security(listener.protocol, mechanism=mechanism)
    if mechanism == GSSAPI:
        tickets = broker_tickets(listener.name, settings)
        return Security(
            listener.protocol, mechanism=GSSAPI, username=tickets.principal, tickets=tickets
        )
    try:
        username, password = parse_jaas(text, name)
    except ClientError as error:
        raise SettingError(str(error)) from error
    return Security(listener.protocol, mechanism=mechanism, username=username, password=password)


def _token_security(listener: Listener, settings: Settings, jaas: Mapping[str, str]) -> Security:
    """The credentials for OAUTHBEARER; `settings` are the listener's."""
    url = settings.text(_TOKEN_URL)
    if not url:
        return Security(listener.protocol, mechanism=OAUTHBEARER)
    scope = settings.text("sasl.oauthbearer.scope") or jaas.get("scope", "")
    tokens = TokenSource(url, jaas.get("clientId", ""), jaas.get("clientSecret", ""), scope)
    if tokens.problem():
        raise SettingError(
            f"{_TOKEN_URL}={url}: {tokens.problem()} (clientId and clientSecret in {_JAAS})"
        )
    name = tokens.client_id or url
    return Security(listener.protocol, mechanism=OAUTHBEARER, username=name, tokens=tokens)


def broker_tickets(listener: str, settings: Settings) -> TicketSource:
    """The principal and the keytab of this broker; SettingError if there are none."""
    name, text = jaas_config(listener, GSSAPI, settings)
    jaas = jaas_values(text)
    service = settings.for_listener(listener).text("sasl.kerberos.service.name")
    tickets = ticket_source({"serviceName": _service(jaas), **jaas}, service)
    if not (_KERBEROS_MODULE.search(text) and tickets.keytab and tickets.principal):
        wanted = name if text else f"{LISTENER_PREFIX}{listener.lower()}.gssapi.{_JAAS}"
        raise SettingError(
            f"{wanted}: GSSAPI needs this broker's principal and its keytab: com.sun.security.auth."
            'module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="/path/to/keytab" '
            'principal="kafka/HOST@REALM";'
        )
    return tickets


def _service(jaas: Mapping[str, str]) -> str:
    """The first part of the principal in a JAAS text: `kafka` of `kafka/HOST@REALM`."""
    return jaas.get("principal", "").partition("@")[0].partition("/")[0]


def check_login(listener: Listener, settings: Settings) -> None:
    """SettingError if the listener requires a login and the settings have no credentials."""
    if listener.login and not login_security(listener, settings).username:
        raise SettingError(
            f"brokers log in to each other on the listener {listener}, but {_JAAS} has no name "
            f"and password; set {LISTENER_PREFIX}{listener.name.lower()}.{_JAAS} "
            f"(for OAUTHBEARER: {_TOKEN_URL}; for GSSAPI: with a keytab), or choose another with "
            "inter.broker.listener.name"
        )


def jaas_config(listener: str, mechanism: str, settings: Settings) -> tuple[str, str]:
    """The JAAS setting of this broker's own user, and its value; the most specific one."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    for name in (f"{prefix}{mechanism.lower()}.{_JAAS}", f"{prefix}{_JAAS}", _JAAS):
        text = settings.explicit.get(name)
        if text:
            return name, text
    return _JAAS, ""


def check_jaas(settings: Settings) -> None:
    """SettingError if a JAAS setting defines users; users are in the cluster's metadata."""
    for name, text in settings.explicit.items():
        if name.endswith(_JAAS) and _USERS.search(text):
            raise SettingError(
                f"{name}: users are not read from JAAS (user_NAME=...). Add each with `headrace "
                "users add NAME`; PLAIN and SCRAM use the same users"
            )

"""The logins of a broker: listeners with SASL, their mechanisms, and the users."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.broker.buffers import Buffers
from headrace.broker.build import BrokerParts
from headrace.broker.connection import ClientConnection, Handler, Limits
from headrace.broker.inter_broker import broker_tickets, check_jaas, jaas_config
from headrace.broker.receive_memory import ReceiveMemory
from headrace.broker.setup.login import Login, LoginRules
from headrace.broker.setup.setups import Setups
from headrace.cluster.image import Image
from headrace.cluster.security_nodes import login_secret
from headrace.cluster.store import Store, StoreError, StoreUnreachable
from headrace.errors import SettingError
from headrace.security.mechanisms import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    Exchange,
    LoggedIn,
    make_exchange,
)
from headrace.security.passwords import Passwords
from headrace.security.tokens import Tokens
from headrace.settings import Settings
from headrace.settings.listeners import Listener

if TYPE_CHECKING:
    from headrace.security.gssapi import Tickets
    from headrace.security.oauthbearer import BearerTokens

logger = logging.getLogger(__name__)

_MECHANISMS = "sasl.enabled.mechanisms"
_CLOSE_DELETED = "headrace.sasl.close.deleted.users"
_CLOSE_AFTER_S = 0.1
_WITHOUT_TLS = {
    PLAIN: ("passwords", "headrace.sasl.plain.without.tls"),
    OAUTHBEARER: ("tokens", "headrace.sasl.oauthbearer.without.tls"),
}
"""Mechanisms that send a secret: which one, and the setting that permits them without TLS."""
MOST = 4096
"""Clients that have not logged in yet; a new one ends the oldest login beyond that."""
_MEMORY_BYTES = 16 * 1024 * 1024
_FREE_BYTES = 4096
_SHARED_BYTES = 1024
"""Receive memory of clients that have not logged in, apart from that of the others: all of it, what
an unfinished message may take without asking, and what is received at once."""


def read_login_secret(store: Store) -> bytes:
    """The cluster's secret for the challenges of unknown users.

    A broker whose disk is full must be able to start: it uses a secret of its own.
    """
    try:
        return login_secret(store)
    except StoreUnreachable:
        raise
    except StoreError as error:
        logger.warning(
            "the secret for logins of unknown users cannot be stored: %s. Until its next start "
            "this broker uses another one, by which clients can find out which users exist", error,
        )  # fmt: skip
        return secrets.token_bytes(32)


class Logins:
    """Requires a login on listeners with SASL."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        settings: Settings,
        parts: BrokerParts,
        dispatch: Handler,
        limits: Limits,
        unknown_users_secret: bytes,
    ) -> None:
        check_jaas(settings)
        self._parts = parts
        tokens = Tokens.of(settings, parts.services.clock)
        self._passwords = Passwords(
            lambda: parts.metadata.image.security, unknown_users_secret, tokens
        )
        self._proofs: list[BearerTokens | Tickets] = []
        """What checks proofs other than passwords."""
        memory = ReceiveMemory(_MEMORY_BYTES, free_bytes=_FREE_BYTES)
        self._buffers = Buffers(memory, _SHARED_BYTES)
        timeout_s = settings.integer("socket.connection.setup.timeout.ms") / 1000
        self._under_way: Setups[Login] = Setups("login", MOST, timeout_s)
        self._rules = {
            listener.name: self._make_rules(
                listener, settings.for_listener(listener.name), dispatch, limits
            )
            for listener in listeners
            if listener.login
        }
        self._closes_deleted = settings.boolean(_CLOSE_DELETED)
        if self._closes_deleted:
            parts.metadata.listeners.append(self._close_connections_of_deleted)
        if not parts.metadata.image.security.users and not self._proofs:
            names = " and ".join(self._rules)
            logger.warning(
                "the listener %s requires a login, but there are no users. Stop the broker and add "
                "one with `headrace users add NAME --data DATA`", names,
            )  # fmt: skip

    def _make_rules(
        self, listener: Listener, settings: Settings, dispatch: Handler, limits: Limits
    ) -> LoginRules:
        mechanisms = settings.words(_MECHANISMS)
        if not mechanisms:
            raise SettingError(f"{_MECHANISMS} is empty, but the listener {listener} requires SASL")
        for mechanism, (what, allowed) in _WITHOUT_TLS.items():
            if mechanism in mechanisms and not listener.tls:
                if not settings.boolean(allowed):
                    raise SettingError(
                        f"{_MECHANISMS} has {mechanism}, but the listener {listener} has no TLS: "
                        f"{what} could be read on the network. Use SASL_SSL or SCRAM, or set "
                        f"{allowed}=true"
                    )
                logger.warning(
                    "%s receives %s unencrypted (%s without TLS)", listener, what, mechanism
                )
        return LoginRules(
            listener=listener.name,
            mechanisms=mechanisms,
            make_exchange=self._exchange_maker(listener, mechanisms, settings),
            clock=self._parts.services.clock,
            failure_delay_s=settings.integer("connection.failed.authentication.delay.ms") / 1000,
            under_way=self._under_way,
            most_session_ms=settings.integer("connections.max.reauth.ms"),
            first_limits=Limits(
                settings.integer("sasl.server.max.receive.size"), 1, self._buffers, least_bytes=0
            ),
            limits=limits,
            dispatch=dispatch,
            audit=self._parts.services.audit,
            welcome=self._welcome,
        )

    def _exchange_maker(
        self, listener: Listener, mechanisms: Sequence[str], settings: Settings
    ) -> Callable[[str], Exchange]:
        """A function that begins a login by one of the mechanisms."""
        makers: dict[str, Callable[[], Exchange]] = {}
        if OAUTHBEARER in mechanisms:
            makers[OAUTHBEARER] = self._token_logins(listener, settings)
        if GSSAPI in mechanisms:
            makers[GSSAPI] = self._ticket_logins(listener, settings)

        def begin(mechanism: str) -> Exchange:
            make = makers.get(mechanism)
            return make() if make is not None else make_exchange(mechanism, self._passwords)

        return begin

    def _token_logins(self, listener: Listener, settings: Settings) -> Callable[[], Exchange]:
        try:
            from headrace.security.oauthbearer import BearerLogin, make_tokens
        except ImportError as error:
            raise SettingError(
                f"{_MECHANISMS} has OAUTHBEARER, which requires the package cryptography: "
                "pip install 'headrace[security]'"
            ) from error
        owner = f"the listener {listener} has OAUTHBEARER"
        tokens = make_tokens(owner, settings, self._parts.services.clock)
        self._proofs.append(tokens)
        return lambda: BearerLogin(tokens)

    def _ticket_logins(self, listener: Listener, settings: Settings) -> Callable[[], Exchange]:
        from headrace.security.gssapi import KerberosLogin, make_tickets

        own = broker_tickets(listener.name, settings)
        setting, _ = jaas_config(listener.name, GSSAPI, settings)
        tickets = make_tickets(own.principal, own.keytab, setting, settings)
        self._proofs.append(tickets)
        return lambda: KerberosLogin(tickets)

    def begin(self, listener: str) -> Login | None:
        """The login of a new connection; None if the listener needs none."""
        rules = self._rules.get(listener)
        return None if rules is None else Login(rules)

    def _welcome(self, connection: ClientConnection, user: LoggedIn) -> None:
        caller = connection.caller
        caller.principal = f"User:{user.username}"
        caller.by_token = user.by_token
        caller.credential = user.credential
        caller.quota = caller.fetch_quota = None  # those of another user
        self._parts.services.admit(caller)
        if self._closes_deleted:  # the user may have been deleted during the login
            self._close_if_deleted(connection)

    def _close_connections_of_deleted(self, old: Image, new: Image) -> None:
        """Close the connections of users and tokens that do not exist any more."""
        if old.security.users is new.security.users and old.security.tokens is new.security.tokens:
            return
        for connection in self._parts.connections:
            self._close_if_deleted(connection)

    def _close_if_deleted(self, connection: ClientConnection) -> None:
        credential = connection.caller.credential
        if credential is None or self._parts.metadata.image.security.has(credential):
            return
        logger.info("closing %s: its %s was deleted", connection.address, credential[0])
        # A client that deletes its own user gets its response first.
        asyncio.get_running_loop().call_later(_CLOSE_AFTER_S, connection.close)

    def close(self) -> None:
        """Stop checking passwords, tokens and tickets."""
        self._under_way.close()
        self._passwords.close()
        for proofs in self._proofs:
            proofs.close()

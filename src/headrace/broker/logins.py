"""The logins of a broker: which listeners want one, by which mechanisms, and who the users are."""

import logging
from collections.abc import Sequence

from headrace.broker.build import BrokerParts
from headrace.broker.connection import Connection, Handler, Limits
from headrace.broker.inter_broker import check_jaas
from headrace.broker.login import Login, LoginRules
from headrace.errors import SettingError
from headrace.security.mechanisms import PLAIN, LoggedIn, make_exchange
from headrace.security.passwords import Passwords
from headrace.security.tokens import Tokens
from headrace.settings import Settings
from headrace.settings.listeners import Listener

logger = logging.getLogger(__name__)

_MECHANISMS = "sasl.enabled.mechanisms"
_PLAIN_WITHOUT_TLS = "headrace.sasl.plain.without.tls"


class Logins:
    """Makes clients of listeners with SASL log in first."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        settings: Settings,
        parts: BrokerParts,
        dispatch: Handler,
        limits: Limits,
    ) -> None:
        check_jaas(settings)
        self._parts = parts
        tokens = Tokens.of(settings, parts.services.clock)
        self._passwords = Passwords(lambda: parts.metadata.image.security, tokens)
        self._rules = {
            listener.name: self._make_rules(
                listener, settings.for_listener(listener.name), dispatch, limits
            )
            for listener in listeners
            if listener.login
        }
        if not parts.metadata.image.security.users:
            names = " and ".join(self._rules)
            logger.warning(
                "the listener %s wants a login, and there is no user. Stop the broker and make one "
                "with `headrace users add NAME --data DATA`", names,
            )  # fmt: skip

    def _make_rules(
        self, listener: Listener, settings: Settings, dispatch: Handler, limits: Limits
    ) -> LoginRules:
        mechanisms = settings.words(_MECHANISMS)
        if not mechanisms:
            raise SettingError(f"{_MECHANISMS} is empty, and the listener {listener} has SASL")
        if PLAIN in mechanisms and not listener.tls:
            if not settings.boolean(_PLAIN_WITHOUT_TLS):
                raise SettingError(
                    f"{_MECHANISMS} has PLAIN, and the listener {listener} has no TLS: everyone on "
                    "the way could read passwords. Use SASL_SSL or SCRAM, or set "
                    f"{_PLAIN_WITHOUT_TLS}=true"
                )
            logger.warning("%s takes passwords without encryption (PLAIN without TLS)", listener)
        return LoginRules(
            listener=listener.name,
            mechanisms=mechanisms,
            make_exchange=lambda mechanism: make_exchange(mechanism, self._passwords),
            clock=self._parts.services.clock,
            failure_delay_s=settings.integer("connection.failed.authentication.delay.ms") / 1000,
            setup_timeout_s=settings.integer("socket.connection.setup.timeout.ms") / 1000,
            most_session_ms=settings.integer("connections.max.reauth.ms"),
            first_limits=Limits(settings.integer("sasl.server.max.receive.size"), 1, least_bytes=0),
            limits=limits,
            dispatch=dispatch,
            audit=self._parts.services.audit,
            welcome=self._welcome,
        )

    def begin(self, listener: str) -> Login | None:
        """What serves a new client of a listener first; None if it needs no login."""
        rules = self._rules.get(listener)
        return None if rules is None else Login(rules)

    def _welcome(self, connection: Connection, user: LoggedIn) -> None:
        connection.caller.principal = f"User:{user.username}"
        connection.caller.by_token = user.by_token
        self._parts.services.admit(connection.caller)

    def close(self) -> None:
        """Stop checking passwords."""
        self._passwords.close()

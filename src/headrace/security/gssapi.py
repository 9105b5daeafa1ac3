"""GSSAPI (RFC 4752) on the broker's side: a client logs in with a Kerberos ticket.

The client authenticates with its ticket, then both sides agree on no security layer: encryption
is done by TLS, as in Kafka. Tickets are checked in a worker thread with a bounded queue.
"""

import logging
import os
import stat
from enum import Enum, auto
from functools import partial

from headrace.errors import SettingError
from headrace.security.gss import (
    AcceptorContext,
    Credential,
    GssError,
    LibraryMissing,
    acceptor_credential,
    default_realm,
)
from headrace.security.kerberos_names import RULES_SETTING, KerberosRules
from headrace.security.logins import LoginRefused, LoginWorker
from headrace.security.mechanisms import LoggedIn
from headrace.settings import Settings

logger = logging.getLogger(__name__)

MOST_TOKENS = 4
"""Tokens of a client until its context is complete; Kerberos needs one or two."""
_NO_LAYER = 1
"""The bit of no security layer, in the first octet of the offer and of the choice."""
_OFFER = bytes((_NO_LAYER, 0, 0, 0))


class Tickets:
    """Checks the tickets of one listener's clients."""

    def __init__(self, credential: Credential, rules: KerberosRules) -> None:
        self.credential = credential
        self.rules = rules
        self.worker = LoginWorker("tickets", "kerberos-tickets")

    def close(self) -> None:
        """Stop the thread."""
        self.worker.close()


class _Expected(Enum):
    """What the client has to send next."""

    CONTEXT_TOKEN = auto()
    NOTHING = auto()
    CHOICE = auto()


class KerberosLogin:
    """One login with a ticket."""

    def __init__(self, tickets: Tickets) -> None:
        self._tickets = tickets
        self._context = AcceptorContext(tickets.credential)
        self._expected = _Expected.CONTEXT_TOKEN
        self._tokens = 0
        self.username = ""
        self.result: LoggedIn | None = None

    async def step(self, token: bytes) -> bytes:
        """Accept the ticket, offer the security layers, take the client's choice."""
        return await self._tickets.worker.run(partial(self._step, token))

    def _step(self, token: bytes) -> bytes:
        """Like `step`, in the worker thread."""
        try:
            if self._expected is _Expected.CONTEXT_TOKEN:
                return self._accept(token)
            if self._expected is _Expected.NOTHING:
                if token:
                    raise LoginRefused("it sent an unexpected token")
                return self._offer()
            return self._finish(self._context.unwrap(token))
        except GssError as error:
            raise LoginRefused(f"its Kerberos token is refused: {error}") from error

    def _accept(self, token: bytes) -> bytes:
        self._tokens += 1
        if not token or self._tokens > MOST_TOKENS:
            raise LoginRefused("it sent no Kerberos token, or too many")
        answer = self._context.accept(token)
        if not self._context.complete:
            return answer
        self.username = self._context.principal
        if not answer:
            return self._offer()
        self._expected = _Expected.NOTHING
        return answer

    def _offer(self) -> bytes:
        self._expected = _Expected.CHOICE
        return self._context.wrap(_OFFER)

    def _finish(self, choice: bytes) -> bytes:
        """The user is the ticket's: as in Kafka, the authorization id in the choice is ignored."""
        if len(choice) < len(_OFFER) or choice[0] != _NO_LAYER:
            raise LoginRefused("it requested a security layer, but none is offered")
        self.result = LoggedIn(self._tickets.rules.username(self._context.principal))
        return b""


# -------------------------------------------------------------------------------- the settings


def make_tickets(principal: str, keytab: str, jaas_setting: str, settings: Settings) -> Tickets:
    """The ticket checks for a principal of the keytab; SettingError if they are not possible.

    `settings` are the listener's; `jaas_setting` is the one that names principal and keytab.
    """
    try:
        rules = _rules(settings)
        credential = acceptor_credential(principal, keytab)
    except LibraryMissing as error:
        raise SettingError(f"sasl.enabled.mechanisms has GSSAPI: {error}") from error
    except GssError as error:
        raise SettingError(
            f"{jaas_setting}: no key for the principal {principal} in {keytab}: {error}"
        ) from error
    if os.stat(keytab).st_mode & stat.S_IROTH:
        logger.warning(
            "every user of this machine may read the keys in %s; allow it only to the broker's "
            "user: chmod 600 %s", keytab, keytab,
        )  # fmt: skip
    return Tickets(credential, rules)


def _rules(settings: Settings) -> KerberosRules:
    rules = settings.words(RULES_SETTING)
    realm = default_realm()
    if "DEFAULT" in rules and not realm:
        raise SettingError(
            f"{RULES_SETTING} has DEFAULT, and krb5.conf has no default_realm; add it to "
            "/etc/krb5.conf or to the file that the environment variable KRB5_CONFIG names"
        )
    return KerberosRules(rules, realm)

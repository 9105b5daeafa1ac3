"""GSSAPI (RFC 4752) on the client's side: a login with a Kerberos ticket.

The ticket comes from the ticket cache of `kinit`, or is requested with a keytab. A request
to the KDC blocks, so the asyncio connection performs the login in a thread.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError, Unreachable

if TYPE_CHECKING:
    from headrace.security.gss import Credential, InitiatorContext

SERVICE_NAME = "kafka"
_NO_LAYER = 1
_CHOICE = bytes((_NO_LAYER, 0, 0, 0))


@dataclass(frozen=True, slots=True)
class TicketSource:
    """The source of tickets, and the service."""

    service: str = SERVICE_NAME
    principal: str = ""
    """The principal; empty: that of the tickets in the cache."""
    keytab: str = ""
    """The keytab; empty: the tickets are in a cache."""
    ticket_cache: str = ""
    """The ticket cache; empty: the default one, or that of KRB5CCNAME."""


def ticket_source(jaas: Mapping[str, str], service: str) -> TicketSource:
    """The source for options of Java's Krb5LoginModule; `service` is that of the properties."""
    keytab = jaas.get("keyTab", "") if jaas.get("useKeyTab", "true").lower() == "true" else ""
    return TicketSource(
        service or jaas.get("serviceName", "") or SERVICE_NAME,
        jaas.get("principal", ""),
        keytab.removeprefix("file:").removeprefix("FILE:"),
        jaas.get("ticketCache", ""),
    )


def kerberos_login(source: TicketSource, host: str) -> Generator[bytes, bytes, None]:
    """Yield the messages to send, and receive each reply."""
    # Imported here, so that a client without Kerberos starts faster.
    from headrace.security.gss import GssError, KdcUnreachable

    try:
        context = _context(source, host)
        token = context.step(b"")
        while not context.complete:
            token = context.step((yield token))
        offer = context.unwrap((yield token))
        if len(offer) != len(_CHOICE) or not offer[0] & _NO_LAYER:
            raise ClientError(
                "the broker requires a security layer of GSSAPI, which Kafka does not support"
            )
        final = context.wrap(_CHOICE)
    except KdcUnreachable as error:
        raise Unreachable(f"no ticket for {source.service}/{host}: {error}") from error
    except GssError as error:
        raise ClientError(f"GSSAPI login failed for {source.service}/{host}: {error}") from error
    yield final


def _context(source: TicketSource, host: str) -> "InitiatorContext":
    from headrace.security.gss import InitiatorContext

    return InitiatorContext(_credential(source), source.service, host)


def _credential(source: TicketSource) -> "Credential":
    import hashlib

    from headrace.security.gss import initiator_credential

    cache = source.ticket_cache
    if source.keytab and not cache:
        # In memory, where the library finds the tickets until they expire.
        text = f"{source.principal}\0{source.keytab}"
        cache = f"MEMORY:headrace-{hashlib.sha256(text.encode()).hexdigest()}"
    return initiator_credential(source.principal, source.keytab, cache)

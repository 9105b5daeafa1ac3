"""GSSAPI (RFC 4752) from the client's side: a login with a Kerberos ticket.

The ticket comes from the ticket cache that `kinit` has filled, or is got with a keytab. Getting one
asks the KDC, and blocks: the asyncio connection steps through the login in a thread.
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
    """Where tickets come from, and for which service."""

    service: str = SERVICE_NAME
    principal: str = ""
    """Empty: the one whose tickets are in the cache."""
    keytab: str = ""
    """Empty: the tickets are in a cache."""
    ticket_cache: str = ""
    """Empty: the default one, which the environment variable KRB5CCNAME names."""


def ticket_source(jaas: Mapping[str, str], service: str) -> TicketSource:
    """What the options of Java's Krb5LoginModule mean; `service` is that of the properties."""
    keytab = jaas.get("keyTab", "") if jaas.get("useKeyTab", "true").lower() == "true" else ""
    return TicketSource(
        service or jaas.get("serviceName", "") or SERVICE_NAME,
        jaas.get("principal", ""),
        keytab.removeprefix("file:").removeprefix("FILE:"),
        jaas.get("ticketCache", ""),
    )


def kerberos_login(source: TicketSource, host: str) -> Generator[bytes, bytes, None]:
    """What to send to the broker, step by step; each answer is sent in."""
    # Imported here: a client without Kerberos starts faster without.
    from headrace.security.gss import GssError, KdcUnreachable

    try:
        context = _context(source, host)
        token = context.step(b"")
        while not context.complete:
            token = context.step((yield token))
        offer = context.unwrap((yield token))
        if len(offer) != len(_CHOICE) or not offer[0] & _NO_LAYER:
            raise ClientError("the broker asks for a security layer of GSSAPI; Kafka has none")
        final = context.wrap(_CHOICE)
    except KdcUnreachable as error:
        raise Unreachable(f"no ticket for {source.service}/{host}: {error}") from error
    except GssError as error:
        raise ClientError(f"no login with GSSAPI to {source.service}/{host}: {error}") from error
    yield final


def _context(source: TicketSource, host: str) -> "InitiatorContext":
    from headrace.security.gss import InitiatorContext

    return InitiatorContext(_credential(source), source.service, host)


def _credential(source: TicketSource) -> "Credential":
    import hashlib

    from headrace.security.gss import initiator_credential

    cache = source.ticket_cache
    if source.keytab and not cache:
        # In memory, where the library finds the tickets again until they expire.
        text = f"{source.principal}\0{source.keytab}"
        cache = f"MEMORY:headrace-{hashlib.sha256(text.encode()).hexdigest()}"
    return initiator_credential(source.principal, source.keytab, cache)

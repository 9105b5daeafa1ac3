"""TLS and logins of a service's process, as its settings ask for them."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from headrace.errors import SettingError
from headrace.service.application import CERTIFICATE_STATE
from headrace.service.authentication import Authentication, make_authentication
from headrace.service.settings import KEY_STORES, ServiceSettings

if TYPE_CHECKING:
    from headrace.security.tls import ServerTls

_CLIENT_AUTHENTICATION = "ssl.client.authentication"


@dataclass(frozen=True, slots=True)
class ServiceSecurity:
    """What protects a service; nothing by default."""

    tls: "ServerTls | None" = None
    authentication: Authentication | None = None
    asks_for_certificates: bool = False

    def renew(self) -> None:
        """Follow changes of the files with certificates and users."""
        if self.tls is not None:
            self.tls.renew()
        if self.authentication is not None:
            self.authentication.renew()

    def close(self) -> None:
        """Stop the threads."""
        if self.authentication is not None:
            self.authentication.close()


UNPROTECTED = ServiceSecurity()


def make_security(service: str, settings: ServiceSettings) -> ServiceSecurity:
    """What the settings ask for; SettingError if that is not possible."""
    authentication = make_authentication(service, settings)
    client_auth = settings.text(_CLIENT_AUTHENTICATION)
    if settings.tls:
        # Imported here: a service without TLS starts faster without.
        from headrace.security.tls import ServerTls

        tls = ServerTls(f"the {service}", settings, client_auth.lower())
        return ServiceSecurity(tls, authentication, client_auth != "NONE")
    stores = (*KEY_STORES, "ssl.truststore.location", "ssl.truststore.certificates")
    given = [name for name in stores if settings.text(name)]
    if client_auth != "NONE":
        given.append(f"{_CLIENT_AUTHENTICATION}={client_auth}")
    if given:
        raise SettingError(
            f"{given[0]} is for TLS, and listeners={settings.text('listeners')} has none; use "
            "https:// there"
        )
    return ServiceSecurity(None, authentication)


class CertificateProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """uvicorn's HTTP connection, whose requests know the client's certificate."""

    app_state: dict[str, Any]

    def connection_made(self, transport: asyncio.Transport) -> None:
        from headrace.security.x509 import NotACertificate, parse_certificate

        tls = transport.get_extra_info("ssl_object")
        der = None if tls is None else tls.getpeercert(binary_form=True)
        if der:
            try:
                name = parse_certificate(der).distinguished_name
            except NotACertificate:
                name = None
            self.app_state = {**self.app_state, CERTIFICATE_STATE: name}
        super().connection_made(transport)

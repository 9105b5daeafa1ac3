"""TLS contexts of a server: for its clients, and for connections to other brokers.

`ServerTls` is for any server, such as the registry; `ListenerTls` is for a broker's listener.

TLS 1.2 and 1.3 with AEAD cipher suites and forward secrecy; no renegotiation, no compression.
Certificates are renewed without a restart: new handshakes use the new ones, open connections keep
theirs. An invalid renewal is refused, and the present certificate stays in use.
"""

import logging
import os
import ssl
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.errors import SettingError
from headrace.portable import LINUX
from headrace.security.key_stores import (
    FileStamp,
    KeyStore,
    load_key_store,
    load_trusted,
    stamps,
)
from headrace.security.principals import PrincipalRules
from headrace.security.x509 import Certificate
from headrace.settings import Settings
from headrace.settings.listeners import LISTENER_PREFIX, Listener
from headrace.settings.security_table import DYNAMIC_PER_LISTENER
from headrace.settings.setting import SettingValues
from headrace.types import Address

logger = logging.getLogger(__name__)

_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"
_TLS_1_3_SUITES = {
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
}
_TLS_1_2_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""OpenSSL's errors for a key that does not belong to the certificate."""
_HANDSHAKE_TURNS = 4
"""More than the messages that either side of a handshake waits for."""
_WARN_DAYS = 30
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What was read from the files and values of some settings."""

    settings: SettingValues
    stamps: tuple[FileStamp, ...]
    keys: KeyStore
    trusted: bytes | None
    server: ssl.SSLContext


class ServerTls:
    """The certificates of one server and the contexts with them."""

    def __init__(
        self,
        owner: str,
        settings: SettingValues,
        client_auth: str,
        advertised: Address | None = None,
    ) -> None:
        """SettingError if the settings are not valid.

        `owner` names the server in messages; `client_auth` is one of none, requested, required.
        """
        self._owner = owner
        self._client_auth = client_auth
        self._advertised = advertised
        self.rules = PrincipalRules(settings.text("ssl.principal.mapping.rules"))
        self._warn_from = 0.0
        loaded = self._load(settings)
        self._check_host(loaded)
        self._use(loaded)
        self._warn_of_expiry()
        self._warn_of_readers()

    def _use(self, loaded: _Loaded) -> None:
        self._settings, self._stamps = loaded.settings, loaded.stamps
        self._keys, self._trusted = loaded.keys, loaded.trusted
        self.server: ssl.SSLContext = loaded.server
        """The context for clients of this server."""
        self._client: ssl.SSLContext | None = None

    @property
    def certificate(self) -> Certificate:
        """The certificate of this server."""
        return self._keys.chain[0]

    @property
    def client(self) -> ssl.SSLContext:
        """The context for connections from this server to other brokers."""
        if self._client is None:
            self._client = _client_context(self._settings, self._keys, self._trusted)
        return self._client

    def renewing_context(self) -> ssl.SSLContext:
        """A context for servers that use one context throughout, such as asyncio's.

        Each handshake uses the certificates that are current when it begins.
        """
        context = self.server
        context.sni_callback = lambda connection, *_: setattr(connection, "context", self.server)
        return context

    @property
    def days_left(self) -> float:
        """The days until the certificate expires."""
        return (self.certificate.not_after - _now()).total_seconds() / _DAY_S

    def renew(self, *, always: bool = False) -> None:
        """Load the certificates again if the files have changed."""
        self._warn_of_expiry()
        found = stamps(self._settings)
        if found == self._stamps and not always:
            return
        self._stamps = found
        try:
            loaded = self._load_successor(self._settings)
        except (SettingError, OSError, ValueError) as error:
            self._log_refused(error)
            return
        self._renew_with(loaded)

    def _renew_with(self, loaded: _Loaded) -> None:
        self._use(loaded)
        logger.info(
            "%s uses a certificate of %s, valid until %s",
            self._owner, self.certificate.distinguished_name, self.certificate.not_after,
            extra={"fields": {"event": "certificate_renewed"}},
        )  # fmt: skip

    def _log_refused(self, error: Exception) -> None:
        logger.error(
            "%s keeps its certificate of %s: %s",
            self._owner, self.certificate.distinguished_name, error,
            extra={"fields": {"event": "certificate_refused"}},
        )  # fmt: skip

    def _load(self, settings: SettingValues) -> _Loaded:
        found = stamps(settings)
        keys = load_key_store(settings)
        if keys is None:
            raise SettingError(
                f"{self._owner} has no certificate; set ssl.keystore.location to a PEM file with "
                "the private key and the certificates"
            )
        now = _now()
        for certificate in keys.chain:
            if not certificate.not_before <= now <= certificate.not_after:
                raise SettingError(
                    f"{keys.origin}: the certificate of {certificate.distinguished_name} is valid "
                    f"from {certificate.not_before} to {certificate.not_after} only"
                )
        trusted = load_trusted(settings)
        server = _server_context(settings, keys, trusted, self._client_auth)
        return _Loaded(settings, found, keys, trusted, server)

    def _load_successor(self, settings: SettingValues) -> _Loaded:
        """Load certificates that can replace the present ones; SettingError if they cannot."""
        loaded = self._load(settings)
        self._check_successor(loaded.keys.chain[0])
        self._check_host(loaded)
        return loaded

    def _check_host(self, loaded: _Loaded) -> None:
        """SettingError if the certificate lacks the advertised host, which clients check."""
        advertised, own = self._advertised, loaded.keys.chain[0]
        if advertised is None or own.names(advertised.host):
            return
        text = (
            f"{self._owner} advertises {advertised}, but its certificate is for "
            f"{', '.join(sorted(own.hosts)) or 'no host'} only: clients would refuse it. Advertise "
            f"one of these names, or get a certificate with {advertised.host} among its subject "
            "alternative names"
        )
        if loaded.settings.text("ssl.endpoint.identification.algorithm"):
            raise SettingError(text)
        logger.warning("%s", text)

    def _check_successor(self, new: Certificate) -> None:
        """SettingError unless the new certificate is for the same broker, as in Kafka."""
        old = self.certificate
        if (
            new.distinguished_name.lower() != old.distinguished_name.lower()
            and not self._settings.boolean("ssl.allow.dn.changes")
        ):
            raise SettingError(
                f"the new certificate has another name, {new.distinguished_name}; "
                "set ssl.allow.dn.changes=true to allow it"
            )
        lost = old.hosts - new.hosts
        if lost and not self._settings.boolean("ssl.allow.san.changes"):
            raise SettingError(
                f"the new certificate lacks the host {', '.join(sorted(lost))}; "
                "set ssl.allow.san.changes=true to allow it"
            )

    def expiry_warning(self) -> str:
        """A warning if the certificate expires soon, else empty."""
        days, when = self.days_left, self.certificate.not_after
        if days >= _WARN_DAYS:
            return ""
        ends = f"expires in {days:.0f} days, on {when}" if days > 0 else f"has expired on {when}"
        return f"the certificate of {self._owner} {ends}; renew it"

    def _warn_of_expiry(self) -> None:
        """Log the expiry warning, once a day."""
        warning, now = self.expiry_warning(), time.monotonic()
        if warning and now >= self._warn_from:
            self._warn_from = now + _DAY_S
            logger.warning("%s", warning)

    def _warn_of_readers(self) -> None:
        """Warn if users other than the owner and the group may read the private key."""
        path = self._settings.text("ssl.keystore.location")
        if path and os.stat(path).st_mode & stat.S_IROTH:
            logger.warning(
                "every user of this machine may read the private key in %s; restrict it to the "
                "server's user: chmod 600 %s",
                path, path,
            )  # fmt: skip


class ListenerTls(ServerTls):
    """The certificates of a broker's listener."""

    def __init__(self, listener: Listener, settings: Settings) -> None:
        """SettingError if the settings of this listener are not valid."""
        own = settings.for_listener(listener.name)
        client_auth = own.text("ssl.client.auth")
        if listener.login:
            # With SASL, clients need a certificate only by the listener's own setting.
            name = f"{LISTENER_PREFIX}{listener.name.lower()}.ssl.client.auth"
            client_auth = settings.explicit.get(name, "none").strip()
        super().__init__(f"listener {listener.name}", own, client_auth, listener.advertised)
        self.listener = listener.name
        self._is_inter_broker = listener.name == settings.listeners.inter_broker_name

    def check(self, settings: Settings, *, always: bool = False) -> None:
        """SettingError if the certificates of these settings cannot replace the present ones.

        Settings of the same certificates are checked only if `always`.
        """
        own = settings.for_listener(self.listener)
        if always or self._differs(own):
            self._load_successor(own)

    def alter(self, settings: Settings) -> None:
        """Use the certificates of these settings; keep the present ones if they are not valid."""
        own = settings.for_listener(self.listener)
        if not self._differs(own) and stamps(own) == self._stamps:
            return
        try:
            loaded = self._load_successor(own)
        except (SettingError, OSError, ValueError) as error:
            self._log_refused(error)
            return
        self._renew_with(loaded)

    def _differs(self, settings: Settings) -> bool:
        return any(
            settings.text(name) != self._settings.text(name) for name in DYNAMIC_PER_LISTENER
        )

    def _load_successor(self, settings: SettingValues) -> _Loaded:
        loaded = super()._load_successor(settings)
        if self._is_inter_broker:
            self._check_peers(loaded)
        return loaded

    def _check_peers(self, loaded: _Loaded) -> None:
        """SettingError if brokers with the old and the new certificates would not connect.

        Kafka has this check too. It is skipped if brokers with the present certificates do not
        connect to each other either, as on a single broker whose trust store is for clients.
        """
        client = _client_context(loaded.settings, loaded.keys, loaded.trusted)
        pairs = (self.server, client), (loaded.server, self.client)
        if _handshake_error(self.server, self.client):
            return
        for server, of_peer in pairs:
            if error := _handshake_error(server, of_peer):
                raise SettingError(
                    f"{loaded.keys.origin}: brokers with the present certificate and brokers with "
                    f"the new one would not connect to each other ({error}). Trust both "
                    "authorities in ssl.truststore first"
                )


class ClientTls:
    """The certificates with which this process is a client of another server."""

    def __init__(self, owner: str, settings: SettingValues) -> None:
        """SettingError if the settings do not make a context; `owner` names it in messages."""
        self._owner = owner
        self._settings = settings
        self._stamps = stamps(settings)
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """The context for a new connection, with the certificates that are in the files now."""
        found = stamps(self._settings)
        if found != self._stamps:
            self._stamps = found
            try:
                self._context = self._load()
            except (SettingError, OSError, ValueError) as error:
                logger.error("%s keeps its certificates: %s", self._owner, error)
        return self._context

    def _load(self) -> ssl.SSLContext:
        keys, trusted = load_key_store(self._settings), load_trusted(self._settings)
        return _client_context(self._settings, keys, trusted)


def _handshake_error(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Why a handshake of these two fails, empty if it succeeds; host names are not checked."""
    checks_host, client.check_hostname = client.check_hostname, False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        of_client = client.wrap_bio(to_client, to_server)
        of_server = server.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(_HANDSHAKE_TURNS):
            for side in (of_client, of_server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        return ""
    except ssl.SSLError as error:
        return error.reason or str(error)
    finally:
        client.check_hostname = checks_host


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def _server_context(
    settings: SettingValues, keys: KeyStore, trusted: bytes | None, client_auth: str
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _prepare(context, settings, keys, trusted)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 1  # as Apache Kafka: a client that resumes a session gets another one
    if client_auth != "none" and trusted is None:
        raise SettingError(
            f"ssl.client.auth={client_auth}: set ssl.truststore.location to a PEM file with the "
            "authorities whose client certificates are trusted"
        )
    context.verify_mode = _CLIENT_AUTH[client_auth]
    return context


def _client_context(
    settings: SettingValues, keys: KeyStore | None, trusted: bytes | None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(settings.text("ssl.endpoint.identification.algorithm"))
    _prepare(context, settings, keys, trusted)
    if trusted is None:
        context.load_default_certs()
    return context


def _prepare(
    context: ssl.SSLContext,
    settings: SettingValues,
    keys: KeyStore | None,
    trusted: bytes | None,
) -> None:
    """Set versions, cipher suites, the key, and trusted authorities."""
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    suites, has_1_3 = _suites(settings)
    versions = set(settings.words("ssl.enabled.protocols"))
    if settings.text("ssl.protocol") == "TLSv1.2" or not has_1_3:
        versions.discard("TLSv1.3")
    if not suites:
        versions.discard("TLSv1.2")
    if not versions:
        raise SettingError(
            "ssl.enabled.protocols, ssl.protocol and ssl.cipher.suites leave no version of TLS"
        )
    low, high = min(versions), max(versions)
    context.minimum_version = _VERSIONS[low]
    context.maximum_version = _VERSIONS[high]
    if suites:
        context.set_ciphers(suites)
    if keys is not None:
        _load_chain(context, keys)
    if trusted is not None:
        try:
            context.load_verify_locations(cadata=trusted)
        except ssl.SSLError as error:
            raise SettingError(f"the trusted certificates cannot be used: {error}") from error


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def _suites(settings: SettingValues) -> tuple[str, bool]:
    """The suites of TLS 1.2 in OpenSSL's names, and whether TLS 1.3 is enabled."""
    wanted = settings.words("ssl.cipher.suites")
    if not wanted:
        return _SUITES, True
    unknown = set(wanted) - _TLS_1_3_SUITES - _TLS_1_2_SUITES.keys()
    if unknown:
        raise SettingError(
            f"ssl.cipher.suites: {', '.join(sorted(unknown))} is not allowed; choose from "
            + ", ".join(sorted({*_TLS_1_3_SUITES, *_TLS_1_2_SUITES}))
        )
    newest = _TLS_1_3_SUITES & set(wanted)
    if newest and newest != _TLS_1_3_SUITES:
        raise SettingError(
            "ssl.cipher.suites: Headrace cannot choose among the suites of TLS 1.3; name "
            f"{', '.join(sorted(_TLS_1_3_SUITES))}, or leave them out"
        )
    older = [_TLS_1_2_SUITES[name] for name in wanted if name in _TLS_1_2_SUITES]
    return ":".join(older), bool(newest)


def _load_chain(context: ssl.SSLContext, keys: KeyStore) -> None:
    try:
        with _file_of(keys) as path:
            # Without a callback OpenSSL would prompt for a password on the terminal.
            context.load_cert_chain(path, password=lambda: keys.password)
    except ssl.SSLError as error:
        why = "the private key does not belong to the certificate"
        if error.reason not in _MISMATCHES:
            why = f"the private key cannot be read (is ssl.key.password right?): {error.reason}"
        raise SettingError(f"{keys.origin}: {why}") from error


@contextmanager
def _file_of(keys: KeyStore) -> Iterator[str]:
    """A file with the key and the certificates, as Python's ssl module reads nothing else.

    On Linux it exists in memory only; elsewhere only the own user can read it for that moment.
    """
    if LINUX:
        file = os.memfd_create("key-store")
        try:
            os.write(file, keys.pem.encode())
            yield f"/proc/self/fd/{file}"
        finally:
            os.close(file)
        return
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(keys.pem.encode())
        temporary.flush()
        yield temporary.name

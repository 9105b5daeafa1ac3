"""Who sends a request to a service, and in which role.

The settings choose the methods: BASIC (users of a file), BEARER (tokens of an OAuth provider) and
CERTIFICATE (the client's TLS certificate). `application.py` compares the role with that of the
route. With the method CLUSTER the console has a login of its own, and this one is not used.
"""

import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from headrace.clock import SystemClock
from headrace.errors import SettingError
from headrace.security.audit import Audit
from headrace.security.jwt import LONGEST_USERNAME, InvalidToken
from headrace.security.logins import LoginRefused, TooManyLogins, parse_basic
from headrace.security.principals import ANONYMOUS, PrincipalRules
from headrace.security.roles import LOOPBACK, Role
from headrace.service.errors import HttpError
from headrace.service.request import Request
from headrace.service.settings import ServiceSettings

if TYPE_CHECKING:
    from headrace.security.http_users import HttpUsers
    from headrace.security.oauthbearer import BearerTokens

logger = logging.getLogger(__name__)

METHOD = "authentication.method"
USERS_FILE = "headrace.authentication.users.file"
WITHOUT_TLS = "headrace.authentication.without.tls"
BASIC, BEARER, CERTIFICATE, NONE = "BASIC", "BEARER", "CERTIFICATE", "NONE"
CLUSTER = "CLUSTER"
"""The console's own login (`console/cluster_login.py`)."""
DEFAULT_ROLE = "headrace.authentication.default.role"
EVERY_ROLE = "*"
TOKENS_REMEMBERED = 1000
TOKEN_S = 60.0
"""How long a token that was valid is not checked again: a key that the issuer withdraws counts no
longer than this."""


_WITH_A_METHOD = (
    USERS_FILE,
    "oauthbearer.jwks.endpoint.url",
    "authentication.roles",
    DEFAULT_ROLE,
    "headrace.authentication.anonymous.role",
)
"""Settings that protect nothing without a method."""


class HttpIdentity(NamedTuple):
    """The client of a request."""

    principal: str
    """Such as `User:alice`."""
    role: Role


class _Peer(NamedTuple):
    """A client in the words of the audit log."""

    address: str
    listener: str
    principal: str = ANONYMOUS


class Authentication:
    """The logins of one service. Called with a request, it returns the client's identity."""

    def __init__(self, service: str, settings: ServiceSettings) -> None:
        """SettingError if the settings do not fit together."""
        methods = frozenset(settings.words(METHOD)) - {NONE}
        _check(methods, settings)
        self._service = service
        self._methods = methods
        self._realm = settings.text("authentication.realm") or service
        self._default_role = _role(settings.text(DEFAULT_ROLE))
        self._anonymous_role = _role(settings.text("headrace.authentication.anonymous.role"))
        roles = settings.words("authentication.roles")
        self._roles = tuple(Role) if EVERY_ROLE in roles else tuple(map(_named_role, roles))
        self._rules = PrincipalRules(settings.text("ssl.principal.mapping.rules"))
        path = settings.text(USERS_FILE)
        self._audit = Audit(service=service, path=settings.text("headrace.audit.file"))
        self._users = _read_users(path) if path else None
        self._tokens: BearerTokens | None = None
        if BEARER in methods:
            self._tokens = _make_tokens(settings)
        self._valid_tokens: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def __call__(self, request: Request) -> HttpIdentity:
        """The client of a request; HttpError 401 if it is not known, 403 if it has no role."""
        header = request.headers.get(b"authorization")
        if header is None:
            name = self._certificate_name(request)
            if name is None and self._anonymous_role is not None:
                return HttpIdentity(ANONYMOUS, self._anonymous_role)
        else:
            name = await self._login(header, request.client)
        if name is None:
            raise self._unauthorized()
        return HttpIdentity(f"User:{name}", self._role(name))

    def renew(self) -> None:
        """Follow changes of the file with users."""
        if self._users is not None:
            self._users.renew()

    def close(self) -> None:
        """Stop the threads."""
        if self._users is not None:
            self._users.close()
        if self._tokens is not None:
            self._tokens.close()
        self._audit.close()

    def _certificate_name(self, request: Request) -> str | None:
        if CERTIFICATE not in self._methods or request.certificate is None:
            return None
        principal = self._rules.principal(request.certificate)
        return None if principal is None else principal.removeprefix("User:")

    async def _login(self, header: bytes, client: str) -> str:
        """The user that an Authorization header names and proves."""
        scheme, _, rest = header.partition(b" ")
        method, name = scheme.decode("latin-1").upper(), ""
        try:
            if method == BASIC and BASIC in self._methods and self._users is not None:
                name, password = parse_basic(rest)
                await self._users.check(name, password)
                return name
            if method == BEARER and self._tokens is not None:
                return await self._token_user(self._tokens, rest.strip().decode("ascii"))
            reason = "the method is not switched on"
        except TooManyLogins as error:
            raise HttpError(503, f"{error}; try again", headers={"retry-after": "1"}) from None
        except (LoginRefused, InvalidToken) as error:
            reason = str(error)
        except ValueError:
            reason = "the header cannot be read"
        peer = _Peer(client, self._service)
        self._audit.login_failed(peer, method[:20], name[:LONGEST_USERNAME], reason)
        raise self._unauthorized()

    async def _token_user(self, tokens: "BearerTokens", text: str) -> str:
        now = time.time()
        known = self._valid_tokens.get(text)
        if known is not None and now < known[1]:
            return known[0]
        user = await tokens.check(text)
        self._valid_tokens[text] = (user.username, min(user.expiry_ms / 1000, now + TOKEN_S))
        if len(self._valid_tokens) > TOKENS_REMEMBERED:
            self._valid_tokens.popitem(last=False)
        return user.username

    def _role(self, name: str) -> Role:
        role = None if self._users is None else self._users.role(name)
        if role is None:
            role = self._default_role
        if role is None or role not in self._roles:
            raise HttpError(403, f"HTTP 403 Forbidden: User:{name} has no role here")
        return role

    def _unauthorized(self) -> HttpError:
        schemes = [one.title() for one in (BASIC, BEARER) if one in self._methods]
        challenge = ", ".join(f'{one} realm="{self._realm}"' for one in schemes)
        headers = {"www-authenticate": challenge} if challenge else {}
        return HttpError(401, "HTTP 401 Unauthorized", headers=headers)


def make_authentication(service: str, settings: ServiceSettings) -> Authentication | None:
    """The logins of a service; None if its settings ask for none, or for one of its own."""
    if CLUSTER in settings.words(METHOD):
        _check_cluster_login(settings)
        return None
    if set(settings.words(METHOD)) <= {NONE}:
        for name in _WITH_A_METHOD:
            if settings.is_changed(name):
                raise SettingError(
                    f"{name} has no effect with {METHOD}=NONE, with which everybody may do "
                    f"everything; set {METHOD}"
                )
        return None
    return Authentication(service, settings)


def _check_cluster_login(settings: ServiceSettings) -> None:
    """SettingError if the settings do not fit to users who log in to the cluster."""
    if settings.words(METHOD) != (CLUSTER,):
        raise SettingError(f"{METHOD} has CLUSTER, which cannot be combined with other methods")
    if not settings.is_changed(DEFAULT_ROLE):
        raise SettingError(
            f"{METHOD}=CLUSTER: set {DEFAULT_ROLE} to the highest role of all users. Below it the "
            "cluster's ACLs decide, but registry and Connect know only the console"
        )
    for name in _WITH_A_METHOD:
        if name != DEFAULT_ROLE and settings.is_changed(name):
            raise SettingError(f"{name} has no effect with {METHOD}=CLUSTER")
    _check(frozenset({CLUSTER}), settings)


def _read_users(path: str) -> "HttpUsers":
    # Imported here: a service without such a file starts faster without.
    from headrace.security.http_users import HttpUsers

    return HttpUsers(USERS_FILE, path)


def _make_tokens(settings: ServiceSettings) -> "BearerTokens":
    try:
        from headrace.security.oauthbearer import make_http_tokens
    except ImportError as error:
        raise SettingError(
            f"{METHOD} has BEARER, which needs the package cryptography: "
            "pip install 'headrace[security]'"
        ) from error
    return make_http_tokens(f"{METHOD} has BEARER", settings, SystemClock())


def _check(methods: frozenset[str], settings: ServiceSettings) -> None:
    """SettingError if a method lacks what it needs."""
    if BASIC in methods and not settings.text(USERS_FILE):
        raise SettingError(
            f"{METHOD} has BASIC: set {USERS_FILE} to a file with users, which "
            "`headrace users add NAME --file FILE` makes"
        )
    client_auth = settings.text("ssl.client.authentication")
    if CERTIFICATE in methods and (not settings.tls or client_auth == NONE):
        raise SettingError(
            f"{METHOD} has CERTIFICATE: use https:// in listeners, and set "
            "ssl.client.authentication=REQUIRED, or REQUESTED beside other methods"
        )
    host = settings.listen[0]
    if settings.tls or host in LOOPBACK:
        return
    if not settings.boolean(WITHOUT_TLS):
        raise SettingError(
            f"{METHOD}={','.join(sorted(methods))}, and listeners={settings.text('listeners')} has "
            "no TLS: everyone on the way could read passwords and tokens. Use https://, or set "
            f"{WITHOUT_TLS}=true if a proxy before this service has TLS"
        )
    logger.warning("passwords and tokens are taken without encryption (%s)", WITHOUT_TLS)


def _role(name: str) -> Role | None:
    return None if name in ("", "none") else _named_role(name)


def _named_role(name: str) -> Role:
    return Role[name.upper()]

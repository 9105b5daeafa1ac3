"""Logins with the name and password of a user of the cluster (`authentication.method=CLUSTER`).

The console proves a password by logging in to the cluster with SASL. Each user gets a console with
connections of its own, so that the cluster's ACLs decide what the user sees and changes. Passwords
are only in memory, in the configuration of these connections.
"""

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.client.config import GSSAPI, MECHANISMS, OAUTHBEARER, ClientConfig
from headrace.client.errors import ClientError
from headrace.console.options import ConsoleOptions
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.security.audit import Audit
from headrace.security.logins import LoginRefused, LoginWorker, TooManyLogins, parse_basic
from headrace.security.principals import ANONYMOUS
from headrace.security.roles import Role
from headrace.service.authentication import HttpIdentity
from headrace.service.errors import HttpError
from headrace.service.request import Request

if TYPE_CHECKING:
    from headrace.console.console import Console

BY_PASSWORD = tuple(name for name in MECHANISMS if name not in (OAUTHBEARER, GSSAPI))
CHECK_S = 60.0
"""How long a password that the cluster accepted is not checked again."""
IDLE_S = 900.0
"""How long the console of a user stays open after the last request."""
MOST_USERS = 100
_PROPERTIES = ("sasl.username", "sasl.password", "sasl.jaas.config")


@dataclass(slots=True)
class UserConsole:
    """The console of one user."""

    console: "Console"
    proof: bytes = field(repr=False)
    """An HMAC of the password."""
    checked_s: float
    used_s: float


@dataclass(frozen=True, slots=True)
class _Peer:
    """A client in the words of the audit log."""

    address: str
    listener: str = "console"
    principal: str = ANONYMOUS


class ClusterLogin:
    """The users who are logged in, and their consoles."""

    def __init__(self, options: ConsoleOptions, role: Role, audit: Audit) -> None:
        """Raises SettingError if the console's client does not log in with a password."""
        self._options = options
        self._of_user("name", "password").check_client()
        security = self._of_user("name", "password").client_config.security
        if not security.login or security.mechanism not in BY_PASSWORD:
            raise SettingError(
                "authentication.method=CLUSTER: the file of --client-config must have "
                "security.protocol=SASL_SSL or SASL_PLAINTEXT, and as sasl.mechanism one of "
                f"{', '.join(BY_PASSWORD)}"
            )
        self._role = role
        self._audit = audit
        self._key = secrets.token_bytes(32)
        self._worker = LoginWorker("logins", "cluster-logins")
        self._users: OrderedDict[str, UserConsole] = OrderedDict()
        """Least recently used first."""

    async def __call__(self, request: Request) -> HttpIdentity:
        """The user of a request; HttpError 401 if the cluster does not accept the password."""
        scheme, _, rest = request.headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"basic":
            raise _unauthorized()
        name = ""
        try:
            name, password = parse_basic(rest)
            await self._log_in(name, password)
        except TooManyLogins as error:
            raise HttpError(503, f"{error}; try again", headers={"retry-after": "1"}) from None
        except (LoginRefused, ValueError) as error:
            reason = str(error) if isinstance(error, LoginRefused) else "the header cannot be read"
            self._audit.login_failed(_Peer(request.client), "CLUSTER", name[:200], reason)
            raise _unauthorized() from None
        return HttpIdentity(f"User:{name}", self._role)

    def console(self, principal: str) -> "Console":
        """The console of a user whose login was accepted."""
        return self._users[principal.removeprefix("User:")].console

    async def stop(self) -> None:
        """Closes the consoles of all users."""
        self._worker.close()
        await asyncio.gather(*(each.console.stop() for each in self._users.values()))

    async def _log_in(self, name: str, password: str) -> None:
        now = time.monotonic()
        proof = hmac.digest(self._key, password.encode(), "sha256")
        known = self._users.get(name)
        if known is None or known.proof != proof or now - known.checked_s > CHECK_S:
            options = self._of_user(name, password)
            await self._worker.run(partial(_check, options.client_config))
            # Another request of the user may have opened the console meanwhile.
            known = self._users.get(name)
            if known is None or known.proof != proof:
                await self._open(name, options, proof, now)
                known = self._users[name]
            known.checked_s = now
        known.used_s = now
        self._users.move_to_end(name)
        await self._close_idle(now)

    async def _open(self, name: str, options: ConsoleOptions, proof: bytes, now: float) -> None:
        from headrace.console.console import Console

        former = self._users.pop(name, None)
        console = Console(options)
        self._users[name] = UserConsole(console, proof, now, now)
        console.start()
        if former is not None:
            await former.console.stop()

    async def _close_idle(self, now: float) -> None:
        """Closes consoles that nobody uses; if there are very many, the least recently used."""
        for name, user in list(self._users.items()):
            is_idle = now - user.used_s > IDLE_S and not user.console.is_busy
            if is_idle or (len(self._users) > MOST_USERS and user.used_s < now):
                del self._users[name]
                await user.console.stop()

    def _of_user(self, name: str, password: str) -> ConsoleOptions:
        others = {key: text for key, text in self._options.properties.items()
                  if key not in _PROPERTIES}  # fmt: skip
        properties = {**others, "sasl.username": name, "sasl.password": password}
        return replace(self._options, properties=properties, exports_metrics=False)


def _check(config: ClientConfig) -> None:
    """LoginRefused if the cluster refuses the user; HttpError if it cannot be asked."""
    from headrace.client.cluster import Cluster
    from headrace.console.cluster_threads import http_error

    try:
        with Cluster(config) as cluster:
            cluster.brokers()
    except KafkaError as error:
        if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise LoginRefused("the cluster refused the login") from None
        raise http_error(error) from error
    except ClientError as error:
        raise http_error(error) from error


def _unauthorized() -> HttpError:
    headers = {"www-authenticate": 'Basic realm="the Kafka cluster"'}
    return HttpError(401, "HTTP 401 Unauthorized", headers=headers)

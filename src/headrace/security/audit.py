"""The audit log: logins, denied operations and changes of security, one event per line.

Events go to the logger `headrace.audit`: to the file of `headrace.audit.file` if it is set,
otherwise to the broker's log, without successful logins. The number of events is limited by cause,
by client and in total; later lines have the numbers of omitted ones. Changes are always written.
Events contain names and rules, never passwords, keys or tokens.
"""

import io
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from headrace.clock import Clock, SystemClock
from headrace.errors import SettingError
from headrace.logs import timestamp
from headrace.security.acls import AclOperation, ResourceType
from headrace.settings.security_table import MECHANISMS

logger = logging.getLogger("headrace.audit")

WINDOW_S = 10.0
IN_WINDOW = 5
"""The limit of events of one principal and cause in a window."""
OF_CLIENT = 100
"""The limit of events of one principal, or of one address without a login, in a window. A client
chooses the names that it asks for, and so the number of its causes."""
OF_KIND = 1000
"""The limit of all events of one kind in a window. Failed logins do not displace denials."""
CAUSES = 10_000
"""The limit of counted causes, and of counted clients."""


class Client(Protocol):
    """The client of an event."""

    @property
    def address(self) -> str:
        """The client's address and port."""

    @property
    def listener(self) -> str:
        """The name of the listener."""

    @property
    def principal(self) -> str:
        """The principal, such as `User:alice`."""


class Audit:
    """Writes the events of one broker or HTTP service."""

    def __init__(
        self,
        clock: Clock | None = None,
        node_id: int = 0,
        *,
        path: str = "",
        log_allowed: bool = False,
        service: str = "",
    ) -> None:
        """SettingError if the file cannot be written. `service` names an HTTP service."""
        self.log_allowed = log_allowed
        """Whether allowed operations are logged too."""
        self._clock = clock or SystemClock()
        self._origin: dict[str, object] = {"service": service} if service else {"broker": node_id}
        self._handler = _open(path) if path else None
        self._rates: dict[tuple[str, ...], _Rate] = {}
        self._client_rates: dict[tuple[str, ...], _Rate] = {}
        self._kind_rates: dict[tuple[str, ...], _Rate] = {}
        self._forgotten = 0
        self.logins: Counter[tuple[str, str, str]] = Counter()
        """Logins by listener, mechanism and result."""

    def login(self, client: Client, mechanism: str) -> None:
        """Record a successful login."""
        self.logins[client.listener, mechanism, "success"] += 1
        event = self._event("login", client.principal, client.address, client.listener)
        cause = ("login", client.principal, _host(client.address), client.listener)
        event["mechanism"] = mechanism
        self._write_some(client.principal, cause, event, logging.DEBUG)

    def login_failed(self, client: Client, mechanism: str, user: str, reason: str) -> None:
        """Record a failed login; `user` is the name that the client sent, if any."""
        known = mechanism if mechanism in MECHANISMS else ""
        self.logins[client.listener, known, "failure"] += 1
        event = self._event("login_failed", None, client.address, client.listener)
        # The client chooses the name, so the limit must not depend on it.
        host = _host(client.address)
        cause = ("login_failed", host, client.listener)
        event |= {"user": user or None, "mechanism": mechanism or None, "reason": reason}
        self._write_some(host, cause, event)

    def certificate_refused(self, host: str, port: int, listener: str, reason: str) -> None:
        """Record a client whose TLS certificate is missing, invalid or of no user."""
        event = self._event("tls_failed", None, f"{host}:{port}", listener)
        event["reason"] = reason
        self._write_some(host, ("tls_failed", host, listener), event)

    def decided(
        self,
        principal: str,
        host: str,
        listener: str,
        operation: AclOperation,
        kind: ResourceType,
        name: str | None,
        allowed: bool,
        rule: str,
    ) -> None:
        """Record an allowed or denied operation; without a name it is on any resource."""
        what = "allowed" if allowed else "denied"
        cause = (what, principal, host, listener, operation.name, kind.name, name or "")
        event = self._event(what, principal, host, listener) | {
            "operation": operation.name,
            "resource": kind.name,
            "name": name,
            "rule": rule,
        }
        self._write_some(principal, cause, event)

    def changed(self, client: Client, what: str, fields: Mapping[str, object]) -> None:
        """Record a change of users, ACLs, quotas or tokens; `what` is e.g. `acl_created`."""
        event = self._event(what, client.principal, client.address, client.listener)
        self._write({**event, **fields}, logging.INFO)

    def _event(
        self, what: str, principal: str | None, address: str, listener: str
    ) -> dict[str, object]:
        return {
            "event": what,
            **self._origin,
            "principal": principal,
            "client": address,
            "listener": listener,
        }

    def _write_some(
        self,
        client: str,
        cause: tuple[str, ...],
        event: dict[str, object],
        level: int = logging.INFO,
    ) -> None:
        """Write the event unless the limit of its cause, its client or its kind is reached."""
        if not logger.isEnabledFor(level):
            return
        now, kind = self._clock.monotonic(), cause[0]
        limits = (
            (self._rates, cause, IN_WINDOW, "left_out"),
            (self._client_rates, (kind, client), OF_CLIENT, "left_out_of_client"),
            (self._kind_rates, (kind,), OF_KIND, "left_out_of_others"),
        )
        for rates, key, limit, _ in limits:
            rate = rates.get(key)
            if rate is not None and rate.is_full(now, limit):
                rate.left_out += 1
                return
        # Only written events are counted by cause, so that a client cannot fill the memory.
        if len(self._rates) >= CAUSES or len(self._client_rates) >= CAUSES:
            self._forget_rates()
        for rates, key, _, field in limits:
            rate = rates.setdefault(key, _Rate(now))
            rate.written += 1
            if rate.left_out:
                event[field] = rate.left_out
                rate.left_out = 0
        self._write(event, level)

    def _forget_rates(self) -> None:
        for rates in (self._rates, self._client_rates):
            self._forgotten += sum(one.left_out for one in rates.values())
            rates.clear()

    def _write(self, event: dict[str, object], level: int) -> None:
        if self._forgotten:
            known = event.get("left_out_of_others", 0)
            assert isinstance(known, int)
            event["left_out_of_others"] = known + self._forgotten
            self._forgotten = 0
        logger.log(level, "%s", _Json(event), extra={"fields": event})

    def close(self) -> None:
        """Write the number of omitted events of each cause."""
        self._forget_rates()
        self._forgotten += sum(one.left_out for one in self._kind_rates.values())
        self._kind_rates.clear()
        if self._forgotten:
            self._write({"event": "stopped", **self._origin}, logging.INFO)
        if self._handler is not None:
            logger.removeHandler(self._handler)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
            self._handler.close()


class _Rate:
    """The numbers of written and omitted events that share a limit."""

    __slots__ = ("_since", "left_out", "written")

    def __init__(self, now: float) -> None:
        self._since = now
        self.written = 0
        """In the present window."""
        self.left_out = 0

    def is_full(self, now: float, limit: int) -> bool:
        """Whether no other event may be written in the present window."""
        if now >= self._since + WINDOW_S:
            self._since = now
            self.written = 0
        return self.written >= limit


class _Json:
    """An event as JSON, encoded only if a handler writes it."""

    __slots__ = ("_event",)

    def __init__(self, event: dict[str, object]) -> None:
        self._event = event

    def __str__(self) -> str:
        return json.dumps(self._event)


class _Lines(logging.Formatter):
    """An event as a line of the file."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        return json.dumps({"time": timestamp(record), **fields})


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _open(path: str) -> logging.Handler | None:
    """Write events to a file only; a new file is created after this one was renamed.

    None if another log of this process writes to it: logins and requests of a service have one
    each, and every event would be written twice.
    """
    place = os.path.abspath(path)
    if any(getattr(each, "baseFilename", None) == place for each in logger.handlers):
        return None
    # Imported here, so that a broker without an audit file starts faster.
    from logging.handlers import WatchedFileHandler

    class PrivateFile(WatchedFileHandler):
        """A file that only the broker's user may read, also after a rotation."""

        def _open(self) -> io.TextIOWrapper:
            return open(self.baseFilename, "a", encoding="utf-8", opener=_open_private)

    try:
        handler = PrivateFile(path)
    except OSError as error:
        raise SettingError(
            f"headrace.audit.file={path}: the file cannot be written ({error.strerror}); use a "
            "file in an existing folder to which the broker may write"
        ) from error
    handler.setFormatter(_Lines())
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return handler


def _host(address: str) -> str:
    return address.rsplit(":", 1)[0]

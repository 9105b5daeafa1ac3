"""The audit log: logins, denied operations and changes of security, one event per line.

Events go to the logger `headrace.audit`: to the file of `headrace.audit.file` if it is set,
otherwise to the broker's log, without successful logins. The number of events per principal and
cause is limited; the next line has the number of omitted ones. Changes are always written. Events
contain names and rules, never passwords, keys or tokens.
"""

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
CAUSES = 10_000
"""The limit of counted pairs of principal and cause."""


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
        self._forgotten = 0
        self.logins: Counter[tuple[str, str, str]] = Counter()
        """Logins by listener, mechanism and result."""

    def login(self, client: Client, mechanism: str) -> None:
        """Record a successful login."""
        self.logins[client.listener, mechanism, "success"] += 1
        event = self._event("login", client.principal, client.address, client.listener)
        cause = ("login", client.principal, _host(client.address), client.listener)
        self._write_some(cause, {**event, "mechanism": mechanism}, logging.DEBUG)

    def login_failed(self, client: Client, mechanism: str, user: str, reason: str) -> None:
        """Record a failed login; `user` is the name that the client sent, if any."""
        known = mechanism if mechanism in MECHANISMS else ""
        self.logins[client.listener, known, "failure"] += 1
        event = self._event("login_failed", None, client.address, client.listener)
        # The client chooses the name, so the limit must not depend on it.
        cause = ("login_failed", _host(client.address), client.listener)
        event |= {"user": user or None, "mechanism": mechanism or None, "reason": reason}
        self._write_some(cause, event)

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
        self._write_some(cause, event)

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
        self, cause: tuple[str, ...], event: dict[str, object], level: int = logging.INFO
    ) -> None:
        """Write the event unless the limit of its cause is reached."""
        if not logger.isEnabledFor(level):
            return
        now = self._clock.monotonic()
        rate = self._rates.get(cause)
        if rate is None:
            if len(self._rates) >= CAUSES:
                self._forgotten += sum(one.left_out for one in self._rates.values())
                self._rates.clear()
            rate = self._rates[cause] = _Rate(now)
        if rate.takes(now):
            left_out = rate.left_out
            rate.left_out = 0
            if left_out:
                event["left_out"] = left_out
            self._write(event, level)

    def _write(self, event: dict[str, object], level: int) -> None:
        if self._forgotten:
            event["left_out_of_others"] = self._forgotten
            self._forgotten = 0
        logger.log(level, "%s", _Json(event), extra={"fields": event})

    def close(self) -> None:
        """Write the number of omitted events of each cause."""
        self._forgotten += sum(one.left_out for one in self._rates.values())
        self._rates.clear()
        if self._forgotten:
            self._write({"event": "stopped", **self._origin}, logging.INFO)
        if self._handler is not None:
            logger.removeHandler(self._handler)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
            self._handler.close()


class _Rate:
    """The numbers of written and omitted events of one cause."""

    __slots__ = ("_since", "_written", "left_out")

    def __init__(self, now: float) -> None:
        self._since = now
        self._written = 0
        self.left_out = 0

    def takes(self, now: float) -> bool:
        """Whether another event may be written."""
        if now >= self._since + WINDOW_S:
            self._since = now
            self._written = 0
        if self._written >= IN_WINDOW:
            self.left_out += 1
            return False
        self._written += 1
        return True


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


def _open(path: str) -> logging.Handler:
    """Write events to a file only; a new file is created after this one was renamed."""
    # Imported here, so that a broker without an audit file starts faster.
    from logging.handlers import WatchedFileHandler

    try:
        # Only the broker's user may read the events.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        handler = WatchedFileHandler(path, encoding="utf-8")
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

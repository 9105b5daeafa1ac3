"""A process that looks at a group, so that watching outlives the client library.

librdkafka aborts its whole process where a coordinator comes back after a request to it has timed
out (its issue 4605), and somebody who watches a group while brokers come and go meets just that.
"""

import multiprocessing
import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, TypeAlias

from headrace.cli import client, group_view
from headrace.cli.client import Cluster
from headrace.cli.failures import ExitCode, Failure
from headrace.cli.group_view import GroupView

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_Failed: TypeAlias = tuple[str, ExitCode, str, str]
"""Message, exit code, code and hint of a Failure."""


class Lookout:
    """Looks at one group when asked, from a process that is started again when a look fails."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def look(self) -> GroupView:
        """The group as it is now; Failure if it cannot be seen."""
        client.check_listening(self._cluster)
        pipe = self._pipe or self._start()
        try:
            pipe.send(None)
            found: GroupView | _Failed = pipe.recv()
        except (EOFError, OSError):
            self.close()
            raise Failure(
                f"group {self._group}: the client library ended while it was asked",
                exit_code=ExitCode.UNREACHABLE,
                code="CLIENT_ENDED",
                hint="Brokers that come and go can do that; the next look starts anew.",
            ) from None
        if isinstance(found, GroupView):
            return found
        self.close()  # a client whose question went unanswered may never get over it
        message, exit_code, code, hint = found
        raise Failure(message, exit_code=exit_code, code=code, hint=hint)

    def close(self) -> None:
        """End the process, in the middle of a question too."""
        if self._process is not None and self._pipe is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def _start(self) -> Connection:
        # Forked, because it must not cost a second to look; nothing here has threads.
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_answer, args=(self._cluster, self._group, self._pipe, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        return self._pipe


def _answer(cluster: Cluster, group: str, ours: Connection, pipe: Connection) -> None:
    """Look whenever asked, until nobody is there to ask."""
    ours.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides when it is over
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the library's last words mean nothing to a user
    admin: AdminClient | None = None
    with suppress(EOFError, OSError):
        while True:
            pipe.recv()
            found: GroupView | _Failed
            try:
                if admin is None:
                    admin = client.admin(cluster)
                found = _look(cluster, admin, group)
            except Failure as failure:
                found = (failure.message, failure.exit_code, failure.code, failure.hint)
            except Exception as error:
                found = (f"group {group}: {error!r}", ExitCode.FAILED, "FAILED", "")
            pipe.send(found)


def _look(cluster: Cluster, admin: "AdminClient", name: str) -> GroupView:
    return group_view.look(cluster, admin, group_view.existing(cluster, admin, [name])[0])

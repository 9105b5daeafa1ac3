"""The connection over which Spark's Java sends tasks to a Python worker.

Java writes the function of a task first and the input of the task after it. Nagle's algorithm holds
the second write back until the first one is acknowledged, and a worker that is reused acknowledges
late: Linux delays an acknowledgement by about 40 ms on a connection on which requests and responses
alternate. Spark offers no setting for either side, so that readers and writers acknowledge the
function themselves, as soon as it is unpickled.
"""

import contextlib
import ipaddress
import os
import socket
import stat

from headrace.pipelines.worker_memory import REUSED

OPEN_FILES = "/dev/fd"


class SentToTasks:
    """A reader or a writer that Spark pickles into the function of its tasks."""

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()


def acknowledge_at_once() -> None:
    """Acknowledge what Java has sent to this worker; does nothing in other processes.

    A worker does not know its socket, so that this is done for all connections within this machine.
    On those that are not Java's it has no effect that a program could notice.
    """
    if REUSED not in os.environ or not hasattr(socket, "TCP_QUICKACK"):
        return
    for name in os.listdir(OPEN_FILES):
        # The file that listdir itself has opened is closed again by now, and others may be.
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                _acknowledge(int(name))


def _acknowledge(number: int) -> None:
    connection = socket.socket(fileno=number)
    try:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return
        if connection.type == socket.SOCK_STREAM and _is_local(connection.getpeername()[0]):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    finally:
        # The socket belongs to another object, which closes it.
        connection.detach()


def _is_local(host: str) -> bool:
    address = ipaddress.ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback

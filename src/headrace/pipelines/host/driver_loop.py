"""The messages of a driver process: `python -m MODULE FILE_NUMBER`.

The service sends one JSON message a line over a socket, and gets one response for each. A driver
responds while Spark is still starting. It ends when the service ends.
"""

import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, Protocol

log = logging.getLogger(__name__)

Send = Callable[[Mapping[str, object]], None]
"""Sends a message that is no response; it has no `id`."""


class DriverOfQueries(Protocol):
    """What differs between drivers."""

    slow: ClassVar[frozenset[str]]
    """Messages that may take as long as an epoch; each is answered in a thread of its own."""

    def start_spark(self) -> None:
        """Called in a thread of its own."""

    def answer(self, message: Mapping[str, Any]) -> dict[str, object]:
        """The response to a message, without its `id`."""


def run(make: Callable[[Mapping[str, Any], Send], DriverOfQueries]) -> NoReturn:
    """Respond to messages until the service ends. `make` gets the settings, the first message."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    channel = socket.socket(fileno=int(sys.argv[1]))
    lines = channel.makefile("r", encoding="utf-8")
    sending = threading.Lock()

    def send(body: Mapping[str, object]) -> None:
        octets = json.dumps(body).encode() + b"\n"
        with sending:
            channel.sendall(octets)

    driver = make(json.loads(lines.readline()), send)
    threading.Thread(target=driver.start_spark, daemon=True).start()

    def respond(message: Mapping[str, Any]) -> None:
        try:
            body = {"id": message["id"], **driver.answer(message)}
        except Exception as error:
            log.exception("%s failed", message["do"])
            body = {"id": message["id"], "error": f"{type(error).__name__}: {error}"}
        send(body)

    for line in lines:
        message = json.loads(line)
        if message["do"] in driver.slow:
            threading.Thread(target=respond, args=(message,), daemon=True).start()
        else:
            respond(message)
    # The service has ended. Java ends with this process.
    os._exit(0)

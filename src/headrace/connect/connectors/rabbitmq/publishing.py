"""Publishes messages to RabbitMQ and waits for the confirms of many at once.

The blocking interface of the client library waits for every single confirm, which the server
sends only when a persistent message is on disk.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.connect.connectors.rabbitmq.connecting import RabbitMqConnector


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message; its id is different from those of the others that are published with it."""

    id: str
    routing_key: str
    body: bytes
    properties: Any


class ConfirmedPublisher:
    """A connection that publishes into one exchange."""

    def __init__(self, connector: RabbitMqConnector, exchange: str, timeout_s: float) -> None:
        """Connects; PermanentError or ConnectionError if that fails."""
        from pika import SelectConnection

        self._connector = connector
        self._exchange = exchange
        self._timeout_s = timeout_s
        self._problem: BaseException | None = None
        self._channel: Any = None
        self._published = 0
        self._unconfirmed: set[int] = set()
        self._returned: dict[str, str] = {}
        parameters = connector.parameters()
        with connector.translated():
            self._connection = SelectConnection(
                parameters,
                on_open_callback=lambda made: made.channel(on_open_callback=self._opened),
                on_open_error_callback=self._ended,
                on_close_callback=self._ended,
            )
            self._run(connector.rabbitmq_connection_timeout_ms / 1000)

    def publish(self, messages: Sequence[OutgoingMessage]) -> dict[str, str]:
        """Returns when the server has confirmed all; the messages that it cannot route, by id."""
        self._returned = {}
        with self._connector.translated():
            for each in messages:
                self._channel.basic_publish(
                    self._exchange, each.routing_key, each.body, each.properties, mandatory=True
                )
                self._published += 1
                self._unconfirmed.add(self._published)
            if messages:
                self._run(self._timeout_s)
        return self._returned

    def close(self) -> None:
        from pika.exceptions import AMQPError

        with contextlib.suppress(AMQPError, ConnectionError):
            if self._connection.is_open:
                self._connection.close()
                self._run(self._timeout_s)

    def _run(self, timeout_s: float) -> None:
        """Until a callback stops the loop; raises what has gone wrong meanwhile."""
        loop = self._connection.ioloop
        if self._problem is None:
            timer = loop.call_later(timeout_s, lambda: self._ended(None, TimeoutError()))
            loop.start()
            loop.remove_timeout(timer)
        if isinstance(self._problem, TimeoutError):
            raise ConnectionError(
                f"the RabbitMQ server {self._connector.address} did not answer within "
                f"{timeout_s:g} s"
            )
        if self._problem is not None:
            raise self._problem

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._ended)
        channel.add_on_return_callback(self._refused)
        ready: Callable[[Any], None] = lambda _: self._connection.ioloop.stop()  # noqa: E731
        channel.confirm_delivery(self._confirmed, ready)

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        tag = method.delivery_tag
        confirmed = (
            {each for each in self._unconfirmed if each <= tag} if method.multiple else {tag}
        )
        self._unconfirmed -= confirmed
        if method.NAME == "Basic.Nack":
            self._ended(None, ConnectionError("the RabbitMQ server does not take the message"))
        elif not self._unconfirmed:
            self._connection.ioloop.stop()

    def _refused(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        """A message that no queue gets; it is confirmed nevertheless."""
        self._returned[properties.message_id] = f"the exchange cannot route it: {method.reply_text}"

    def _ended(self, _source: Any, problem: BaseException) -> None:
        self._problem = self._problem or problem
        self._connection.ioloop.stop()

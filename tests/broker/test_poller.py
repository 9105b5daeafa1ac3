"""The selector: hot sockets are served inside it, and nobody who was woken sleeps on."""

import selectors
import socket
import time
from collections.abc import Iterator

import pytest

from headrace.broker.poller import READ, WRITE, Poller

LONG_S = 20


class Heard:
    """A hot socket that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[int] = []

    def ready(self, events: int) -> None:
        self.events.append(events)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    yield left, right
    left.close()
    right.close()


def test_a_hot_socket_is_served_and_asyncio_does_not_hear_of_it(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    poller, heard = Poller(lambda: False), Heard()
    poller.add_hot(pair[0].fileno(), heard, READ)
    pair[1].send(b"x")
    assert poller.select(LONG_S) == []
    assert set(heard.events) == {READ}
    heard.events.clear()
    poller.change_hot(pair[0].fileno(), WRITE)
    poller.select(LONG_S)
    assert set(heard.events) == {WRITE}
    heard.events.clear()
    poller.remove_hot(pair[0].fileno())
    assert poller.select(0) == []
    assert heard.events == []
    poller.close()


def test_other_descriptors_are_reported_as_asyncio_expects(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    poller = Poller(lambda: False)
    key = poller.register(pair[0], selectors.EVENT_READ, "mine")
    assert poller.select(0) == []
    pair[1].send(b"x")
    assert poller.select(LONG_S) == [(key, selectors.EVENT_READ)]
    changed = poller.modify(pair[0], selectors.EVENT_WRITE, "still mine")
    assert poller.select(LONG_S) == [(changed, selectors.EVENT_WRITE)]
    assert poller.unregister(pair[0]) == changed
    assert dict(poller.get_map()) == {}
    poller.close()


def test_a_busy_hot_socket_does_not_keep_asyncio_waiting(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    poller, heard = Poller(lambda: False), Heard()
    poller.add_hot(pair[0].fileno(), heard, WRITE)
    assert poller.select(LONG_S) == []
    assert 1 < len(heard.events) < 100
    heard.events.clear()
    poller.has_work = True
    assert poller.select(LONG_S) == []
    assert len(heard.events) == 1
    poller.close()


def test_it_does_not_sleep_over_a_change_that_a_task_made() -> None:
    changes = [True]
    poller = Poller(lambda: bool(changes) and changes.pop())
    began = time.monotonic()
    assert poller.select(LONG_S) == []
    assert time.monotonic() - began < LONG_S / 2
    poller.close()

"""The selector: hot sockets are served inside it, and every woken task runs."""

import selectors
import socket
import time
from collections.abc import Iterator

import pytest

from headrace.broker.poller import Poller
from headrace.broker.readiness import READ, WRITE
from headrace.wire.fast import Chunk

LONG_S = 60


class Heard:
    """A hot socket that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[int] = []

    def ready(self, events: int) -> None:
        self.events.append(events)

    def send(self, answer: bytes | list[Chunk]) -> None:
        raise AssertionError("nobody left an answer")


class Answers:
    """A hot socket that reads a byte and answers it, and says in `order` when it does what."""

    def __init__(self, sock: socket.socket, poller: Poller, order: list[str]) -> None:
        self._sock = sock
        self._poller = poller
        self._order = order

    def ready(self, events: int) -> None:
        self._poller.answers.append((self, self._sock.recv(1)))
        self._order.append("ready")

    def send(self, answer: bytes | list[Chunk]) -> None:
        assert isinstance(answer, bytes)
        self._order.append(f"send {answer.decode()}")


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


def test_the_answers_to_what_one_poll_reported_leave_together(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    order: list[str] = []
    poller = Poller(lambda: False)
    for sock in pair:
        poller.add_hot(sock.fileno(), Answers(sock, poller, order), READ)
        sock.send(b"x")
    poller.select(LONG_S)
    assert order == ["ready", "ready", "send x", "send x"]
    assert poller.answers == []
    poller.close()


def test_an_answer_that_a_task_left_is_sent_before_the_next_sleep(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    order: list[str] = []
    poller = Poller(lambda: False)
    poller.answers.append((Answers(pair[0], poller, order), b"y"))
    assert poller.select(0) == []
    assert order == ["send y"]
    poller.close()

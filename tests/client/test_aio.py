"""A task that waits for another broker ends when cancelled, whatever else happens then."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.client.aio import AsyncConnection, Interrupted
from headrace.client.protocol import Response

ANSWER = Response(17, bytearray(), 0, 0)


def scenario(
    run: Callable[[AsyncConnection, "asyncio.Future[Response]"], Coroutine[Any, Any, None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`run` with a connection, and the future that brings its answer."""

    async def all_of_it() -> None:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        async def wait(*_: object) -> Response:
            return await answer

        here, there = socket.socketpair()
        peer = AsyncConnection(here, "test", "there", 60)
        monkeypatch.setattr(peer, "_carry", wait)
        try:
            await run(peer, answer)
        finally:
            peer.close()
            there.close()

    asyncio.run(all_of_it())


def test_an_answer_at_the_last_moment_does_not_undo_the_order_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(peer: AsyncConnection, answer: "asyncio.Future[Response]") -> None:
        asking = asyncio.ensure_future(peer.ask_encoded(1, 17, b""))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        answer.set_result(ANSWER)
        await asyncio.sleep(0)  # it has come, and who waits for it has not heard yet
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    scenario(run, monkeypatch)


def test_an_interruption_at_the_same_moment_does_not_undo_the_order_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(peer: AsyncConnection, _: "asyncio.Future[Response]") -> None:
        asking = asyncio.ensure_future(peer.ask_encoded(1, 17, b""))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        peer.interrupt()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    scenario(run, monkeypatch)


def test_an_interruption_alone_is_heard_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(peer: AsyncConnection, _: "asyncio.Future[Response]") -> None:
        asking = asyncio.ensure_future(peer.ask_encoded(1, 17, b""))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        peer.interrupt()
        with pytest.raises(Interrupted):
            await asking

    scenario(run, monkeypatch)

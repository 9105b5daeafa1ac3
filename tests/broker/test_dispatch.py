"""Dispatch against a hundred thousand spoilt frames, without sockets in between."""

import asyncio
import random
from collections.abc import Coroutine, Iterator
from pathlib import Path

import pytest

from headrace.apis.context import Caller
from headrace.apis.records.waiting_fetch import WaitingFetch
from headrace.broker.connection import CloseConnection
from headrace.broker.server import Server
from headrace.settings import Settings
from tests.support.mutation import mutated, real_frames

FRAMES = 100_000


class Peer:
    """As much of a connection as dispatch looks at."""

    caller = Caller("127.0.0.1:1")
    held = False

    def hold(self) -> None:
        self.held = True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = Settings.parse(
        {"auto.create.topics.enable": "false", "listeners": "PLAINTEXT://127.0.0.1:0"}
    )
    server = Server(settings, (str(tmp_path),), None)
    yield server
    server.close()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_every_spoilt_frame_is_answered_or_closes_its_connection(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    answered, closed = asyncio.run(send_spoilt_frames(server))
    assert "broke this broker's code" not in caplog.text
    assert answered > FRAMES // 20
    assert closed > FRAMES // 20


async def send_spoilt_frames(server: Server) -> tuple[int, int]:
    """How many frames were answered, and how many closed their connection."""
    rng = random.Random(20_260_704)
    originals = real_frames()
    answered = closed = 0
    for _ in range(FRAMES):
        data = bytearray(mutated(rng, rng.choice(originals)))
        try:
            answer = server.handler.handle(Peer(), data, memoryview(data), 4, len(data))  # type: ignore[arg-type]
        except CloseConnection:
            closed += 1
            continue
        if isinstance(answer, Coroutine):
            answer.close()
        elif isinstance(answer, WaitingFetch):
            answer.cancel()
        answered += 1
    return answered, closed

"""Dispatch: versions that are not supported, and a hundred thousand damaged frames."""

import ast
import asyncio
import random
import struct
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path

import pytest

from headrace.apis.context import Caller
from headrace.apis.hot import Answer, CloseConnection, Later
from headrace.apis.records.waiting_fetches import WaitingFetch
from headrace.apis.routes import API_VERSIONS, CLIENT_TELEMETRY, PRODUCE, ROUTES
from headrace.broker import dispatch
from headrace.broker.server import Server
from headrace.errors import ErrorCode
from headrace.settings import Settings
from headrace.wire.fast import PRODUCE_FIRST_READ
from tests.support.mutation import mutated, real_frames
from tests.support.raw import frame

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
    assert "unexpected error" not in caplog.text
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


def test_a_version_that_is_not_in_the_route_table_closes_its_connection(server: Server) -> None:
    for route in ROUTES.values():
        if route is API_VERSIONS:
            continue
        for version in (route.min_version - 1, route.max_version + 1):
            with pytest.raises(CloseConnection, match=f"{route.name} v{version} is not supported"):
                handle(server, frame(route.key, version, bytes(100)))


def test_the_first_client_is_announced_once(server: Server) -> None:
    clients: list[None] = []
    server.parts.dispatch.on_first_client = lambda: clients.append(None)
    # Newer clients begin with a version that they have to lower.
    handle(server, frame(API_VERSIONS.key, API_VERSIONS.max_version + 1, b""))
    for _ in range(3):
        handle(server, frame(API_VERSIONS.key, 0, b""))
        assert clients == [None]


def test_a_start_imports_nothing_of_what_all_cold_requests_share() -> None:
    code = (
        "import sys; from headrace.broker import server, dispatch;"
        "shared = dispatch._SHARED_BY_COLD_REQUESTS;"
        "assert not sys.modules.keys() & set(shared);"
        "dispatch.import_codec(); assert sys.modules.keys() >= set(shared)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_api_that_is_not_in_the_route_table_closes_its_connection(server: Server) -> None:
    with pytest.raises(CloseConnection, match="unknown API key 7"):
        handle(server, frame(7, 0, bytes(100)))


def test_a_produce_of_an_old_message_format_closes_its_connection(server: Server) -> None:
    for version in range(PRODUCE_FIRST_READ):
        with pytest.raises(CloseConnection, match="send v3 or later"):
            handle(server, frame(PRODUCE.key, version, bytes(100)))


@pytest.mark.parametrize("version", [-1, API_VERSIONS.max_version + 1, 99])
def test_an_api_versions_of_any_version_is_answered_with_our_ranges(
    server: Server, version: int
) -> None:
    answer = handle(server, frame(API_VERSIONS.key, version, b""))
    assert isinstance(answer, bytes)
    code, ranges = struct.unpack_from(">hi", answer, 8)
    assert code == ErrorCode.UNSUPPORTED_VERSION
    assert ranges == len(ROUTES) - len(CLIENT_TELEMETRY)
    assert len(answer) == 8 + 6 + 6 * ranges


def handle(server: Server, data: bytes) -> Answer | Later:
    buf = bytearray(data)
    return server.handler.handle(Peer(), buf, memoryview(buf), 4, len(buf))  # type: ignore[arg-type]


def test_dispatch_has_no_literal_api_keys_or_versions() -> None:
    compared = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(Path(dispatch.__file__).read_text()))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Constant) and isinstance(side.value, int)
    ]
    assert sorted(compared) == ["buf[body] == 0", "size > 0"]

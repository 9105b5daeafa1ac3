"""A driver process as the service sees it, with a small module in place of a driver."""

import asyncio
from pathlib import Path

import pytest
import uvloop

from headrace.pipelines.host.driver_process import DriverGone, DriverProcess

MODULE = """
import json, socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
lines = channel.makefile("r")
lines.readline()
for line in lines:
    channel.sendall(json.dumps({"id": json.loads(line)["id"], "found": 1}).encode() + b"\\n")
"""


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_driver_that_has_ended_is_gone_in_every_event_loop(
    loop: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services run on uvloop, which refuses to write to a closed connection in its own way."""
    (tmp_path / "answering_driver.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def run() -> None:
        process = await DriverProcess.start("answering_driver", {})
        assert await process.ask({"do": "look"}, 60) == {"found": 1}
        await process.end()
        with pytest.raises(DriverGone, match="ended with status -9"):
            await process.ask({"do": "look"}, 60)

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(run())

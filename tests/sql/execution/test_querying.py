"""Results of queries without a server."""

import asyncio
import gc
from typing import Any

from headrace.sql.execution.querying import SelectResult
from tests.sql.stand_in import StandInPush


async def _turns() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_client_that_goes_leaves_no_task_behind() -> None:
    problems: list[dict[str, Any]] = []

    async def client_goes() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: problems.append(context)
        )
        pushed = StandInPush(())
        result = SelectResult("q", "SELECT", (), (), is_push=True, pushed=pushed)
        rows = result.batches()
        reading = asyncio.ensure_future(anext(rows))
        await _turns()
        reading.cancel()
        await asyncio.wait({reading})
        pushed.queue.put_nowait(None)
        await _turns()
        gc.collect()

    asyncio.run(client_goes())
    assert [each["message"] for each in problems] == []

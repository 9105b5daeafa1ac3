"""Long lists do not block the event loop."""

import asyncio

from headrace.service.slices import SLICE, in_slices


def test_other_tasks_run_between_the_slices_of_a_long_list() -> None:
    async def run() -> tuple[list[int], int]:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        found = [each async for some in in_slices(range(5 * SLICE)) for each in some]
        task.cancel()
        return found, turns

    found, turns = asyncio.run(run())
    assert found == list(range(5 * SLICE))
    assert turns >= 4

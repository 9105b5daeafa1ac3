"""Requests that wait for a commit, and their results."""

import asyncio
import gc

from headrace.errors import ErrorCode, KafkaError
from headrace.replication.waiters import CommitWaiters


def test_a_failure_without_a_waiter_is_not_logged_as_an_error() -> None:
    """A client that hangs up leaves a future behind, which must not fill the log."""
    complaints: list[object] = []

    async def leave() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        waiters = CommitWaiters()
        waiters.wait(7, leads=True)
        heard = waiters.wait(7, leads=True)
        waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        gc.collect()
        error = heard.exception()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(leave())
    gc.collect()
    assert complaints == []

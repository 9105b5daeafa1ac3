"""Produce (0) to very many partitions, in parts.

A request with more than `wire.fast.MANY_PRODUCED` partitions comes here. It is handled as several
requests with a part of the partitions each, and the client gets one response.
"""

from collections.abc import Coroutine
from time import perf_counter
from typing import TYPE_CHECKING

from headrace.apis.context import Caller
from headrace.apis.hot import Answer, LongProduce
from headrace.apis.parts import PRODUCED, CombinedResponse, Pace, parts
from headrace.apis.routes import PRODUCE
from headrace.apis.slices import Slices
from headrace.wire import codec
from headrace.wire.framing import frame_large_response, response_body_start

if TYPE_CHECKING:
    from headrace.apis.records.produce import Produce


class LargeProduce:
    """Appends a large request."""

    def __init__(self, produce: "Produce") -> None:
        self._produce = produce

    async def __call__(
        self, slices: Slices, caller: Caller, body: bytearray, version: int, correlation_id: int
    ) -> Answer:
        """The response, when all parts are appended and committed according to acks."""
        request = await slices.finish(codec.read_steps(PRODUCE.key, version, body))
        flexible = version >= PRODUCE.flexible_from
        shape = codec.response_class(PRODUCE.key, version)
        joined = CombinedResponse(PRODUCED.answers)
        answered = False
        pace = Pace(PRODUCED)
        for part in parts(request, PRODUCED, pace):
            await slices.turn()
            began = perf_counter()
            buf = bytearray(codec.encode_request(version, part))
            answer = self._produce(caller, buf, memoryview(buf), 0, len(buf), version, 0)
            took = perf_counter() - began
            if isinstance(answer, Coroutine | LongProduce):
                answer = await answer
            began = perf_counter()
            if isinstance(answer, bytes):
                start = response_body_start(flexible)
                joined.add(codec.decode_response(version, shape, answer, start))
                answered = True
            pace.took(took + perf_counter() - began)
        if not answered:
            return None
        steps = codec.encode_steps(PRODUCE.key, version, joined.response(), caller.throttle_ms)
        return frame_large_response(correlation_id, flexible, [await slices.finish(steps)])

"""Requests that only the owner of a connector can answer: carried out here, or forwarded to it.

A request waits while its connector moves. It is forwarded once: a worker that receives a forwarded
request either owns the connector, or soon will, or says that it does not.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps

from headrace.connect.errors import NOT_OWNER, NotOwner
from headrace.connect.rest.call import ConnectCall
from headrace.connect.sharing.forwarding import (
    FORWARDED,
    ForwardedAnswer,
    ForwardedRequest,
    OwnerUnreachable,
)
from headrace.service.errors import HttpError
from headrace.service.responses import HttpAnswer

Handler = Callable[[ConnectCall], Awaitable[object]]

OWNER_WITHIN_S = 30.0
"""How long a request waits until its connector has an owner that responds."""
FORWARDED_WAIT_S = 5.0
"""How long a forwarded request waits until this worker owns the connector."""
PAUSE_S = 0.25
"""Before the next attempt to reach an owner that refuses connections."""
ANSWER_S = 90.0
"""A validation takes up to 30 s, and the end of a query up to 60 s."""
LOOK_S = 5.0
"""For requests that only look."""


def is_forwarded(call: ConnectCall) -> bool:
    """Whether another worker has sent the request."""
    return FORWARDED.encode() in call.headers


def by_owner(handler: Handler, name_of: Callable[[ConnectCall], str] | None = None) -> Handler:
    """The handler, called by the worker that owns the connector; `name_of` finds its name."""

    @wraps(handler)
    async def find_owner(call: ConnectCall) -> object:
        name = call.name if name_of is None else name_of(call)
        ownership = call.worker.ownership
        patience_s = FORWARDED_WAIT_S if is_forwarded(call) else OWNER_WITHIN_S
        deadline = time.monotonic() + patience_s
        while True:
            if ownership.owns(name):
                try:
                    return await handler(call)
                except NotOwner:
                    if time.monotonic() > deadline:
                        raise
                    continue
            answer = None
            if not is_forwarded(call):
                answer = await _forwarded(call, name, last=time.monotonic() > deadline)
            if answer is not None:
                return await _passed_on(call, name, answer)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise NotOwner
            await ownership.changed(left_s if ownership.owner(name) is None else PAUSE_S)

    return find_owner


async def _forwarded(call: ConnectCall, name: str, *, last: bool) -> ForwardedAnswer | None:
    """The owner's answer; None if there is no owner at present, or not the one that was asked."""
    worker = call.worker
    url = worker.ownership.owner(name)
    if url is None or url == worker.options.address.url:
        return None
    try:
        answer = await worker.forwarder.send(url, _request(call), ANSWER_S)
    except OwnerUnreachable as error:
        if error.sent and call.method != "GET":
            raise HttpError(
                503, f"{error}; it is unknown whether the request was carried out"
            ) from None
        if last:
            raise HttpError(503, str(error)) from None
        return None
    return None if NOT_OWNER in answer.headers else answer


async def _passed_on(call: ConnectCall, name: str, answer: ForwardedAnswer) -> HttpAnswer:
    """The owner's answer as this worker's. What it changed is seen here, too."""
    if call.method != "GET" and answer.status < 300:
        await call.worker.store.refresh_configs()
    headers = {"location": call.location(name)} if "location" in answer.headers else {}
    return HttpAnswer(answer.status, answer.body, headers)


def _request(call: ConnectCall) -> ForwardedRequest:
    return ForwardedRequest(call.method, call.target, call.body, call.headers.get(b"authorization"))


async def status_of_owner(call: ConnectCall) -> object | None:
    """The owner's answer to a request for a state, if it is another worker and responds."""
    worker = call.worker
    url = worker.ownership.owner(call.name)
    if is_forwarded(call) or url is None or url == worker.options.address.url:
        return None
    try:
        answer = await worker.forwarder.send(url, _request(call), LOOK_S)
    except OwnerUnreachable:
        return None
    return None if NOT_OWNER in answer.headers else HttpAnswer(answer.status, answer.body)


async def statuses_of_others(call: ConnectCall) -> Mapping[str, object]:
    """The states of the connectors of other workers, as far as these respond."""
    worker = call.worker
    own = worker.options.address.url
    names = worker.store.configs.connectors
    owners = {worker.ownership.owner(name) for name in names if not worker.ownership.owns(name)}
    request = ForwardedRequest(
        "GET", "/connectors?expand=status", b"", call.headers.get(b"authorization")
    )

    async def ask(url: str) -> Mapping[str, object]:
        try:
            answer = await worker.forwarder.send(url, request, LOOK_S)
        except OwnerUnreachable:
            return {}
        body = answer.body if answer.status == 200 else None
        return body if isinstance(body, dict) else {}

    found = await asyncio.gather(*(ask(url) for url in owners if url is not None and url != own))
    return {name: each["status"] for some in found for name, each in some.items()}  # type: ignore[index]

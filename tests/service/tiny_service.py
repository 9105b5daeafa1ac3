"""A service of a few routes on the chassis, as a program: `python -m tests.service.tiny_service`.

Its options are JSON on the command line; the keys are the parameters of `serve`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial

from headrace.security.roles import Role
from headrace.service.authentication import HttpIdentity
from headrace.service.errors import HttpError, StartFailure
from headrace.service.http_service import Health, HttpService, ServiceMetric
from headrace.service.request import Request
from headrace.service.responses import HttpContent, HttpStream
from headrace.service.routes import HttpRoute
from headrace.service.security import make_security
from headrace.service.server import ProcessOptions, run
from headrace.service.settings import ServiceSettings
from headrace.settings.service_table import REGISTRY_TABLE

BODY_BYTES = 1000
TOKENS = {
    b"Bearer secret": HttpIdentity("User:alice", Role.WRITE),
    b"Bearer reader": HttpIdentity("User:bob", Role.READ),
}


class Notes:
    """The state of the service: notes by name."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.notes: dict[str, object] = {}

    async def start(self) -> None:
        if self.problem == "start":
            raise StartFailure("the notes are locked; remove the lock")

    async def stop(self) -> None:
        print("stopped", flush=True)

    def health(self) -> Health:
        return Health(self.problem, {"notes": len(self.notes)})

    def metrics(self) -> list[ServiceMetric]:
        return [ServiceMetric("notes", "Notes.", len(self.notes))]


class NotesRequest(Request):
    """A request with the state that it is about."""

    __slots__ = ("state",)

    def __init__(
        self,
        state: Notes,
        method: str,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        headers: Mapping[bytes, bytes],
    ) -> None:
        super().__init__(method, path, query, headers)
        self.state = state


async def put_note(request: NotesRequest) -> object:
    if request.flag("slow"):
        print("slow", flush=True)
        await asyncio.sleep(float(request.text("seconds", "3600")))
    request.state.notes[request.path["name"]] = request.json()
    return {"name": request.path["name"], "by": request.principal}


async def get_note(request: NotesRequest) -> object:
    name = request.path["name"]
    if name == "bug":
        raise KeyError(name)
    if name not in request.state.notes:
        raise HttpError(404, f"Note {name} does not exist", code=40401)
    return request.state.notes[name]


async def get_picture(request: NotesRequest) -> object:
    return HttpContent(b"\x89PNG", "image/png", {"x-picture": "1"})


async def watch(request: NotesRequest) -> object:
    return HttpStream(_ticks(request.state))


async def _ticks(state: Notes) -> AsyncGenerator[bytes, None]:
    try:
        while True:
            state.notes["ticks"] = int(str(state.notes.get("ticks", 0))) + 1
            yield b"data: tick\n\n"
            await asyncio.sleep(0.05)
    finally:
        state.notes["closed"] = True


async def page(request: NotesRequest) -> object:
    return HttpContent(f"page of {request.path['path']}".encode(), "text/html")


async def authenticate(request: Request) -> HttpIdentity:
    identity = TOKENS.get(request.headers.get(b"authorization", b""))
    if identity is None:
        raise HttpError(401, "Send a token", headers={"www-authenticate": "Bearer"})
    return identity


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    authenticated: bool = False,
    settings: Mapping[str, str] | None = None,
    problem: str = "",
    graceful_stop_s: float = 60,
    log_format: str = "json",
    pages: bool = False,
) -> int:
    notes = Notes(problem)
    service = HttpService(
        name="tiny",
        summary="two routes",
        routes=(
            HttpRoute("PUT", "/notes/{name}", put_note),
            HttpRoute("GET", "/notes/{name}", get_note),
            HttpRoute("GET", "/picture", get_picture),
            HttpRoute("GET", "/ticks", watch),
        ),
        make_request=partial(NotesRequest, notes),
        start=notes.start,
        stop=notes.stop,
        health=notes.health,
        metrics=notes.metrics,
        authenticate=authenticate if authenticated else None,
        body_bytes=BODY_BYTES,
        page=page if pages else None,
        hosts=frozenset({"127.0.0.1"}) if pages else None,
        response_headers={"x-content-type-options": "nosniff"} if pages else {},
    )
    given = ServiceSettings(REGISTRY_TABLE, settings or {})
    security = make_security("tiny", given)
    options = ProcessOptions((host, port), log_format, "info", graceful_stop_s, security=security)
    return run(service, options)


if __name__ == "__main__":
    sys.exit(serve(**json.loads(sys.argv[1])))

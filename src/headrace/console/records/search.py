"""Starts and ends searches. They run in child processes, so that none delays the event loop."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict, dataclass, field

from headrace.schemas.client import SchemaClient
from headrace.service.errors import HttpError

AT_ONCE = 4
SECONDS = 60
MOST_MATCHES = 200
LINE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class SearchJob:
    """What to look for, and where."""

    topic: str
    ranges: Mapping[int, tuple[int, int]]
    kind: str
    """`text` or `expression`."""
    text: str
    ignore_case: bool
    newest_first: bool
    properties: Mapping[str, str] = field(repr=False)
    registry: SchemaClient | None = None
    masks: tuple[str, ...] = ()
    without_leader: tuple[int, ...] = ()
    """Partitions that cannot be searched."""

    def as_json(self) -> bytes:
        return json.dumps(
            {
                "topic": self.topic,
                "ranges": {str(index): list(each) for index, each in self.ranges.items()},
                "kind": self.kind,
                "text": self.text,
                "ignore_case": self.ignore_case,
                "newest_first": self.newest_first,
                "properties": dict(self.properties),
                "registry": None if self.registry is None else asdict(self.registry),
                "masks": list(self.masks),
                "most_matches": MOST_MATCHES,
                "seconds": SECONDS,
            }
        ).encode()


class Searches:
    """The searches that run at the moment."""

    def __init__(self) -> None:
        self._running = 0

    @property
    def is_running(self) -> bool:
        return self._running > 0

    def check(self) -> None:
        """Raises HttpError 429 if no further search may start."""
        if self._running >= AT_ONCE:
            raise HttpError(429, f"{AT_ONCE} searches run already; stop one of them first")

    async def run(self, job: SearchJob) -> AsyncGenerator[bytes, None]:
        """Server-sent events: `record`, `progress`, and `progress` with `done` as the last.

        If partitions cannot be searched, the first event is `without_leader`.
        """
        self._running += 1
        process = None
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headrace.console.records.search_worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(job.as_json())
            process.stdin.close()
            if job.without_leader:
                partitions = json.dumps(job.without_leader).encode()
                yield b"event: without_leader\ndata: %s\n\n" % partitions
            done = False
            while line := await process.stdout.readline():
                kind = "record" if line.startswith(b'{"record"') else "progress"
                done = done or (kind == "progress" and b'"done"' in line)
                yield b"event: %s\ndata: %s\n\n" % (kind.encode(), line.rstrip())
            if not done:
                yield b'event: failed\ndata: "The process that searches ended with an error."\n\n'
        finally:
            self._running -= 1
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()

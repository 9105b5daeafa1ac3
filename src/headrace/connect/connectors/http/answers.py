"""Responses that the HTTP source has received, as files, until their rows are in the topic.

A response cannot be requested again with the same result, and Spark reads a range in another
process than the one that found it, and again after a failure. So the response is stored before
its range is announced. A file has the number of the response in its name:

    first line: {"start": the offset before it, "end": the offset after it}
    then:       a row of JSON per line
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.connect.plugin import SourceOffset, SourcePartition

NUMBER = "answer"
"""The field of an offset with the number of the response that led to it."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A response: the rows, and the offset after them."""

    end: SourceOffset
    rows: bytes
    """As JSON lines."""


class AnswerFolder:
    """The files of one partition."""

    def __init__(self, folder: Path, partition: SourcePartition) -> None:
        self._folder = folder
        text = json.dumps(dict(partition), sort_keys=True)
        self._name = hashlib.sha256(text.encode()).hexdigest()[:16]

    def next_number(self, start: SourceOffset | None) -> int:
        return int(str((start or {}).get(NUMBER) or 0)) + 1

    def store(
        self, start: SourceOffset | None, end: SourceOffset, rows: Sequence[bytes]
    ) -> SourceOffset:
        """When it returns, the response is on disk. The end of its range."""
        number = self.next_number(start)
        numbered = {**end, NUMBER: number}
        head = {"start": None if start is None else dict(start), "end": numbered}
        path = self._path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(b"\n".join((json.dumps(head).encode(), *rows)))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return numbered

    def stored(self, start: SourceOffset | None) -> StoredAnswer | None:
        """The response that was received for this offset, if it is stored."""
        try:
            head, _, rows = self._path(self.next_number(start)).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        found = json.loads(head)
        if found["start"] != (None if start is None else dict(start)):
            return None
        return StoredAnswer(found["end"], rows)

    def remove(self, upto: SourceOffset) -> None:
        """The rows up to this offset are in the topic."""
        reached = int(str(upto.get(NUMBER) or 0))
        for path in self._folder.glob(f"{self._name}-*"):
            if int(path.stem.rpartition("-")[2]) <= reached:
                path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:012}.jsonl"

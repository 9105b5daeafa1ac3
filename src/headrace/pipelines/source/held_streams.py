"""A file that holds the streams of a program at given offsets, while its results are compared.

`headrace spark run` names the file in the environment; `headrace spark replay` writes it
(`pipelines/running/holds.py`). A stream reads it before each epoch, and acknowledges it: its epochs
do not go beyond the offsets from then on. Without the file a stream reads on.
"""

import contextlib
import json
import os
import time
import uuid
from pathlib import Path

from headrace.pipelines.source.ranges import StreamOffset, bounded
from headrace.types import TopicPartition

HOLD_VARIABLE = "HEADRACE_HOLD"


class StreamHold:
    """The hold of one stream."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._acknowledged = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}")
        self._last: str | None = None

    def end(self, start: StreamOffset, end: StreamOffset) -> StreamOffset:
        """The end of the next epoch: not beyond the offsets of the hold, if there is one."""
        try:
            hold = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return end
        if hold["until"] is not None and time.time() > hold["until"]:
            # Whoever held the program has died.
            return end
        if hold["id"] != self._last:
            self._acknowledge(hold["id"])
        if hold["offsets"] is None:
            return start
        bounds = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in hold["offsets"].items()
            for partition, offset in partitions.items()
        }
        offsets = bounded(start.offsets, end.offsets, bounds)
        return StreamOffset(offsets, end.topic_ids, end.initial)

    def _acknowledge(self, hold: str) -> None:
        temporary = self._acknowledged.with_name(f".{self._acknowledged.name}")
        temporary.write_text(hold)
        os.replace(temporary, self._acknowledged)
        self._last = hold

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._acknowledged.unlink(missing_ok=True)

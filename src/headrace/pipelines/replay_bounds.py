"""A new version of a program beside the old one: what its source and sink do otherwise.

`headrace spark replay run` names the version in the environment. The version writes to topics of
its own, TOPIC.VERSION, reads from a chosen start, and has groups of its own. Its checkpoints are in
a folder of its own, which the program must not choose itself.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPLAY_VARIABLE = "HEADRACE_REPLAY"
TOPICS = "headrace-topics"
"""The folder in the root of the version's checkpoints with a file for each topic of the original
that it writes to in its own form."""


@dataclass(frozen=True, slots=True)
class ProgramVersion:
    """A version of a program."""

    name: str
    start: str
    """`earliest`, `latest`, or milliseconds since 1970."""
    root: str
    """The folder of its checkpoints."""

    def topic(self, original: str) -> str:
        """The topic of this version. It is noted, so that the two can be compared."""
        noted = Path(self.root) / TOPICS
        noted.mkdir(parents=True, exist_ok=True)
        (noted / original).touch()
        return versioned(original, self.name)

    def topics(self) -> list[str]:
        """The topics of the original that this version writes to in its own form."""
        return sorted(each.name for each in (Path(self.root) / TOPICS).glob("*"))

    def to_text(self) -> str:
        return json.dumps({"name": self.name, "start": self.start, "root": self.root})


def versioned(name: str, version: str) -> str:
    """The topic or group of a version."""
    return f"{name}.{version}"


def present_version(environment: Mapping[str, str] = os.environ) -> ProgramVersion | None:
    """The version that this process belongs to; None for a program that is no replay."""
    text = environment.get(REPLAY_VARIABLE)
    return ProgramVersion(**json.loads(text)) if text else None


def refuse_own_checkpoints() -> None:
    """Change PySpark's stream writer in this process: a replay chooses the checkpoints."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    for name in ("option", "options", "start"):
        setattr(DataStreamWriter, name, _checked(getattr(DataStreamWriter, name)))


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    def checked(writer: Any, *words: Any, **named: Any) -> Any:
        given = {str(each).lower() for each in (*words[:1], *named)}
        if "checkpointlocation" in given:
            raise ValueError(
                "the program sets checkpointLocation, and its replay would continue with the "
                "checkpoint of the running version. Leave it out, and give queries names: "
                "`headrace spark` has a folder for each (--checkpoints)"
            )
        return original(writer, *words, **named)

    return checked

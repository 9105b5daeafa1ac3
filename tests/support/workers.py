"""How `make test` divides the suite among pytest-xdist's workers.

A file goes to one worker, in its order. What shares something expensive goes to the same one: the
local Spark session, the network of namespaces, and the fixtures that change between our broker and
Apache Kafka once for a whole folder. Tests that start a Spark of their own share nothing.
"""

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[2]
EACH_ALONE = "tests/docs/"
"""Each page starts a Spark of its own, in a namespace of its own."""
TOGETHER = (
    "tests/client/",
    "tests/connect/connectors/",
    "tests/faults/",
    "tests/pipelines/typed/",
    "tests/registry/",
)
"""Folders with session fixtures that are expensive, or of which one of two kinds runs at a time."""
SESSIONS = ("first spark session", "second spark session")
"""Two workers have a local Spark: all of its tests on one would take longer than all others."""
OF_THE_SECOND = ("tests/examples/", "tests/pipelines/running/")
LONGEST = re.compile(r"mark\.(?:spark|timeout)")
LONG = re.compile(r"mark\.(?:slow|java)|chromium")
"""What files have whose tests take minutes, and those whose tests take seconds."""


class ByWhatIsShared(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole groups, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


@cache
def _source(file: str) -> str:
    return (ROOT / file).read_text()


def group(nodeid: str) -> str:
    """The group that a test belongs to."""
    file = nodeid.partition("::")[0]
    if file.startswith(EACH_ALONE):
        return nodeid
    if "spark: SparkSession" in _source(file):
        return SESSIONS[file.startswith(OF_THE_SECOND)]
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def turn(nodeid: str) -> int:
    """Lower numbers begin earlier. What takes long must, or one worker has it alone at the end."""
    name, file = group(nodeid), nodeid.partition("::")[0]
    if name in SESSIONS:
        return 0
    if name in TOGETHER or LONGEST.search(_source(file)):
        return 1
    return 2 if LONG.search(_source(file)) else 3

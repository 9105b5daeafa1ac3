"""How `make test` divides the suite among pytest-xdist's workers.

A file goes to one worker, in its order. What shares something heavy goes to the same one: there is
one local Spark, one network of namespaces, and a switch between our broker and Apache Kafka once
for a whole folder.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[2]
# Folders whose session fixtures are dear, or come in two kinds of which one is up at a time.
OWN_SPARK = "tests/docs/"
"""Each page starts a Spark of its own, in a namespace of its own."""
TOGETHER = ("tests/client/", "tests/faults/", "tests/pipelines/typed/", "tests/registry/")


class ByWhatIsShared(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole groups, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


@cache
def _marks(file: str) -> Mapping[str, bool]:
    source = (ROOT / file).read_text()
    return {name: f"mark.{name}" in source for name in ("spark", "slow", "java", "timeout")}


def group(nodeid: str) -> str:
    """The group that a test belongs to."""
    file = nodeid.partition("::")[0]
    if file.startswith(OWN_SPARK):
        return file
    if _marks(file)["spark"]:
        return "spark"
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def turn(nodeid: str) -> int:
    """Lower numbers begin earlier. What takes long must, or one worker has it alone at the end."""
    name = group(nodeid)
    if name == "spark":
        return 0
    return 1 if name in TOGETHER or any(_marks(nodeid.partition("::")[0]).values()) else 2

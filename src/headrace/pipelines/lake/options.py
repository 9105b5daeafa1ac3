"""The options of the lake sinks: unknown options are refused."""

import difflib
from collections.abc import Mapping

from headrace.pipelines.lake import partitioning
from headrace.pipelines.replay_bounds import present_version
from headrace.pipelines.sink.options import SPARKS_OWN

PARTITION_BY = "partitionBy"


def check_options(sink: str, given: Mapping[str, str], known: tuple[str, ...]) -> None:
    """ValueError for an unknown option; `name.*` stands for all names with that prefix."""
    if present_version() is not None:
        raise ValueError(
            f"a replay of a program does not write with the {sink} sink: it would add its rows to "
            "the table of the running version. Give the new version a table of its own in the "
            "program, run it with `headrace spark run`, and compare the tables"
        )
    names = {name.lower(): name for name in (*known, PARTITION_BY)}
    families = tuple(name[:-1] for name in names if name.endswith(".*"))
    for name in given:
        small = name.lower()
        if small in names or small in SPARKS_OWN or small.startswith(families):
            continue
        near = difflib.get_close_matches(small, names, 1, 0.75)
        hint = f"did you mean {names[near[0]]}?" if near else f"it has {', '.join(names.values())}"
        raise ValueError(f"the {sink} sink has no option {name}; {hint}")


def partition_columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """The columns of the option `partitionBy`; None if it is not set."""
    return partitioning.parse(options.get(PARTITION_BY))

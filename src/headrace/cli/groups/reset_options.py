"""The options of `groups reset-offsets`: which partitions, and the target."""

import re

from headrace.admin import positions
from headrace.admin.group_reset import ResetScope, Shift, Target
from headrace.cli.failures import bad_usage


def parse_scope(text: str) -> ResetScope:
    """`clicks`, `clicks:0`, `clicks:0,2,4-6`."""
    topic, colon, listed = text.partition(":")
    if not colon and topic:
        return ResetScope(topic, None)
    chosen: set[int] = set()
    for word in listed.split(","):
        bounds = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", word.strip())
        if not topic or bounds is None:
            raise bad_usage(
                f"--topic {text!r} has no valid partitions",
                "Use clicks, clicks:0 or clicks:0,2,4-6.",
            )
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        chosen.update(range(first, min(last, first + 1_000_000) + 1))
    return ResetScope(topic, tuple(sorted(chosen)))


def parse_target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    shift_by: int | None,
) -> Target:
    """The target of the one --to-* or --shift-by option that is given."""
    wanted: list[Target] = []
    if to_earliest:
        wanted.append(positions.Beginning())
    if to_latest:
        wanted.append(positions.End())
    if to_offset is not None:
        wanted.append(positions.At(to_offset))
    if to_time is not None:
        wanted.append(positions.Since(positions.parse_moment(to_time)))
    if shift_by is not None:
        wanted.append(Shift(shift_by))
    if len(wanted) != 1:
        raise bad_usage(
            "no new position given" if not wanted else "more than one new position given",
            "Use exactly one of --to-earliest, --to-latest, --to-offset, --to-time, --shift-by.",
        )
    return wanted[0]

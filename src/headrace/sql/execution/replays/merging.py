"""Which versions can be merged into one topic, and the writes that do it."""

from headrace.pipelines.running.checkpoints import QueryPosition
from headrace.sql.commands.records import StoredReplay
from headrace.sql.errors import StatementRefused
from headrace.sql.hosting import RowCopy
from headrace.sql.sources import Format, SqlSource


def check_mergeable(old: SqlSource, new: SqlSource) -> None:
    """StatementRefused if readers of the old version's topic could not read the new rows."""
    for part, before, after in (
        ("key format", old.key_format, new.key_format),
        ("value format", old.value_format, new.value_format),
        ("delimiter", old.delimiter, new.delimiter),
        ("wrapping of single values", old.wrap_single_value, new.wrap_single_value),
        ("key", _columns(old, "keys"), _columns(new, "keys")),
        ("kind of window", _window(old), _window(new)),
    ):
        if before != after:
            raise StatementRefused(
                f"The two versions cannot be merged: the {part} of {old.name} is {before}, and "
                f"that of {new.name} is {after}. Use mode='alias'"
            )
    has = {each.name.casefold(): each.type for each in new.values}
    lost = [each.name for each in old.values if has.get(each.name.casefold()) != each.type]
    if old.value_format is Format.DELIMITED and _columns(old, "values") != _columns(new, "values"):
        lost = lost or ["the order of columns"]
    if lost:
        raise StatementRefused(
            f"The two versions cannot be merged: readers of {old.name} need {', '.join(lost)}, "
            f"which {new.name} does not have with the same type. Use mode='alias'"
        )


def _columns(source: SqlSource, part: str) -> str:
    return ", ".join(f"{each.name.casefold()} {each.type}" for each in getattr(source, part))


def _window(source: SqlSource) -> tuple[str, int | None] | None:
    return None if source.window is None else (source.window.kind, source.window.size_ms)


def row_copy(
    replay: StoredReplay,
    step: str,
    way: tuple[SqlSource, str, str],
    writer: QueryPosition | None,
) -> RowCopy:
    """A write of a merge: from one topic to another, which the query of `writer` goes on with."""
    source, origin, target = way
    return RowCopy(
        f"replay-{replay.name}-{replay.created}-{replay.switches}-{step}",
        origin,
        replay.ends[origin],
        target,
        replay.ends[target],
        source.is_table,
        "" if writer is None else writer.query,
        0 if writer is None else writer.epoch,
    )

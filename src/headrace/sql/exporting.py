"""The catalog as a script that makes everything again, in order."""

from collections.abc import Mapping

from headrace.sql.catalog import Catalog
from headrace.sql.commands.records import (
    QueryTarget,
    ReplayPhase,
    StatementRecord,
    StoredFunction,
    StoredInsert,
    StoredSource,
    StoredType,
)
from headrace.sql.sources import ColumnRole, Format, SqlColumn, SqlSource
from headrace.sql.type_names import quoted, type_text

HEAD = """\
-- {what}
-- New queries read streams from now on, and tables from the beginning. To build results from all
-- records that the topics still have, begin the script with: SET 'auto.offset.reset'='earliest';
"""


def export_script(catalog: Catalog, what: str) -> str:
    """All statements; `what` is the first line, as a comment."""
    records = catalog.in_order()
    ordered = [
        *(each for each in records if isinstance(each, StoredType)),
        *(each for each in records if isinstance(each, StoredFunction)),
        *(each for each in records if isinstance(each, StoredSource | StoredInsert)),
    ]
    parts = [HEAD.format(what=what)]
    parts += [
        f"-- The statement {each.key} cannot be read: {each.reason}\n"
        for each in catalog.failed.values()
    ]
    replayed = {
        each.name.casefold(): each
        for each in catalog.replays()
        if each.phase in (ReplayPhase.RUNNING, ReplayPhase.MERGING)
    }
    for each in ordered:
        # The statement of a replay makes its stream or table, too.
        parts.append(_exported(replayed.get(each.name.casefold(), each)))
    return "\n".join(parts)


def _exported(record: StatementRecord) -> str:
    before, after = _settings(record.settings)
    notes = ""
    text = record.sql
    if isinstance(record, StoredSource) and record.is_derived and record.query is None:
        notes = f"-- The query of {record.name} was terminated.\n"
        text, before, after = source_statement(record.source), "", ""
    elif isinstance(record, StoredSource | StoredInsert) and record.query is not None:
        spec = record.query.spec
        if record.query.target is QueryTarget.PAUSED:
            notes = f"-- Query {spec.id} was paused.\n"
    return f"{notes}{before}{text};\n{after}"


def _settings(settings: Mapping[str, str]) -> tuple[str, str]:
    """Statements before and after one that was run with properties of its session."""
    before = "".join(f"SET {_text(name)}={_text(value)};\n" for name, value in settings.items())
    after = "".join(f"UNSET {_text(name)};\n" for name in settings)
    return before, after


def source_statement(source: SqlSource) -> str:
    """CREATE STREAM or CREATE TABLE with all columns, without a semicolon."""
    what = "TABLE" if source.is_table else "STREAM"
    kind = f"SOURCE {what}" if source.read_only else what
    columns = ", ".join(_column(each, source.is_table) for each in source.columns)
    properties = ", ".join(f"{name}={value}" for name, value in _properties(source).items())
    return f"CREATE {kind} {quoted(source.name)} ({columns}) WITH ({properties})"


def _column(column: SqlColumn, is_table: bool) -> str:
    suffix = ""
    if column.role is ColumnRole.KEY:
        suffix = " PRIMARY KEY" if is_table else " KEY"
    elif column.role is ColumnRole.HEADER:
        suffix = " HEADERS" if column.header is None else f" HEADER({_text(column.header)})"
    return f"{quoted(column.name)} {type_text(column.type)}{suffix}"


def _properties(source: SqlSource) -> dict[str, str]:
    found = {
        "kafka_topic": _text(source.topic),
        "key_format": _text(source.key_format),
        "value_format": _text(source.value_format),
    }
    if source.timestamp is not None:
        found["timestamp"] = _text(source.timestamp)
    if source.timestamp_format is not None:
        found["timestamp_format"] = _text(source.timestamp_format)
    if source.window is not None:
        found["window_type"] = _text(source.window.kind)
        if source.window.size_ms is not None and source.window.kind != "SESSION":
            found["window_size"] = _text(f"{source.window.size_ms} MILLISECONDS")
    if not source.wrap_single_value:
        found["wrap_single_value"] = "false"
    if source.delimiter != "," and source.value_format is Format.DELIMITED:
        found["value_delimiter"] = _text(source.delimiter)
    for name, number in (
        ("key_schema_id", source.key_schema_id),
        ("value_schema_id", source.value_schema_id),
    ):
        if number is not None:
            found[name] = str(number)
    return found


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

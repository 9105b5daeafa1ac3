"""Results of statements as tables and texts for a terminal."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.cli import output

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Entity = Mapping[str, Any]

SHORTEST_CELL = 6
LONGEST_CELL = 60


def rendered(result: Entity) -> "RenderableType":
    """A result for the terminal; JSON if it is of an unknown kind."""
    from rich.console import Group

    draw = _DRAWN.get(str(result.get("@type")))
    main = _json(result) if draw is None else draw(result)
    warnings = [_text(f"Warning: {each['message']}", "yellow") for each in result["warnings"]]
    return Group(main, *warnings)


def _text(text: str, style: str = "") -> "RenderableType":
    from rich.text import Text

    return Text(text, style)


def _json(found: object) -> "RenderableType":
    return _text(json.dumps(found, indent=2, ensure_ascii=False))


def _named(rows: Iterable[Entity], *columns: tuple[str, str]) -> "Table":
    """A table of fields: pairs of a heading and the name of a field."""
    names = [name for name, _ in columns]
    return output.table(names, [[_cell(row.get(key)) for _, key in columns] for row in rows])


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def _message(result: Entity) -> "RenderableType":
    return _text(str(result["message"]))


def _status(result: Entity) -> "RenderableType":
    return _text(str(result["commandStatus"]["message"]))


def _sources(rows: Iterable[Entity]) -> "Table":
    return _named(
        rows,
        ("name", "name"),
        ("topic", "topic"),
        ("key format", "keyFormat"),
        ("value format", "valueFormat"),
        ("windowed", "isWindowed"),
    )


def _queries(rows: Iterable[Entity]) -> "Table":
    names = ("id", "state", "writes to", "rows", "rows/s", "lag", "late", "bad", "restarts")
    cells = []
    for row in rows:
        live = row.get("headrace", {})
        cells.append(
            [
                row["id"],
                row["state"],
                _cell(row["sinks"]),
                *(_cell(live.get(name)) for name in ("rows", "rate", "lag")),
                *(_cell(live.get(name)) for name in ("lateRows", "badRecords", "restarts")),
            ]
        )
    return output.table(names, cells, numbers=set(names[3:]))


def _query_errors(rows: Iterable[Entity]) -> list["RenderableType"]:
    errors = [(row["id"], row.get("headrace", {}).get("error")) for row in rows]
    return [_text(f"{query}: {error}", "red") for query, error in errors if error]


def _listed_queries(result: Entity) -> "RenderableType":
    from rich.console import Group

    rows = result["queries"]
    return Group(_queries(rows), *_query_errors(rows))


def _fields(rows: Iterable[Entity]) -> "Table":
    cells = []
    for row in rows:
        role = row.get("type", "")
        if row.get("headerKey"):
            role += f"('{row['headerKey']}')"
        cells.append([row["name"], schema_text(row["schema"]), role])
    return output.table(("column", "type", "role"), cells)


def schema_text(schema: Entity) -> str:
    """The type of a column, as in a statement."""
    match schema["type"]:
        case "ARRAY":
            return f"ARRAY<{schema_text(schema['memberSchema'])}>"
        case "MAP":
            return f"MAP<STRING, {schema_text(schema['memberSchema'])}>"
        case "STRUCT":
            inner = (f"{each['name']} {schema_text(each['schema'])}" for each in schema["fields"])
            return f"STRUCT<{', '.join(inner)}>"
        case "DECIMAL":
            digits = schema["parameters"]
            return f"DECIMAL({digits['precision']}, {digits['scale']})"
    return str(schema["type"])


def _moment(ms: object) -> str:
    if not isinstance(ms, int):
        return ""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _source_description(found: Entity) -> "RenderableType":
    from rich.console import Group

    parts: list[RenderableType] = []
    facts = {
        "name": found["name"],
        "type": found["type"].lower(),
        "topic": found["topic"],
        "key format": found["keyFormat"],
        "value format": found["valueFormat"],
    }
    if found.get("windowType"):
        facts["window"] = found["windowType"]
    if found.get("timestamp"):
        facts["timestamp"] = found["timestamp"]
    if found["extended"]:
        facts["partitions"] = str(found["partitions"])
        facts["replicas"] = str(found["replication"])
    parts += [output.facts(facts), _text(""), _fields(found["fields"])]
    for title, rows in (("written by", found["writeQueries"]), ("read by", found["readQueries"])):
        if rows:
            parts += [_text(f"\n{title}", "bold"), _queries(rows), *_query_errors(rows)]
    if found["extended"]:
        parts += [_live(row) for row in found["writeQueries"]]
        parts += [_offsets(each) for each in found["queryOffsetSummaries"]]
        parts += [_text(f"\n{found['statement']}", "dim")]
    return Group(*parts)


def _live(row: Entity) -> "RenderableType":
    live = row.get("headrace", {})
    return output.facts(
        {
            "\nquery": f"\n{row['id']}",
            "watermark": _moment(live.get("watermark")),
            "last row": _moment(live.get("lastRowAt")),
            "last epoch": f"{_cell(live.get('epoch'))}  {_moment(live.get('epochAt'))}",
            "state": f"{live.get('stateRows', 0)} rows, {output.size(live.get('stateBytes', 0))}",
            "generation": _cell(live.get("generation")),
        }
    )


def _offsets(summary: Entity) -> "Table":
    names = ("group", "topic", "partition", "offset", "end", "lag")
    rows = []
    for topic in summary["topicSummaries"]:
        for each in topic["offsets"]:
            at = each["consumerOffset"]
            lag = each["logEndOffset"] - (at if at >= 0 else each["logStartOffset"])
            rows.append(
                [
                    summary["groupId"], topic["kafkaTopic"], str(each["partition"]),
                    str(at) if at >= 0 else "", str(each["logEndOffset"]), str(lag),
                ]
            )  # fmt: skip
    return output.table(names, rows, numbers=set(names[2:]))


def _query_description(found: Entity) -> "RenderableType":
    from rich.console import Group

    facts = {
        "id": found["id"],
        "state": found["state"],
        "reads": _cell(found["sources"]),
        "writes to": _cell(found["sinks"]),
        "group": found["consumerGroupId"],
    }
    errors = [_text(each["errorMessage"], "red") for each in found["queryErrors"]]
    return Group(
        output.facts({name: text for name, text in facts.items() if text}),
        *errors,
        _text(""),
        _fields(found["fields"]),
        _text(f"\n{found['statementText']}\n", "dim"),
        _text(found["topology"]),
    )


def _all(draw: Callable[[Entity], "RenderableType"], key: str) -> Callable[[Entity], Any]:
    def drawn(result: Entity) -> "RenderableType":
        from rich.console import Group

        return Group(*(draw(each) for each in result[key]))

    return drawn


def _topics(result: Entity) -> "Table":
    rows = [
        [each["name"], str(len(each["replicaInfo"])), str(max(each["replicaInfo"], default=0))]
        for each in result["topics"]
    ]
    names = ("topic", "partitions", "replicas")
    return output.table(names, rows, numbers=set(names[1:]))


def _types(result: Entity) -> "Table":
    rows = [[name, schema_text(each)] for name, each in result["types"].items()]
    return output.table(("type", "is"), rows)


def _function(result: Entity) -> "RenderableType":
    arguments = result["functions"][0]
    shown = ", ".join(f"{each['name']} {each['type']}" for each in arguments["arguments"])
    return _text(f"{result['name']}({shown}) returns {arguments['returnType']}")


def _table_of(key: str, *columns: tuple[str, str]) -> Callable[[Entity], "Table"]:
    return lambda result: _named(result[key], *columns)


_DRAWN: Mapping[str, Callable[[Entity], "RenderableType"]] = {
    "currentStatus": _status,
    "warning_entity": _message,
    "streams": lambda result: _sources(result["streams"]),
    "tables": lambda result: _sources(result["tables"]),
    "queries": _listed_queries,
    "sourceDescription": lambda result: _source_description(result["sourceDescription"]),
    "source_descriptions": _all(_source_description, "sourceDescriptions"),
    "queryDescription": lambda result: _query_description(result["queryDescription"]),
    "query_descriptions": _all(_query_description, "queryDescriptions"),
    "replays": _table_of(
        "replays",
        *(("replay", "name"), ("of", "of"), ("phase", "phase"), ("mode", "mode")),
        ("topic", "topic"),
    ),
    "replayDescription": lambda result: _replay_description(result["replayDescription"]),
    "comparison": lambda result: comparison_report(result["comparison"]),
    "kafka_topics": _topics,
    "kafka_topics_extended": _topics,
    "type_list": _types,
    "describe_function": _function,
    "function_names": _table_of("functions", ("function", "name"), ("category", "category")),
    "properties": _table_of(
        "properties", ("property", "name"), ("value", "value"), ("changed by SET", "editable")
    ),
    "variables": _table_of("variables", ("variable", "name"), ("value", "value")),
    "connector_list": _table_of(
        "connectors",
        *(("connector", "name"), ("type", "type"), ("class", "className"), ("state", "state")),
    ),
    "connector_plugins_list": _table_of(
        "connectorPlugins", ("class", "className"), ("type", "type"), ("version", "version")
    ),
    "connector_info": lambda result: _text(f"Created connector {result['info']['name']}"),
    "drop_connector": lambda result: _text(f"Dropped connector {result['connectorName']}"),
    "terminate_query": lambda result: _text(f"Terminated query {result['queryId']}"),
    "assert_topic": lambda result: _text(f"As asserted: {result['topicName']}"),
    "assert_schema": lambda result: _text("As asserted"),
}


def _replay_description(found: Entity) -> "RenderableType":
    from rich.console import Group

    facts = {"replay": found["name"], "of": found["of"], "phase": found["phase"]}
    if found["mode"]:
        facts["mode"] = found["mode"]
    facts["created"] = _moment(found["created"])
    names = ("version", "name", "topic", "query", "state", "lag")
    rows = []
    for each in found["versions"]:
        query = each["query"] or {}
        live = query.get("headrace", {})
        cells = (each["version"], each["name"], each["topic"])
        rows.append([*cells, *map(_cell, (query.get("id"), query.get("state"), live.get("lag")))])
    parts = [
        output.facts(facts), _text(""), output.table(names, rows, numbers={"lag"}), _text(""),
        _progress(found["partitions"]), _text(f"\n{found['statement']}", "dim"),
    ]  # fmt: skip
    return Group(*parts)


def _progress(partitions: Sequence[Entity]) -> "Table":
    """How far the new version is: up to the ends of its creation, and up to those of now."""
    names = ("topic", "partition", "position", "caught up at", "end", "lag")
    rows = [
        [
            each["topic"], str(each["partition"]), str(each["position"]), str(each["cut"]),
            str(each["end"]), str(max(0, each["end"] - each["position"])),
        ]
        for each in partitions
    ]  # fmt: skip
    return output.table(names, rows, numbers=set(names[1:]))


def comparison_report(found: Entity) -> "RenderableType":
    """Counts first, then the columns that differ, then rows of each kind."""
    from rich.console import Group

    left, right = found["left"], found["right"]
    counts = {
        f"rows of {left}": str(found["leftRows"]),
        f"rows of {right}": str(found["rightRows"]),
        f"only in {left}": str(found["onlyLeft"]),
        f"only in {right}": str(found["onlyRight"]),
        "with differences": str(found["different"]),
    }
    if found["notCompared"]:
        counts["not compared"] = f"{_cell(found['notCompared'])}: only one has it"
    if found["ignored"]:
        counts["ignored"] = _cell(found["ignored"])
    verdict = f"{left} and {right} are equal" if found["equal"] else f"{left} and {right} differ"
    parts = [_text(verdict, "green" if found["equal"] else "red"), output.facts(counts)]
    if found["columns"]:
        names = (("column", "column"), ("rows that differ", "different"), ("at most by", "largest"))
        parts += [_text(""), _named(found["columns"], *names)]
    titles = {
        "onlyLeft": f"only in {left}", "onlyRight": f"only in {right}",
        "different": "with differences",
    }  # fmt: skip
    for kind, rows in found["examples"].items():
        parts += [_text(f"\n{titles[kind]}", "bold"), _compared_rows(rows, left, right)]
    return Group(*parts)


def _compared_rows(rows: Sequence[Entity], left: str, right: str) -> "Table":
    headings = {"key": "key", "row": "row", "times": "times", "left": left, "right": right}
    return _named(rows, *((headings[name], name) for name in rows[0]))


def _shown(value: str) -> str:
    """The JSON text of a value for a table: strings without quotes."""
    return str(json.loads(value)) if value.startswith('"') else value


class GrowingTable:
    """The rows of a query that does not end, below each other in columns of fixed widths."""

    def __init__(self, names: Sequence[str], types: Sequence[str], width: int) -> None:
        self._is_number = [each in ("INTEGER", "BIGINT", "DOUBLE") for each in types]
        share = max(SHORTEST_CELL, (width - 3 * (len(names) - 1)) // max(len(names), 1))
        self._widths = [max(min(share, LONGEST_CELL), len(name)) for name in names]
        self._names = names

    def head(self) -> list[str]:
        titles = " │ ".join(
            name.ljust(width) for name, width in zip(self._names, self._widths, strict=True)
        )
        return [titles, "─┼─".join("─" * width for width in self._widths)]

    def line(self, row: Sequence[str]) -> str:
        """A row, as the JSON texts of its values."""
        cells = []
        for value, width, is_number in zip(row, self._widths, self._is_number, strict=True):
            text = _shown(value)
            cells.append(text.rjust(width) if is_number else text.ljust(width))
        return " │ ".join(cells).rstrip()

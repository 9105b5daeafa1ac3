"""The properties of WITH: which exist, for which statements, and how they are read."""

from collections.abc import Collection, Mapping

from headrace.sql.language.errors import did_you_mean
from headrace.sql.language.grammar.reading import TokenReader
from headrace.sql.language.grammar.tokens import TokenKind

TOPIC_PROPERTIES = (
    "kafka_topic",
    "partitions",
    "replicas",
    "retention_ms",
    "cleanup_policy",
)
FORMAT_PROPERTIES = (
    "format",
    "key_format",
    "value_format",
    "key_delimiter",
    "value_delimiter",
    "wrap_single_value",
    "key_schema_id",
    "value_schema_id",
    "key_schema_full_name",
    "value_schema_full_name",
    "value_avro_schema_full_name",
    "key_protobuf_nullable_representation",
    "value_protobuf_nullable_representation",
)
TIME_PROPERTIES = ("timestamp", "timestamp_format")
CREATE_PROPERTIES = frozenset(
    {
        *TOPIC_PROPERTIES,
        *FORMAT_PROPERTIES,
        *TIME_PROPERTIES,
        "window_type",
        "window_size",
        "sourced_by_connector",
        "source_connector",
    }
)
"""Of CREATE STREAM|TABLE over a topic."""
QUERY_PROPERTIES = frozenset({"start", "query_id", "max_offsets_per_trigger", "trigger_interval"})
"""Of statements that start a query. All but `query_id` are our own: where a new query begins
(`earliest`, `latest` or `now`), and how much it reads at once and how often."""
CREATE_AS_PROPERTIES = frozenset(
    {*TOPIC_PROPERTIES, *FORMAT_PROPERTIES, *TIME_PROPERTIES, *QUERY_PROPERTIES}
)
REPLAY_PROPERTIES = CREATE_AS_PROPERTIES - {"start"}
SWITCH_PROPERTIES = frozenset({"mode", "max_lag"})


def read_properties(
    reader: TokenReader, known: Collection[str] | None, of: str
) -> Mapping[str, str]:
    """`(name = value, ...)`. Without known names, any name is one, and keeps its case."""
    reader.expect("(")
    properties: dict[str, str] = {}
    while True:
        place = reader.current
        if place.kind not in (TokenKind.WORD, TokenKind.NAME, TokenKind.STRING):
            raise reader.unexpected("the name of a property")
        name = reader.next().value
        if known is not None:
            name = name.lower()
            if name not in known:
                raise place.error(
                    f"Unknown property {name} of {of}.{did_you_mean(name, sorted(known))}"
                )
        if name in properties:
            raise place.error(f"The property {name} is there twice.")
        reader.expect("=")
        properties[name] = read_scalar(reader)
        if not reader.accept(","):
            break
    reader.expect(")")
    return properties


def read_scalar(reader: TokenReader) -> str:
    """A string, a number, TRUE or FALSE, as text."""
    token = reader.current
    if token.kind in (TokenKind.STRING, TokenKind.NUMBER):
        return reader.next().value
    if reader.accept("-"):
        if reader.current.kind is not TokenKind.NUMBER:
            raise reader.unexpected("a number")
        return "-" + reader.next().value
    if word := reader.accept_any("TRUE", "FALSE"):
        return word.lower()
    if token.kind is TokenKind.VARIABLE:
        raise token.error(f"The variable {token.value} is not defined.")
    raise token.error(f"Expected a value in single quotes, a number, TRUE or FALSE, found {token}.")

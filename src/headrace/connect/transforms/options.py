"""The names and options of transforms and predicates, and the chain that a configuration asks for.

    transforms=a,b              transforms.a.type=CLASS    transforms.a.predicate=p
    predicates=p                predicates.p.type=CLASS    transforms.a.negate=true

Imports no Spark: a configuration is checked without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from headrace.connect.plugin import Option, OptionError, parse
from headrace.connect.transforms.paths import field_path

APACHE = "org.apache.kafka.connect.transforms."
CAST_TYPES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
}
UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
OUTBOX = "io.debezium.transforms.outbox.EventRouter"
SQL = "headrace.Sql"

_DEFAULTS = Option(
    "replace.null.with.default",
    bool,
    True,
    "Has no effect here: defaults are applied by the converter.",
)
_FIELDS = Option("fields", list[str], doc="The names of fields.", importance="high")

_OF_PART: Mapping[str, Sequence[Option]] = {
    "Cast": (
        Option("spec", list[str], doc="FIELD:TYPE, or a single type.", importance="high"),
        _DEFAULTS,
    ),
    "ExtractField": (
        Option("field", str, doc="The field that becomes the key or value."),
        Option(
            "field.syntax.version",
            str,
            "V1",
            "V2 if the field is a path with dots.",
            choices=("V1", "V2"),
        ),
        _DEFAULTS,
    ),
    "Flatten": (Option("delimiter", str, ".", "Between the names of nested fields."),),
    "HeaderFrom": (
        _FIELDS,
        Option("headers", list[str], doc="A header for each field.", importance="high"),
        Option(
            "operation",
            str,
            doc="Whether the fields stay in the record.",
            choices=("move", "copy"),
            importance="high",
        ),
        _DEFAULTS,
    ),
    "HoistField": (Option("field", str, doc="The name of the only field."),),
    "InsertField": (
        Option("topic.field", str, None, "The field for the topic."),
        Option("partition.field", str, None, "The field for the partition."),
        Option("offset.field", str, None, "The field for the offset; only in sinks."),
        Option("timestamp.field", str, None, "The field for the record's timestamp."),
        Option("static.field", str, None, "The field for static.value."),
        Option("static.value", str, None, "The value of static.field."),
        _DEFAULTS,
    ),
    "MaskField": (
        _FIELDS,
        Option("replacement", str, None, "A value in place of zero or the empty text."),
        _DEFAULTS,
    ),
    "ReplaceField": (
        Option("exclude", list[str], (), "Fields to leave out."),
        Option("include", list[str], (), "The only fields to keep."),
        Option("renames", list[str], (), "OLD:NEW"),
        _DEFAULTS,
    ),
    "SetSchemaMetadata": (
        Option("schema.name", str, None, "The name of the schema.", importance="high"),
        Option("schema.version", int, None, "The version of the schema.", importance="high"),
        _DEFAULTS,
    ),
    "TimestampConverter": (
        Option("field", str, "", "The field; the whole key or value if empty."),
        Option(
            "target.type",
            str,
            doc="What the timestamp becomes.",
            choices=("string", "unix", "Date", "Time", "Timestamp"),
            importance="high",
        ),
        Option("format", str, "", "The pattern of texts, as in Java's SimpleDateFormat."),
        Option(
            "unix.precision",
            str,
            "milliseconds",
            "The unit of numbers.",
            choices=("seconds", "milliseconds", "microseconds", "nanoseconds"),
            importance="low",
        ),
        _DEFAULTS,
    ),
}
_PLAIN: Mapping[str, Sequence[Option]] = {
    "DropHeaders": (Option("headers", list[str], doc="Headers to drop.", importance="high"),),
    "Filter": (),
    "InsertHeader": (
        Option("header", str, doc="The name of the header.", importance="high"),
        Option("value.literal", str, doc="The value of the header.", importance="high"),
    ),
    "RegexRouter": (
        Option("regex", str, doc="A Java regular expression.", importance="high"),
        Option("replacement", str, doc="The new topic, with $1 for groups.", importance="high"),
    ),
    "TimestampRouter": (
        Option("topic.format", str, "${topic}-${timestamp}", "The new topic.", importance="high"),
        Option("timestamp.format", str, "yyyyMMdd", "As in SimpleDateFormat.", importance="high"),
    ),
    "ValueToKey": (_FIELDS, _DEFAULTS),
}
_UNWRAP_OPTIONS = (
    Option(
        "delete.tombstone.handling.mode",
        str,
        None,
        "What becomes of deletes and tombstones.",
        choices=("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"),
    ),
    Option("drop.tombstones", bool, None, "Older form: whether tombstones are dropped."),
    Option(
        "delete.handling.mode",
        str,
        None,
        "Older form: what becomes of deletes.",
        choices=("drop", "rewrite", "none"),
    ),
    Option("add.fields", list[str], (), "Fields of the envelope to add, such as op,source.ts_ms."),
    Option("add.fields.prefix", str, "__", "Before the names of these fields."),
    Option("add.headers", list[str], (), "Fields of the envelope to add as headers."),
    Option("add.headers.prefix", str, "__", "Before the names of these headers."),
    Option("route.by.field", str, "", "The field of the row that becomes the topic."),
)
_OUTBOX_OPTIONS = (
    Option("table.field.event.id", str, "id", "The column with the event's id."),
    Option("table.field.event.key", str, None, "The column that becomes the key."),
    Option("table.field.payload.id", str, "aggregateid", "The key if the above is null."),
    Option("table.field.event.payload", str, "payload", "The column with the payload."),
    Option("table.field.event.timestamp", str, None, "The column with the timestamp."),
    Option(
        "table.fields.additional.placement",
        list[str],
        (),
        "COLUMN:header, COLUMN:envelope or COLUMN:partition, each with an optional :ALIAS.",
    ),
    Option("route.by.field", str, "aggregatetype", "The column that decides the topic."),
    Option("route.topic.regex", str, "(?<routedByValue>.*)", "Matched with that column."),
    Option("route.topic.replacement", str, "outbox.event.${routedByValue}", "The topic."),
    Option("route.tombstone.on.empty.payload", bool, False, "An empty payload is a tombstone."),
    Option(
        "table.op.invalid.behavior",
        str,
        "warn",
        "What becomes of updates: skipped, or an error.",
        choices=("warn", "error", "fatal"),
    ),
)
TRANSFORMS: Mapping[str, Sequence[Option]] = {
    **{
        f"{APACHE}{name}${part}": options
        for name, options in _OF_PART.items()
        for part in ("Key", "Value")
    },
    **{f"{APACHE}{name}": options for name, options in _PLAIN.items()},
    UNWRAP: _UNWRAP_OPTIONS,
    OUTBOX: _OUTBOX_OPTIONS,
    SQL: (
        Option(
            "sql",
            str,
            doc="select ... from record [where ...], with Spark's functions.",
            importance="high",
        ),
    ),
}
PREDICATES: Mapping[str, Sequence[Option]] = {
    f"{APACHE}predicates.HasHeaderKey": (Option("name", str, doc="The header."),),
    f"{APACHE}predicates.RecordIsTombstone": (),
    f"{APACHE}predicates.TopicNameMatches": (
        Option("pattern", str, doc="A Java regular expression."),
    ),
}


def options_of(class_name: str) -> Sequence[Option] | None:
    """The options of a transform or predicate, without prefix; None if there is none."""
    return TRANSFORMS.get(class_name, PREDICATES.get(class_name))


def class_types() -> dict[str, str]:
    """The classes with the types that `GET /connector-plugins` shows."""
    return dict.fromkeys(TRANSFORMS, "transformation") | dict.fromkeys(PREDICATES, "predicate")


@dataclass(frozen=True, slots=True)
class Configured:
    """A transform or predicate of a configuration, with its options."""

    prefix: str
    """Such as `transforms.a`."""
    class_name: str
    given: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.prefix.partition(".")[2]

    def value(self, name: str) -> object:
        options = options_of(self.class_name) or ()
        option = next(one for one in options if one.name == name)
        try:
            return parse(option, self.given.get(name))
        except OptionError as error:
            raise OptionError(f"{self.prefix}.{name}", str(error)) from None

    def text(self, name: str) -> str:
        return str(self.value(name))

    def words(self, name: str) -> list[str]:
        found = self.value(name)
        return list(found) if isinstance(found, list | tuple) else []


@dataclass(frozen=True, slots=True)
class TransformStep:
    """A transform, and the predicate that decides for which records it is used."""

    transform: Configured
    predicate: Configured | None = None
    negate: bool = False


_OF_STEP = ("type", "predicate", "negate", "plugin.version")


def steps(config: Mapping[str, str]) -> list[TransformStep]:
    """The transforms in their order; OptionError for the first that cannot be."""
    found = []
    for name in _names(config, "transforms"):
        prefix = f"transforms.{name}"
        transform = _configured(config, prefix, TRANSFORMS, "transform")
        predicate_name = config.get(f"{prefix}.predicate")
        predicate = None
        if predicate_name:
            if predicate_name not in _names(config, "predicates"):
                raise OptionError(
                    f"{prefix}.predicate", f"The predicate {predicate_name} is not in predicates."
                )
            predicate = _configured(config, f"predicates.{predicate_name}", PREDICATES, "predicate")
        negate = parse(Option(f"{prefix}.negate", bool, False), config.get(f"{prefix}.negate"))
        if negate and predicate is None:
            raise OptionError(f"{prefix}.negate", "negate needs a predicate.")
        if transform.class_name == f"{APACHE}Filter" and predicate is None:
            raise OptionError(
                f"{prefix}.predicate", "Filter drops all records without a predicate; set one."
            )
        found.append(TransformStep(transform, predicate, negate is True))
    return found


def _names(config: Mapping[str, str], option: str) -> list[str]:
    return [name.strip() for name in config.get(option, "").split(",") if name.strip()]


def _configured(
    config: Mapping[str, str], prefix: str, known: Mapping[str, Sequence[Option]], what: str
) -> Configured:
    name = config.get(f"{prefix}.type")
    if not name:
        raise OptionError(
            f"{prefix}.type",
            f'Missing required configuration "{prefix}.type" which has no default value.',
        )
    if name not in known:
        hint = f"; use {name}$Key or {name}$Value" if f"{name}$Value" in known else ""
        raise OptionError(
            f"{prefix}.type",
            f"Invalid value {name} for configuration {prefix}.type: there is no such {what}{hint}",
        )
    given = {
        option[len(prefix) + 1 :]: value
        for option, value in config.items()
        if option.startswith(f"{prefix}.")
    }
    return Configured(prefix, name, {k: v for k, v in given.items() if k not in _OF_STEP})


def check(config: Mapping[str, str]) -> list[OptionError]:
    """The errors of the transforms' and predicates' options."""
    errors: list[OptionError] = []
    try:
        found = steps(config)
    except OptionError as error:
        return [error]
    for step in found:
        for configured in filter(None, (step.transform, step.predicate)):
            options = options_of(configured.class_name) or ()
            wrong = []
            for option in options:
                try:
                    configured.value(option.name)
                except OptionError as error:
                    wrong.append(error)
            known = {option.name for option in options}
            for name in sorted(set(configured.given) - known):
                option_name = f"{configured.prefix}.{name}"
                wrong.append(
                    OptionError(
                        option_name,
                        f"Unknown configuration {option_name} of {configured.class_name}.",
                    )
                )
            errors += wrong or _check_together(configured)
    return errors


def _check_together(configured: Configured) -> list[OptionError]:
    """The errors that only the values show."""
    name = configured.class_name.removeprefix(APACHE).partition("$")[0]
    try:
        if name == "Cast":
            cast_spec(configured)
        elif name == "ReplaceField":
            renames(configured)
        elif name == "ExtractField":
            field_path(
                f"{configured.prefix}.field",
                configured.text("field"),
                configured.text("field.syntax.version"),
            )
        elif name == "HeaderFrom":
            if len(configured.words("fields")) != len(configured.words("headers")):
                raise OptionError(
                    f"{configured.prefix}.headers",
                    "'fields' config must have the same number of elements as 'headers' config.",
                )
        elif name == "InsertField":
            _check_insert_field(configured)
        elif name == "SetSchemaMetadata":
            if configured.value("schema.name") is configured.value("schema.version") is None:
                raise OptionError(
                    f"{configured.prefix}.schema.name",
                    "Neither schema name nor version configured",
                )
        elif (
            name == "TimestampConverter"
            and configured.text("target.type") == "string"
            and not configured.text("format").strip()
        ):
            raise OptionError(
                f"{configured.prefix}.format",
                "TimestampConverter requires format option to be specified when using string "
                "timestamps",
            )
    except OptionError as error:
        return [error]
    return []


def _check_insert_field(configured: Configured) -> None:
    names = ("topic", "partition", "offset", "timestamp", "static")
    if all(configured.value(f"{name}.field") is None for name in names):
        raise OptionError(f"{configured.prefix}.static.field", "No field insertion configured")
    static = configured.value("static.field")
    if static is not None and configured.value("static.value") is None:
        raise OptionError(
            f"{configured.prefix}.static.value", f"No value specified for static field: {static}"
        )


def cast_spec(configured: Configured) -> dict[str | None, str]:
    """The types by field; None is the whole key or value."""
    option = f"{configured.prefix}.spec"
    found: dict[str | None, str] = {}
    words = configured.words("spec")
    if not words:
        raise OptionError(option, "Must specify at least one field to cast.")
    for word in words:
        field, colon, kind = word.rpartition(":")
        kind = kind.strip().lower()
        if ":" in field:
            raise OptionError(option, f"Invalid rename mapping: {word}")
        if kind not in CAST_TYPES:
            raise OptionError(option, f"Invalid type found in casting spec: {kind}")
        found[field.strip() if colon else None] = kind
    if None in found and len(words) > 1:
        raise OptionError(
            option,
            "Cast transformations that specify a type to cast the entire value to may only "
            "specify a single cast in their spec",
        )
    return found


def renames(configured: Configured) -> dict[str, str]:
    """The new names of fields."""
    found = {}
    for word in configured.words("renames"):
        parts = word.split(":")
        if len(parts) != 2:
            raise OptionError(f"{configured.prefix}.renames", f"Invalid rename mapping: {word}")
        found[parts[0]] = parts[1]
    return found


def number(text: str) -> Decimal | None:
    """A number in the notation of Java's BigDecimal."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None

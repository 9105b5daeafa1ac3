"""The options of partitioners, with the names that Confluent's connectors have for them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from headrace.connect.plugin import Connector, Option, OptionError

if TYPE_CHECKING:
    from headrace.pipelines.lake.folders import FolderRule

PACKAGE = "io.confluent.connect.storage.partitioner."
DAILY = "'year'=YYYY/'month'=MM/'day'=dd"
FORMATS = {"DailyPartitioner": DAILY, "HourlyPartitioner": f"{DAILY}/'hour'=HH"}
PARTITIONERS = ("DefaultPartitioner", "FieldPartitioner", "TimeBasedPartitioner", *FORMATS)
NONE = "NoPartitioner"
FLUSH_SIZE = Option("flush.size", int, 1_000_000, "How many records a file has at most.")
PARTITIONER_OPTIONS: Sequence[Option] = (
    Option(
        "partitioner.class", str, "DefaultPartitioner",
        "Which folders the files of a topic are in.",
        choices=(*PARTITIONERS, *(PACKAGE + name for name in PARTITIONERS), NONE),
        importance="high",
    ),
    Option("partition.field.name", list[str], (), "FieldPartitioner: the fields."),
    Option(
        "path.format", str, "",
        "TimeBasedPartitioner: the folders, such as 'year'=YYYY/'month'=MM/'day'=dd.",
    ),
    Option(
        "partition.duration.ms", int, -1,
        "TimeBasedPartitioner: times are rounded down to a multiple of it.",
    ),
    Option("locale", str, "en-US", "TimeBasedPartitioner: the language of names in the path."),
    Option("timezone", str, "UTC", "TimeBasedPartitioner: the zone of times in the path."),
    Option(
        "timestamp.extractor", str, "Record",
        "The time of a record: its timestamp, that of writing it, or a field.",
        choices=("Record", "Wallclock", "RecordField"),
    ),
    Option("timestamp.field", str, "timestamp", "RecordField: the field with the time."),
)  # fmt: skip


def folder_rule(connector: Connector, *, by_topic: bool) -> "FolderRule":
    """The folders as the values of PARTITIONER_OPTIONS ask for; OptionError if they cannot."""
    from headrace.pipelines.lake.folders import FolderRule

    values = {option.name: getattr(connector, option.attribute) for option in PARTITIONER_OPTIONS}
    kind = values["partitioner.class"].removeprefix(PACKAGE)
    if kind == NONE:
        return FolderRule(by_topic=by_topic)
    if kind == "DefaultPartitioner":
        return FolderRule(by_partition=True, by_topic=by_topic)
    if kind == "FieldPartitioner":
        fields = tuple(values["partition.field.name"])
        if not fields:
            raise OptionError("partition.field.name", "FieldPartitioner needs at least one field.")
        if any("." in name for name in fields):
            raise OptionError(
                "partition.field.name", "Fields of fields are not supported: use Flatten before."
            )
        return FolderRule(fields=fields, by_topic=by_topic)
    extractor = values["timestamp.extractor"]
    return FolderRule(
        time_format=_path_format(values["path.format"] or FORMATS.get(kind, ""), values["locale"]),
        timezone=_zone(values["timezone"]),
        time_field=values["timestamp.field"] if extractor == "RecordField" else "",
        wallclock=extractor == "Wallclock",
        duration_ms=max(0, values["partition.duration.ms"]),
        by_topic=by_topic,
    )


def _path_format(text: str, locale: str) -> str:
    from headrace.pipelines.lake.time_format import parse

    if not text:
        raise OptionError("path.format", "TimeBasedPartitioner needs a path.format.")
    try:
        found = parse(text)
    except ValueError as error:
        raise OptionError("path.format", str(error)) from None
    if found.has_names and not locale.lower().startswith("en"):
        raise OptionError(
            "locale", f"Names of months and days are English: use numbers in path.format={text}."
        )
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise OptionError("timezone", f"There is no time zone {name}.") from None
    return name

"""The names and options of converters. Imports no Spark: a configuration is checked without it.

`key.converter` and `value.converter` name the class; its options have the same prefix, such as
`value.converter.schemas.enable`. Without a class, keys are text and values JSON without schema.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.connect.plugin import Option, OptionError, Password, parse

PARTS = ("key", "value")
STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
BOOLEAN = "org.apache.kafka.connect.converters.BooleanConverter"
NUMBERS = {
    f"org.apache.kafka.connect.converters.{name}Converter": name
    for name in ("Long", "Integer", "Short", "Double", "Float")
}
REGISTRY_FORMATS = {
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.json.JsonSchemaConverter": "json",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
}
TOPIC_NAME_STRATEGY = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
ENCODINGS = {
    "UTF8": "UTF-8",
    "UTF-8": "UTF-8",
    "US-ASCII": "US-ASCII",
    "ASCII": "US-ASCII",
    "ISO-8859-1": "ISO-8859-1",
    "ISO8859_1": "ISO-8859-1",
    "UTF-16": "UTF-16",
    "UTF-16BE": "UTF-16BE",
    "UTF-16LE": "UTF-16LE",
}

STRING_OPTIONS = (
    Option(
        "converter.encoding",
        str,
        "UTF-8",
        "The character set of texts.",
        choices=tuple(ENCODINGS),
        importance="high",
    ),
)
JSON_OPTIONS = (
    Option(
        "schemas.enable",
        bool,
        True,
        "Whether every key or value is an envelope with its schema.",
        importance="high",
    ),
    Option("schemas.cache.size", int, 1000, "Has no effect here.", importance="high"),
    Option(
        "decimal.format",
        str,
        "BASE64",
        "How decimals are written; both forms are read.",
        choices=("BASE64", "NUMERIC", "base64", "numeric"),
        importance="low",
    ),
    Option(
        "replace.null.with.default",
        bool,
        True,
        "Whether a null in a field with a default is read as the default.",
        importance="low",
    ),
)
REGISTRY_OPTIONS = (
    Option(
        "schema.registry.url",
        list[str],
        doc="Addresses of the schema registry.",
        importance="high",
    ),
    Option(
        "basic.auth.credentials.source",
        str,
        "URL",
        "USER_INFO if user and password are in basic.auth.user.info.",
        choices=("URL", "USER_INFO"),
    ),
    Option("basic.auth.user.info", Password, None, "USER:PASSWORD for the registry."),
    Option("schema.registry.basic.auth.user.info", Password, None, "The same."),
    Option(
        "bearer.auth.credentials.source",
        str,
        "STATIC_TOKEN",
        "Only a token in bearer.auth.token is supported.",
        choices=("STATIC_TOKEN",),
    ),
    Option("bearer.auth.token", Password, None, "A token for the registry."),
    Option("subject", str, None, "The subject; by default TOPIC-key or TOPIC-value."),
    Option(
        "subject.name.strategy",
        str,
        TOPIC_NAME_STRATEGY,
        "Only TopicNameStrategy; set subject for another name.",
        choices=(TOPIC_NAME_STRATEGY,),
        importance="low",
    ),
    Option("auto.register.schemas", bool, True, "Whether a new schema is registered."),
    Option("use.latest.version", bool, False, "Whether the subject's latest schema is used."),
    Option("message", str, None, "The message of a Protobuf file with several.", importance="low"),
)
_ALIASES_OF_STRATEGY = ("key.subject.name.strategy", "value.subject.name.strategy")

CONVERTERS: Mapping[str, Sequence[Option]] = {
    STRING: STRING_OPTIONS,
    JSON: JSON_OPTIONS,
    BYTES: (),
    BOOLEAN: (),
    **dict.fromkeys(NUMBERS, ()),
    **dict.fromkeys(REGISTRY_FORMATS, REGISTRY_OPTIONS),
}
HEADER_CONVERTERS = ("org.apache.kafka.connect.storage.SimpleHeaderConverter",)
"""Accepted: headers keep their bytes."""
DEFAULTS = {"key": (STRING, {}), "value": (JSON, {"schemas.enable": "false"})}


def options_of(class_name: str) -> Sequence[Option] | None:
    """The options of a converter, without the prefix; None if there is no such converter."""
    return () if class_name in HEADER_CONVERTERS else CONVERTERS.get(class_name)


def class_types() -> dict[str, str]:
    """The classes with the types that `GET /connector-plugins` shows."""
    return dict.fromkeys(CONVERTERS, "converter") | dict.fromkeys(
        HEADER_CONVERTERS, "header_converter"
    )


@dataclass(frozen=True, slots=True)
class PartConverter:
    """The converter of keys or values, with its options."""

    part: str
    class_name: str
    given: Mapping[str, str]

    def text(self, name: str) -> str | None:
        value = self._value(name)
        return None if value is None else str(value)

    def flag(self, name: str) -> bool:
        return self._value(name) is True

    def _value(self, name: str) -> object:
        option = next(one for one in CONVERTERS[self.class_name] if one.name == name)
        try:
            return parse(option, self.given.get(name))
        except OptionError as error:
            raise OptionError(f"{self.part}.converter.{name}", str(error)) from None

    @property
    def has_declared_schemas(self) -> bool:
        """Whether every record declares its schema (JSON with schemas.enable)."""
        return self.class_name == JSON and self.flag("schemas.enable")


def converter_of(config: Mapping[str, str], part: str) -> PartConverter:
    """The converter of `key` or `value`; OptionError if the class is unknown."""
    prefix = f"{part}.converter"
    name = config.get(prefix)
    if not name:
        return PartConverter(part, *DEFAULTS[part])
    if name not in CONVERTERS:
        raise OptionError(
            prefix,
            f"Invalid value {name} for configuration {prefix}: "
            f"there is no such converter; the converters are {', '.join(sorted(CONVERTERS))}",
        )
    given = {
        option[len(prefix) + 1 :]: value
        for option, value in config.items()
        if option.startswith(f"{prefix}.")
    }
    for alias in _ALIASES_OF_STRATEGY:
        if alias in given:
            given["subject.name.strategy"] = given.pop(alias)
    return PartConverter(part, name, given)


def check(config: Mapping[str, str]) -> list[OptionError]:
    """The errors of the converters' options."""
    errors: list[OptionError] = []
    for part in PARTS:
        try:
            converter = converter_of(config, part)
        except OptionError as error:
            errors.append(error)
            continue
        known = {option.name for option in CONVERTERS[converter.class_name]}
        for option in CONVERTERS[converter.class_name]:
            try:
                converter.text(option.name)
            except OptionError as error:
                errors.append(error)
        for name in sorted(set(converter.given) - known - {"plugin.version"}):
            option_name = f"{part}.converter.{name}"
            errors.append(
                OptionError(
                    option_name, f"Unknown configuration {option_name} of {converter.class_name}."
                )
            )
    return errors

"""The options of typed topics, for source and sink: which format, which registry, which subject.

- `value.format`, `key.format`: avro, json or protobuf
- `value.subject`: by default TOPIC-value
- `value.subject.version`: the schema to read or write with: latest, or a version
- `value.message`: the message, if a Protobuf file has several
- `value.schema`: the text of a schema to write with
- `raw.records`: `all` if the source shows the bytes of all records, and not only of bad ones
- `auto.register.schemas`: false if the schema to write with has to be in the registry already
- `schema.registry.url`, and how to log in to it: `schema.registry.basic.auth.user.info` or
  `schema.registry.bearer.auth.token`; `schema.registry.ssl.ca.location`,
  `schema.registry.ssl.certificate.location`
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.errors import ClientError
from headrace.schemas.client import SchemaClient, split_urls
from headrace.schemas.formats import FORMATS as KNOWN_FORMATS

ERROR, RAW = "_error", "_raw"
QUARANTINE = (ERROR, RAW)
"""Columns: the error of a record that cannot be decoded, and its bytes; else both null."""
FORMATS = tuple(sorted(name.lower() for name in KNOWN_FORMATS))
PARTS = ("key", "value")
URL = "schema.registry.url"
USER_INFO = "schema.registry.basic.auth.user.info"
TOKEN = "schema.registry.bearer.auth.token"
CA_FILE = "schema.registry.ssl.ca.location"
CERTIFICATE_FILE = "schema.registry.ssl.certificate.location"
REGISTER = "auto.register.schemas"
OF_PART = ("format", "subject", "subject.version", "message")
RAW_RECORDS = "raw.records"
_COMMON_NAMES = (
    *(URL, USER_INFO, TOKEN, CA_FILE, CERTIFICATE_FILE),
    *(f"{part}.{name}" for part in PARTS for name in OF_PART),
)
SOURCE_NAMES = (*_COMMON_NAMES, RAW_RECORDS)
SINK_NAMES = (*_COMMON_NAMES, REGISTER, *(f"{part}.schema" for part in PARTS))


class TypedOptionError(ClientError):
    """An invalid option of typed topics. The message has its name and what is expected."""


@dataclass(frozen=True, slots=True)
class PartOptions:
    """How keys or values are typed."""

    part: str
    kind: str
    """The registry's name of the format: AVRO, JSON, PROTOBUF."""
    subject: str
    version: str | None
    """`latest` or a number, if it is set."""
    message: str | None
    schema: str | None = None
    register: bool = True


@dataclass(frozen=True, slots=True)
class TypedOptions:
    """The registry, and which of keys and values are typed."""

    client: SchemaClient
    parts: tuple[PartOptions, ...]
    raw_of_all: bool = False
    """Whether `_raw` has the bytes of all records."""


def parse_typed(given: Mapping[str, str], topic: str | None) -> TypedOptions | None:
    """Parse the options; None if nothing is typed. `topic` is set if there is only one.

    Names are expected in lower case.
    """
    typed = [part for part in PARTS if given.get(f"{part}.format")]
    for name in (*SINK_NAMES, RAW_RECORDS):
        part = name.partition(".")[0]
        if given.get(name) and part in PARTS and part not in typed:
            raise TypedOptionError(f"{name} needs {part}.format: one of {', '.join(FORMATS)}")
        if given.get(name) and not typed:
            raise TypedOptionError(
                f"{name} is set, but nothing is typed: set value.format or key.format to one of "
                f"{', '.join(FORMATS)}"
            )
    if not typed:
        return None
    raw = given.get(RAW_RECORDS, "bad").lower()
    if raw not in ("bad", "all"):
        raise TypedOptionError(f"{RAW_RECORDS}={raw}: expected bad or all")
    parts = tuple(_part(given, part, topic) for part in typed)
    return TypedOptions(_client(given), parts, raw == "all")


def _client(given: Mapping[str, str]) -> SchemaClient:
    urls = split_urls(given.get(URL, ""))
    if not urls:
        raise TypedOptionError(f"a format needs {URL}, such as http://localhost:8081")
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise TypedOptionError(f"{URL}={url} is not a URL: expected http://HOST:PORT")
    user_info = given.get(USER_INFO)
    if user_info is not None and ":" not in user_info:
        raise TypedOptionError(f"{USER_INFO}: expected USER:PASSWORD")
    if user_info is not None and given.get(TOKEN):
        raise TypedOptionError(f"set only one of {USER_INFO} and {TOKEN}")
    return SchemaClient(
        urls,
        user_info,
        given.get(CA_FILE),
        token=given.get(TOKEN),
        certificate_file=given.get(CERTIFICATE_FILE),
    )


def _part(given: Mapping[str, str], part: str, topic: str | None) -> PartOptions:
    form = given[f"{part}.format"].lower()
    if form not in FORMATS:
        raise TypedOptionError(f"{part}.format={form}: expected one of {', '.join(FORMATS)}")
    subject = given.get(f"{part}.subject") or (f"{topic}-{part}" if topic else "")
    if not subject:
        raise TypedOptionError(
            f"{part}.format with several topics needs {part}.subject: the subject whose schema is "
            "the type of all of them"
        )
    version = (given.get(f"{part}.subject.version") or "").lower() or None
    if version not in (None, "latest") and not (version.isdecimal() and 0 < int(version) < 1 << 31):
        raise TypedOptionError(
            f"{part}.subject.version={version}: expected latest or a version of at least 1"
        )
    message = given.get(f"{part}.message") or None
    if message is not None and form != "protobuf":
        raise TypedOptionError(f"{part}.message is for {part}.format=protobuf")
    schema = given.get(f"{part}.schema") or None
    if schema is not None and version is not None:
        raise TypedOptionError(
            f"{part}.schema and {part}.subject.version select a schema; set only one"
        )
    register = given.get(REGISTER, "true").lower()
    if register not in ("true", "false"):
        raise TypedOptionError(f"{REGISTER}={register}: expected true or false")
    return PartOptions(part, form.upper(), subject, version, message, schema, register == "true")

"""The interface of schema formats, and the schemas that it uses.

A format parses schemas (`parse`), checks compatibility (`ParsedSchema.problems`), and encodes
single values (`values`) and columns of values (`column_reader`, `column_writer`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headrace.schemas.comparison import Sides

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from headrace.schemas.columns.cursors import Values
    from headrace.schemas.columns.decoded import Decoded


@dataclass(frozen=True, slots=True)
class SchemaDependency:
    """A schema that another one refers to by this name; its own dependencies come before it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry with its dependencies, each after its own dependencies."""

    kind: str
    text: str
    dependencies: tuple[SchemaDependency, ...] = ()
    id: int = -1
    version: int = -1


class ParsedSchema(Protocol):
    """A valid schema."""

    @property
    def kind(self) -> str: ...

    @property
    def canonical(self) -> str:
        """The text that is stored; the same for two spellings of one schema."""

    def normalized(self) -> str:
        """The normalized text: parts whose order has no meaning are sorted."""

    def formatted(self, form: str) -> str:
        """The text in another format of the type."""

    def problems(self, writer: "ParsedSchema", sides: Sides) -> list[str]:
        """The reasons why data of `writer` cannot be read with this schema; empty if it can."""


class ValueCodec(Protocol):
    """Encodes and decodes single values of one schema, without the schema id before them."""

    def encode(self, value: object) -> bytes:
        """The bytes of a value that has JSON's types; raises BadValue."""

    def decode(self, data: bytes) -> object:
        """The value; any exception means that the bytes do not match the schema."""


class ColumnReader(Protocol):
    """Reads values of any number of schemas into columns of one schema."""

    @property
    def spark_type(self) -> "DataType": ...

    def decode(self, values: "Values", writer: RegisteredSchema) -> "Decoded":
        """The column of values that `writer` wrote, without the schema id before them."""


class ColumnWriter(Protocol):
    """Writes the rows of a column with one schema."""

    def encode(self, array: "pa.Array") -> "pa.Array":
        """The bytes of each row that is not null, without the schema id; raises BadColumn."""


LatestSchema: TypeAlias = Callable[[], RegisteredSchema | None]
"""Fetches the latest schema of the subject that a column is written to."""


class SchemaFormat(Protocol):
    """A type of schemas. Its libraries are imported when a method needs them."""

    name: str
    """The name in registries: AVRO, JSON, PROTOBUF."""
    file_suffix: str
    is_json: bool
    """Whether a schema's text is JSON."""
    quick_characters: int
    """Texts up to this size are parsed and compared in about ten milliseconds."""
    readable_form: str
    """The format of the text that `values` and columns need, for a registry's `?format=`; empty for
    the stored text."""

    def parse(self, text: str, dependencies: Sequence[SchemaDependency]) -> ParsedSchema:
        """The schema; raises InvalidSchema."""

    def may_have_patterns(self, text: str) -> bool:
        """Whether comparing the schema may evaluate regular expressions of its author. Some take
        exponential time, and a thread that evaluates one cannot be interrupted."""

    def values(self, schema: RegisteredSchema) -> ValueCodec:
        """Encodes and decodes single values; raises InvalidSchema."""

    def column_reader(self, schema: RegisteredSchema, message: str | None) -> ColumnReader:
        """Reads columns with this schema; `message` selects one of a Protobuf file."""

    def column_writer(
        self, schema: RegisteredSchema, message: str | None, kind: "DataType", column: str
    ) -> ColumnWriter:
        """Writes a column of this type; `column` is its name in messages."""

    def derived(self, kind: "DataType", name: str, latest: LatestSchema) -> str:
        """The text of the schema for a column of this type, called `name`."""

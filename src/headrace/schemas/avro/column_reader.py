"""Reads Avro values into columns: with numpy if the schema permits it, else one by one."""

import io
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from headrace.schemas.avro.resolution import arrow_type, resolve
from headrace.schemas.avro.steps import ColumnStep
from headrace.schemas.avro.tree import parse, spark_type
from headrace.schemas.columns.cursors import Reasons, Rows, Uneven, Values, scattered, start
from headrace.schemas.columns.decoded import Decoded, all_bad, decode_in_parts, without_bad
from headrace.schemas.errors import InvalidSchema, Unreadable
from headrace.schemas.interface import RegisteredSchema

ReadOne: TypeAlias = Callable[[io.BytesIO], object]


class AvroColumnReader:
    """Reads values of any number of writers' schemas with one reader's schema."""

    def __init__(self, reader: RegisteredSchema) -> None:
        self._reader = parse(reader)
        self.spark_type = spark_type(self._reader)
        self._type = arrow_type(self._reader)
        self._plans: dict[int, ColumnStep | str] = {}
        self._readers: dict[int, ReadOne] = {}

    def decode(self, values: Values, writer: RegisteredSchema) -> Decoded:
        step = self._plan(writer)
        if isinstance(step, str):
            return all_bad(len(values), self._type, step)
        if not step.vector:
            return decode_singly(step, values, self._single(writer))
        return decode_in_parts(
            values,
            lambda part: decode_vector(step, part),
            lambda part: decode_singly(step, part, self._single(writer)),
        )

    def _single(self, writer: RegisteredSchema) -> ReadOne:
        if writer.id not in self._readers:
            self._readers[writer.id] = single_reader(writer)
        return self._readers[writer.id]

    def _plan(self, writer: RegisteredSchema) -> ColumnStep | str:
        if writer.id not in self._plans:
            try:
                self._plans[writer.id] = resolve(parse(writer), self._reader)
            except (Unreadable, InvalidSchema) as error:
                self._plans[writer.id] = str(error)
        return self._plans[writer.id]


def decode_vector(step: ColumnStep, values: Values) -> Decoded | None:
    """Decode all values at once; None if they differ too much for that."""
    cursors = start(values)
    try:
        array = step.read(cursors)
    except Uneven:
        return None
    cursors.fail(cursors.at < cursors.end, "the value has bytes behind its last field")
    return without_bad(array, cursors.reasons)


def decode_singly(step: ColumnStep, values: Values, read: ReadOne) -> Decoded:
    """Decode one value after the other."""
    reasons = Reasons(len(values))
    found: list[object] = []
    good: list[int] = []
    for row, piece in enumerate(values.pieces()):
        stream = io.BytesIO(piece)
        try:
            value = read(stream)
        except Exception as error:
            # Decoders raise many kinds of exceptions for malformed bytes.
            reasons.add(np.array([row]), f"not of its schema: {type(error).__name__} {error}")
            continue
        if stream.tell() != len(piece):
            reasons.add(np.array([row]), "the value has bytes behind its last field")
            continue
        found.append(value)
        good.append(row)
    rows = np.array(good, np.int64)
    array = step.gather(found, Rows(rows, reasons))
    if len(rows) < len(values):
        array = scattered([(rows, array)], len(values), array.type)
    return without_bad(array, reasons)


def single_reader(writer: RegisteredSchema) -> ReadOne:
    """A function that reads one record as plain numbers and bytes, without logical types."""
    import fastavro

    from headrace.schemas.avro.values import fastavro_schema

    parsed = fastavro_schema(writer, logical=False)

    def read(stream: io.BytesIO) -> object:
        return fastavro.schemaless_reader(stream, parsed, None, return_named_type=True)

    return read

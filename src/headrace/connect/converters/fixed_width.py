"""Numbers of a fixed width as bytes, big-endian, as Kafka's serializers write them."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
)


@dataclass(frozen=True, slots=True)
class FixedWidth:
    """A type of numbers and its bytes."""

    kind: DataType
    size: int
    letter: str
    """The type's letter in numpy."""

    def of_bytes(self, octets: Column) -> Column:
        """The number; null unless there are `size` bytes."""
        fitting = F.when(F.length(octets) == self.size, octets)
        if isinstance(self.kind, FloatType | DoubleType):
            return self._float_of_bytes(fitting)
        number = F.conv(F.hex(fitting), 16, -10).cast("bigint")
        if self.size < 8:
            limit = 1 << (8 * self.size - 1)
            number = F.when(number >= limit, number - F.lit(2 * limit)).otherwise(number)
        return number.cast(self.kind)

    def to_bytes(self, number: Column) -> Column:
        """`size` bytes; null stays null."""
        if isinstance(self.kind, FloatType | DoubleType):
            return self._bytes_of_float(number)
        # hex() of a negative number has 16 digits; the last ones are those of a smaller type.
        padded = F.lpad(F.hex(number.cast("bigint")), 16, "0")
        return F.unhex(F.substring(padded, 17 - 2 * self.size, 2 * self.size))

    def _float_of_bytes(self, octets: Column) -> Column:
        size, letter = self.size, self.letter

        def decode(batch: pa.Array) -> pa.Array:
            valid = batch.drop_null()
            numbers = np.frombuffer(b"".join(valid.to_pylist()), f">{letter}{size}")
            found = np.zeros(len(batch), f"{letter}{size}")
            mask = np.asarray(batch.is_null())
            found[~mask] = numbers
            return pa.array(found, mask=mask)

        return F.arrow_udf(decode, self.kind)(octets)

    def _bytes_of_float(self, number: Column) -> Column:
        size, letter = self.size, self.letter

        def encode(batch: pa.Array) -> pa.Array:
            mask = np.asarray(batch.is_null())
            numbers = np.asarray(batch.fill_null(0)).astype(f">{letter}{size}")
            fixed = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(size), len(batch), [None, pa.py_buffer(numbers.tobytes())]
            )
            return pa.compute.if_else(pa.array(mask), None, fixed.cast(pa.binary()))

        return F.arrow_udf(encode, "binary")(number.cast(self.kind))


WIDTHS = {
    "Long": FixedWidth(LongType(), 8, "i"),
    "Integer": FixedWidth(IntegerType(), 4, "i"),
    "Short": FixedWidth(ShortType(), 2, "i"),
    "Double": FixedWidth(DoubleType(), 8, "f"),
    "Float": FixedWidth(FloatType(), 4, "f"),
}

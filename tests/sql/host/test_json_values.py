"""Rows as values of JSON."""

import datetime
import json
from decimal import Decimal

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.sql.host.json_values import json_rows


def test_every_type_is_a_value_of_json_and_large_integers_keep_their_digits() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC)
    inner = StructType([StructField("d", DecimalType(20, 2)), StructField("at", TimestampType())])
    kind = StructType(
        [
            StructField("n", LongType()),
            StructField("s", inner),
            StructField("m", MapType(LongType(), BinaryType())),
            StructField("a", ArrayType(DateType())),
            StructField("t", StringType()),
        ]
    )
    table = pa.table(
        {
            "n": pa.array([(1 << 63) - 1, None]),
            "s": pa.array(
                [{"d": Decimal("1.20"), "at": moment}, None],
                pa.struct([("d", pa.decimal128(20, 2)), ("at", pa.timestamp("us", "UTC"))]),
            ),
            "m": pa.array([[(1, b"\x00"), (2, None)], None], pa.map_(pa.int64(), pa.binary())),
            "a": pa.array([[datetime.date(2026, 1, 2), None], None], pa.list_(pa.date32())),
            "t": pa.array(["x", None]),
        }
    )
    first, second = json.loads(json.dumps(list(json_rows(table, kind))))
    assert first == [
        (1 << 63) - 1,
        {"d": "1.20", "at": "2026-01-02T03:04:05.678"},
        {"1": "AA==", "2": None},
        ["2026-01-02", None],
        "x",
    ]
    assert second == [None] * 5

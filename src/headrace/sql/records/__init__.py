"""Records of a topic as rows of a stream or table, and back, without Spark.

`decoding.py` has the RowReader and `encoding.py` the RowWriter of a source; `types.py` the types of
columns, and the other modules one format each. Their bytes are those that the Spark host reads and
writes (`sql/host`).

| type                 | Python               | KAFKA       | JSON                 | DELIMITED  |
|----------------------|----------------------|-------------|----------------------|------------|
| boolean              | bool                 | -           | true, false          | true       |
| tinyint ... bigint   | int                  | int, bigint | number               | number     |
| float, double        | float                | double      | number               | number     |
| decimal(p,s)         | Decimal              | -           | number, all digits   | number     |
| string               | str                  | UTF-8       | string               | text       |
| binary               | bytes                | as they are | string in base64     | base64     |
| date                 | date                 | -           | days since 1970      | days       |
| time                 | time                 | -           | milliseconds         | milliseconds |
| timestamp            | datetime in UTC      | -           | milliseconds         | milliseconds |
| array                | list                 | -           | array                | -          |
| map                  | dict                 | -           | object               | -          |
| struct               | dict                 | -           | object, nulls too    | -          |
| variant              | values of JSON       | -           | as they are          | -          |

AVRO, JSON_SR and PROTOBUF have the types of their schemas.
"""

import pyarrow as pa
import pytest

from headrace.pipelines.lake.columns import ColumnsDiffer, additions, fitted, plain


def test_types_that_only_arrow_distinguishes_become_one() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.large_string(), nullable=False),
            ("b", pa.timestamp("ns", "Asia/Tokyo")),
            ("c", pa.timestamp("us")),
            ("d", pa.list_(pa.struct([("e", pa.large_binary())]))),
            ("f", pa.map_(pa.string(), pa.int16())),
        ]
    )
    assert plain(schema, widen=True) == pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.timestamp("us", "UTC")),
            ("c", pa.timestamp("us")),
            ("d", pa.list_(pa.field("element", pa.struct([("e", pa.binary())])))),
            ("f", pa.map_(pa.string(), pa.field("value", pa.int32()))),
        ]
    )


def test_a_batch_is_cast_without_changing_its_values() -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("n", pa.int32())])
    batch = pa.RecordBatch.from_pydict(
        {"t": pa.array([1, None], pa.timestamp("us", "Asia/Tokyo")), "n": pa.array([1, 2], "int16")}
    )
    cast = fitted(batch, schema)
    assert cast.schema == schema
    assert cast.column(0).cast(pa.int64()).to_pylist() == [1, None]
    assert cast.column(1).to_pylist() == [1, 2]


def test_new_columns_are_additions_and_missing_ones_are_not() -> None:
    table = pa.schema([("a", pa.int64()), ("b", pa.string())])
    data = pa.schema([("b", pa.string()), ("c", pa.binary())])
    assert additions(table, data, "t") == [pa.field("c", pa.binary())]


@pytest.mark.parametrize(
    ("column", "words"),
    [(("a", pa.string()), "'a' is int64 in the table t"), (("A", pa.int64()), "'A'")],
)
def test_a_changed_column_is_refused_by_name(column: tuple[str, pa.DataType], words: str) -> None:
    with pytest.raises(ColumnsDiffer, match=words):
        additions(pa.schema([("a", pa.int64())]), pa.schema([column]), "t")

import json
from pathlib import Path

import pytest

from headrace.connect import OptionError
from headrace.connect.connectors.datagen import ITERATION, Datagen
from headrace.connect.connectors.ddl import arrow_schema
from headrace.connect.connectors.quickstarts import QUICKSTARTS

TASK = {"task.id": 0}


def datagen(**options: str) -> Datagen:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Datagen({"kafka.topic": "t", "max.interval": "0", **named})


def rows(source: Datagen, start: int, end: int, task: int = 0) -> list[dict[str, object]]:
    batches = source.read({"task.id": task}, {ITERATION: start}, {ITERATION: end})
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_every_quickstart_has_rows_of_its_schema(name: str) -> None:
    source = datagen(quickstart=name.upper())
    source.check()
    (stream,) = source.streams()
    (batch,) = source.read(TASK, None, {ITERATION: 100})
    assert batch.schema == arrow_schema(stream.schema)
    assert batch.num_rows == 100
    assert set(stream.key) <= set(batch.schema.names)


def test_a_range_is_read_twice_with_the_same_rows_by_another_instance() -> None:
    first, second = datagen(quickstart="orders"), datagen(quickstart="orders")
    assert rows(first, 100, 40000) == rows(second, 100, 20000) + rows(second, 20000, 40000)


def test_tasks_generate_different_rows() -> None:
    source = datagen(quickstart="users", tasks_max="2")
    assert source.streams()[0].partitions == [{"task.id": 0}, {"task.id": 1}]
    assert rows(source, 0, 10) != rows(source, 0, 10, task=1)


def test_iterations_end_the_connector() -> None:
    source = datagen(quickstart="users", iterations="10")
    assert source.latest(TASK, None, 7) == {ITERATION: 7}
    assert source.latest(TASK, {ITERATION: 7}, 7) == {ITERATION: 10}
    assert source.latest(TASK, {ITERATION: 10}, 7) == {ITERATION: 10}
    assert not source.is_finished(TASK, {ITERATION: 9})
    assert source.is_finished(TASK, {ITERATION: 10})
    assert not datagen(quickstart="users").is_finished(TASK, {ITERATION: 10})


def test_an_interval_bounds_the_rate() -> None:
    source = Datagen({"kafka.topic": "t", "quickstart": "users", "max.interval": "3600000"})
    assert source.latest(TASK, None, 1000) == {ITERATION: 1}
    assert source.latest(TASK, {ITERATION: 1}, 1000) == {ITERATION: 1}


def test_a_schema_of_ones_own_with_its_key(tmp_path: Path) -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]})
    (tmp_path / "schema.avsc").write_text(schema)
    for options in ({"schema_string": schema}, {"schema_filename": str(tmp_path / "schema.avsc")}):
        source = datagen(**options, schema_keyfield="n")
        source.check()
        assert source.streams()[0].schema == "n bigint"
        assert source.streams()[0].key == ["n"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "quickstart"),
        ({"quickstart": "nothing"}, "quickstart"),
        ({"quickstart": "users", "schema_string": "{}"}, "schema.string"),
        ({"schema_string": "{}"}, "schema.string"),
        ({"schema_filename": "/no/such/file"}, "schema.filename"),
        ({"quickstart": "users", "schema_keyfield": "x"}, "schema.keyfield"),
    ],
)
def test_options_that_cannot_work_are_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError) as raised:
        datagen(**options).check()
    assert raised.value.option == named

"""The function for `foreachBatch` apart from Spark; `test_sink_spark.py` has it within a query."""

import pickle

from headrace.pipelines import write_epochs


def test_the_function_can_be_sent_to_another_process() -> None:
    """Spark Connect pickles it for its server."""
    write = write_epochs("totals", bootstrap="localhost:9092", query="q", part="late")
    assert pickle.loads(pickle.dumps(write)) == write


def test_the_arguments_are_options_of_the_sink() -> None:
    write = write_epochs("totals", bootstrap="localhost:9092", options={"value.format": "avro"})
    assert write.options == {
        "delivery": "exactly-once",
        "kafka.bootstrap.servers": "localhost:9092",
        "topic": "totals",
        "value.format": "avro",
    }


def test_passwords_are_not_in_messages() -> None:
    write = write_epochs("totals", options={"kafka.sasl.password": "secret"})
    assert "secret" not in repr(write)

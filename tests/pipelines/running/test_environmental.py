"""Which failures are the machine's: a closed list, by the class of Java's exceptions."""

import uuid
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from headrace.pipelines.running import environmental
from headrace.pipelines.running.environmental import (
    NOT_SERIALIZED,
    NOT_STARTED,
    SPARK,
    TIMED_OUT,
    TIMEOUT,
)

QUERY = ("org.apache.spark.sql.streaming.StreamingQueryException", "[STREAM_FAILED] Query ...")
PYTHON = "org.apache.spark.api.python.PythonException"
CHANGED = "Task serialization failed: java.lang.IllegalStateException: Illegal size: 1"
TASK = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 3.0 (TID 5) (127.0.0.1 executor driver): "
)


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        ([QUERY, (SPARK, "Python worker failed to connect back.")], NOT_STARTED),
        (
            [
                QUERY,
                (SPARK, "Python worker failed to connect back."),
                (TIMEOUT, "Timed out while waiting for the Python worker to connect back"),
            ],
            NOT_STARTED,
        ),
        ([QUERY, (TIMEOUT, f"{TIMED_OUT} after 60000 ms")], TIMED_OUT),
        ([(SPARK, f"{TASK}{SPARK}: Python worker failed to connect back.\n\tat x")], NOT_STARTED),
        (
            [
                QUERY,
                (SPARK, f"Job aborted due to stage failure: {CHANGED}"),
            ],
            NOT_SERIALIZED,
        ),
        # What a function of the program says, even if it says the same words.
        ([QUERY, (PYTHON, "Traceback ...\nPython worker failed to connect back.")], None),
        (
            [
                (SPARK, f"{TASK}{PYTHON}: Traceback\nPython worker failed to connect back.\n"),
                (PYTHON, "Traceback ..."),
            ],
            None,
        ),
        ([(SPARK, f"{TASK}{PYTHON}: {SPARK}: x\nPython worker failed to connect back.\n")], None),
        ([QUERY, ("py4j.Py4JException", "An exception was raised by the Python Proxy")], None),
        ([QUERY, ("java.lang.RuntimeException", "Python worker failed to connect back.")], None),
        ([QUERY, (SPARK, "Python worker exited unexpectedly (crashed)")], None),
        ([QUERY, (SPARK, "Task serialization failed: java.io.NotSerializableException: A")], None),
        ([], None),
    ],
)
def test_the_list_is_closed(chain: list[tuple[str, str]], reason: str | None) -> None:
    assert environmental.reason(chain) == reason


def test_an_exception_of_the_program_has_no_java_in_it() -> None:
    assert environmental.java_chain(RuntimeError("Python worker failed to connect back.")) == []


@pytest.mark.spark
def test_an_exception_in_a_function_of_the_program_is_the_programs(
    spark: SparkSession, tmp_path: Path
) -> None:
    def fail(value: int) -> int:
        raise RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")

    fails = udf(fail, "long")
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = (
        rates.select(fails("value"))
        .writeStream.format("noop")
        .queryName(f"fails-{uuid.uuid4().hex[:6]}")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(PySparkException) as raised:
        query.awaitTermination(60)
    chain = environmental.java_chain(raised.value)
    assert "connect back" in str(chain)
    assert environmental.reason(chain) is None

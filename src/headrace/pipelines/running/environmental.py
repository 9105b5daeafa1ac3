"""Failures of Spark that a busy machine causes and that a restart resolves: a closed list.

They are recognised by the class and the message of Java's exceptions, never by a text that the
program or its Python functions could have produced.
"""

import re
from collections.abc import Sequence
from typing import Any

SPARK = "org.apache.spark.SparkException"
TIMEOUT = "java.net.SocketTimeoutException"
# Exceptions of Python functions of the program or of a data source.
PROGRAMS_OWN = frozenset(
    {"org.apache.spark.api.python.PythonException", "py4j.Py4JException"},
)

NOT_STARTED = "Python worker failed to connect back"
TIMED_OUT = "Timed out while waiting for the Python worker to connect back"
NOT_SERIALIZED = "Task serialization failed"

_TASK_FAILED = re.compile(
    r"Job aborted due to stage failure: Task [^\n]* most recent failure: Lost task [^\n]*: "
    + re.escape(SPARK)
    + r": Python worker failed to connect back\.?(\n|$)"
)
# Spark changes a collection of a query while it serializes it for a task of another one.
_CHANGED_MEANWHILE = re.compile(
    r"(Job aborted due to stage failure: )?Task serialization failed: "
    r"(java\.lang\.IllegalStateException: Illegal size"
    r"|java\.util\.ConcurrentModificationException)"
)


def reason(chain: Sequence[tuple[str, str]]) -> str | None:
    """The failure of the list that matches a chain of (class, message); else None."""
    if any(name in PROGRAMS_OWN for name, _ in chain):
        return None
    for name, message in chain:
        if name == SPARK and (message == f"{NOT_STARTED}." or _TASK_FAILED.match(message)):
            return NOT_STARTED
        if name == TIMEOUT and message.startswith(TIMED_OUT):
            return TIMED_OUT
        if name == SPARK and _CHANGED_MEANWHILE.match(message):
            return NOT_SERIALIZED
    return None


def java_chain(error: BaseException) -> list[tuple[str, str]]:
    """Class and message of the Java exception behind a PySpark `error`, and of its causes.

    Empty if the program raised the error itself, even if one of Spark's errors caused it.
    """
    thrown: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    chain: list[tuple[str, str]] = []
    try:
        while thrown is not None and len(chain) < 20:
            chain.append((str(thrown.getClass().getName()), str(thrown.getMessage() or "")))
            thrown = thrown.getCause()
    except Exception:
        # Java has ended, so the exception is not available.
        return []
    return chain

"""Which errors of queries are tried again for as long as it takes."""

import socket
import sqlite3
import traceback
from collections.abc import Callable

import httpx
import psycopg
import pymysql
import pytest

from headrace.client.errors import ClientError, Unreachable
from headrace.connect.host.failures import QueryFailure, failure_of
from headrace.connect.plugin import OptionError, PermanentError
from headrace.pipelines.host.retries import FailureKind
from tests.support.ports import free_port


def reported(error: BaseException) -> QueryFailure:
    """The failure of a query whose task raised the error: Spark has only its traceback as text."""
    told = "".join(traceback.format_exception(error))
    text = f"[STREAM_FAILED] Query terminated with exception: Job aborted\n{told}\n\tat org.Task"
    return failure_of(Exception(text))


def refused_by(connect: Callable[[int], object]) -> QueryFailure:
    try:
        connect(free_port())
    except Exception as error:
        return reported(error)
    raise AssertionError("nothing listens on a free port")


@pytest.mark.parametrize(
    "connect",
    [
        lambda port: psycopg.connect(f"host=127.0.0.1 port={port} user=x"),
        lambda port: pymysql.connect(host="127.0.0.1", port=port, user="x"),
        lambda port: httpx.get(f"http://127.0.0.1:{port}"),
        lambda port: socket.create_connection(("127.0.0.1", port)),
    ],
    ids=["postgresql", "mariadb", "http", "socket"],
)
def test_a_server_that_is_away_is_a_passing_error(connect: Callable[[int], object]) -> None:
    found = refused_by(connect)
    assert found.kind is FailureKind.PASSING, found.sentence


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("no broker responds"),
        TimeoutError("timed out"),
        psycopg.errors.DeadlockDetected("deadlock detected"),
        pymysql.err.OperationalError(1213, "Deadlock found"),
        sqlite3.OperationalError("database is locked"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_busy_server_is_a_passing_error(error: Exception) -> None:
    found = reported(error)
    assert found.kind is FailureKind.PASSING, found.sentence
    assert type(error).__name__ in found.sentence


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermanentError("there is no table t"), FailureKind.PERMANENT),
        (OptionError("mode", "bad"), FailureKind.PERMANENT),
        (ZeroDivisionError("division by zero"), FailureKind.UNKNOWN),
        (sqlite3.OperationalError("no such table: t"), FailureKind.UNKNOWN),
        (pymysql.err.OperationalError(1054, "Unknown column"), FailureKind.UNKNOWN),
        (psycopg.errors.UndefinedTable("no table"), FailureKind.UNKNOWN),
        (ClientError("the topic has no schema"), FailureKind.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_other_errors_are_permanent_or_unknown(error: Exception, kind: FailureKind) -> None:
    assert reported(error).kind is kind

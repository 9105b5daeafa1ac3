"""What the JDBC sink and source share: options of the connection, and errors of the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.connect.plugin import REQUIRED, Option, OptionError, Password, PermanentError

if TYPE_CHECKING:
    from headrace.connect.connectors.jdbc.dialects import Dialect, Refusal

CONNECTION = (
    Option(
        "connection.url",
        str,
        REQUIRED,
        "jdbc:postgresql://HOST:PORT/DATABASE, jdbc:mariadb://..., jdbc:mysql://... or "
        "jdbc:sqlite:FILE.",
        importance="high",
        group="Connection",
    ),
    Option("connection.user", str, "", "The user.", importance="high", group="Connection"),
    Option("connection.password", Password, "", "Its password.", importance="high",
           group="Connection"),
)  # fmt: skip
IGNORED = (
    "connection.attempts",
    "connection.backoff.ms",
    "dialect.name",
    "quote.sql.identifiers",
    "trim.sensitive.log",
    "max.retries",
    "retry.backoff.ms",
)
"""Retries are the host's, and the URL has the dialect."""


@contextmanager
def translated(database: "Dialect") -> Iterator[None]:
    """Errors of the database that do not go away become PermanentError."""
    from headrace.connect.connectors.jdbc.dialects import Refusal

    try:
        yield
    except (PermanentError, OptionError):
        raise
    except Exception as error:
        if is_refusal(database, error, Refusal.PERMANENT):
            raise PermanentError(sentence(error)) from error
        raise


def is_refusal(dialect: "Dialect", error: Exception, kind: "Refusal") -> bool:
    """Whether an error is one of the database, and means this."""
    module = type(error).__module__.partition(".")[0]
    return module in ("psycopg", "pymysql", "sqlite3") and dialect.refusal(error) is kind


def sentence(error: Exception) -> str:
    """The message of the database in one line."""
    args = error.args
    text = str(args[1]) if len(args) > 1 and isinstance(args[0], int) else str(error)
    return " ".join(text.split()) or type(error).__name__


@contextmanager
def connected(database: "Dialect") -> Iterator[Any]:
    """A connection for one call."""
    with translated(database):
        connection = database.connect()
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def as_option_error(option: str) -> Iterator[None]:
    """While a configuration is checked, every error belongs to an option."""
    try:
        yield
    except OptionError:
        raise
    except Exception as error:
        raise OptionError(option, sentence(error)) from error

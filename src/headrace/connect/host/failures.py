"""Why a query ended: whether trying again helps, and a sentence for people."""

import re
from dataclasses import dataclass
from typing import Any

from headrace.pipelines.host.retries import FailureKind
from headrace.pipelines.running.progress import without_secrets

_PERMANENT = re.compile(
    r"(?:^|\n|\s|: )(?:headrace\.connect\.plugin\.)?(PermanentError|OptionError): (?P<what>[^\n]+)"
)
_LAST_PYTHON_LINE = re.compile(
    r"\n(?P<what>(?!org\.|java\.)(?:[a-z_]\w*\.)+[A-Z]\w*(?::[^\n]*)?(?=\n|$)"
    r"|[A-Za-z_][\w.]*(?:Error|Exception|Timeout)[^\n]*)"
)
_STARTING_WORKER = "Python worker failed to connect back"
_PASSING = re.compile(
    r"(?:[\w.]+\.)?(?:"
    # Python's own, and those of the client of brokers
    r"Connection\w*Error|BrokenPipeError|TimeoutError|gaierror|Unreachable|"
    # HTTP and AMQP
    r"(?:Connect|Read|Write|RemoteProtocol|Network)Error|\w+Timeout|AMQP\w+|StreamLostError"
    r")\b|"
    r"psycopg\.OperationalError\b|psycopg\.errors\.(?:DeadlockDetected|SerializationFailure|"
    r"AdminShutdown|CrashShutdown|CannotConnectNow|TooManyConnections|LockNotAvailable)\b|"
    # too many connections, shutdown, lock wait, deadlock, no connection
    r"pymysql\.err\.\w+: \((?:1040|1053|1205|1213|2002|2003|2006|2013|2055)\b|"
    r"sqlite3\.OperationalError: database is locked"
)
"""The beginning of the last line of a traceback, for errors of servers that are away or busy."""


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """The error of a query or of its start."""

    sentence: str
    trace: str
    kind: FailureKind


def failure_of(error: BaseException) -> QueryFailure:
    """Classify an error by its text, which is all that Spark passes on."""
    trace = without_secrets(_text(error))
    found = list(_PERMANENT.finditer(trace))
    if found:
        return QueryFailure(found[-1]["what"].strip(), trace, FailureKind.PERMANENT)
    if _STARTING_WORKER in trace:
        sentence = "a Python worker of Spark did not start in time"
        return QueryFailure(sentence, trace, FailureKind.PASSING)
    lines = list(_LAST_PYTHON_LINE.finditer(trace))
    sentence = lines[-1]["what"].strip() if lines else next(iter(trace.splitlines()), "unknown")
    kind = FailureKind.PASSING if _PASSING.match(sentence) else FailureKind.UNKNOWN
    return QueryFailure(sentence, trace, kind)


def _text(error: BaseException) -> str:
    java: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    own = f"{type(error).__name__}: {error}"
    return own if java is None else str(error)

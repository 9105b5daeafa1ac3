"""Why a query ended: whether trying again helps, and a sentence for people."""

import re
from dataclasses import dataclass
from typing import Any

from headrace.pipelines.running.progress import without_secrets

_PERMANENT = re.compile(
    r"(?:^|\n|\s|: )(?:headrace\.connect\.plugin\.)?(PermanentError|OptionError): (?P<what>[^\n]+)"
)
_LAST_PYTHON_LINE = re.compile(r"\n(?P<what>[A-Za-z_][\w.]*(?:Error|Exception|Timeout)[^\n]*)")
_STARTING_WORKER = "Python worker failed to connect back"


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """The error of a query or of its start."""

    sentence: str
    trace: str
    permanent: bool


def failure_of(error: BaseException) -> QueryFailure:
    """Classify an error; everything that is not known to be permanent counts as passing."""
    trace = without_secrets(_text(error))
    found = list(_PERMANENT.finditer(trace))
    if found:
        return QueryFailure(found[-1]["what"].strip(), trace, True)
    if _STARTING_WORKER in trace:
        return QueryFailure("a Python worker of Spark did not start in time", trace, False)
    lines = list(_LAST_PYTHON_LINE.finditer(trace))
    sentence = lines[-1]["what"].strip() if lines else next(iter(trace.splitlines()), "unknown")
    return QueryFailure(sentence, trace, False)


def _text(error: BaseException) -> str:
    java: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    own = f"{type(error).__name__}: {error}"
    return own if java is None else str(error)
